//! What has to be dealt with on a node before it takes the pod.

use crate::explain::claims::MADE_ELSEWHERE;
use crate::explain::report::{ClaimState, NodeReport, Offer, Report};
use std::collections::HashMap;

/// One thing that stands against the pod on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Need<'r> {
    /// Storage for a claim of the pod, by its place in the report.
    Storage(usize),
    /// Space for an inline volume of the pod, by its place in the report.
    Inline(usize),
    /// Storage for all claims at once: each alone would find its place.
    StorageTogether,
    /// Storage; the node was not asked for which claim, to save time.
    StorageForSome,
    /// The claim's volume is being made for another node.
    MadeElsewhere(usize),
    /// The pod asks for more of a resource than the node has in all.
    SmallerPod(&'r str),
    /// A resource of which the node has enough, but not free.
    Room(&'r str),
    /// Taints that the pod does not tolerate.
    Taints(&'r str),
    /// Another reason, by its code and words.
    Reason(&'r str, &'r str),
}

impl Need<'_> {
    /// How hard it is to deal with, compared with others.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Storage(_) | Self::Inline(_) | Self::StorageTogether => 2,
            Self::Room(_) | Self::Taints(_) => 2,
            Self::StorageForSome => 3,
            Self::MadeElsewhere(_) | Self::SmallerPod(_) => 20,
            Self::Reason(code, _) => match *code {
                "NodeUnschedulable.Unschedulable" => 1,
                "VolumeBinding.NodeConflict" | "VolumeZone.Conflict" => 20,
                "NodeName.OtherNode" => 10,
                _ => 2,
            },
        }
    }
}

/// The needs of all nodes.
pub(super) struct Needs<'r> {
    report: &'r Report,
    /// There are steps for claims, which hold for every node.
    claims_tell: bool,
    /// What storage is short of, by node.
    short: HashMap<&'r str, Vec<Need<'r>>>,
}

impl<'r> Needs<'r> {
    pub(super) fn new(report: &'r Report, claims_tell: bool) -> Self {
        let mut short: HashMap<&str, Vec<Need<'_>>> = HashMap::new();
        let mut note = |offers: &'r [Offer], need: &dyn Fn(&Offer) -> Need<'r>| {
            for offer in offers {
                for node in &offer.nodes {
                    let noted = short.entry(node).or_default();
                    if !offer.suffices {
                        noted.push(need(offer));
                    }
                }
            }
        };
        for (index, claim) in report.claims.iter().enumerate() {
            if claim.state == ClaimState::Delayed {
                note(&claim.offers, &|offer| match offer.text.starts_with(MADE_ELSEWHERE) {
                    true => Need::MadeElsewhere(index),
                    false => Need::Storage(index),
                });
            }
        }
        for (index, volume) in report.inline_volumes.iter().enumerate() {
            note(&volume.offers, &|_| Need::Inline(index));
        }
        Self {
            report,
            claims_tell,
            short,
        }
    }

    /// The needs of a node, in a fixed order.
    pub(super) fn of(&self, node: &'r NodeReport) -> Vec<Need<'r>> {
        let mut needs = Vec::new();
        for refusal in &node.refused {
            let details = refusal.details.iter().map(String::as_str).chain(std::iter::repeat(""));
            let reasons = refusal.reasons.iter().zip(&refusal.reason_codes);
            for ((reason, code), detail) in reasons.zip(details) {
                match code.as_str() {
                    "VolumeBinding.BindConflict" | "VolumeBinding.NotEnoughSpace" => {
                        needs.extend(self.storage(&node.name));
                    }
                    "TaintToleration.UntoleratedTaint" => needs.push(Need::Taints(detail)),
                    code if code.starts_with("NodeResourcesFit.Insufficient") => {
                        let resource = reason.strip_prefix("Insufficient ").unwrap_or(reason);
                        let too_small = node.too_small.iter().any(|found| found.resource == resource);
                        needs.push(match too_small {
                            true => Need::SmallerPod(resource),
                            false => Need::Room(resource),
                        });
                    }
                    code if self.is_of_claims(code) => {}
                    code => needs.push(Need::Reason(code, reason)),
                }
            }
        }
        // A node that no plugin refuses, but that one leaves out, is not among those that the pod asks for.
        if node.refused.is_empty() && self.report.pre_filter.is_empty() {
            needs.push(Need::Reason("NodeAffinity.Mismatch", ""));
        }
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    fn storage(&self, node: &str) -> Vec<Need<'r>> {
        match self.short.get(node) {
            None => vec![Need::StorageForSome],
            Some(short) if short.is_empty() => vec![Need::StorageTogether],
            Some(short) => short.clone(),
        }
    }

    /// Whether a reason says of a node what holds for a claim wherever the pod goes.
    fn is_of_claims(&self, code: &str) -> bool {
        let plugins = [
            "VolumeBinding.",
            "VolumeRestrictions.",
            "NodeVolumeLimits.",
            "VolumeZone.",
        ];
        let of_claims = [
            "ClaimNotFound",
            "ClaimNotOwned",
            "ClassNotFound",
            "VolumeNotNamed",
            "VolumeNotFound",
        ];
        let is_told = |plugin: &&str| code.strip_prefix(*plugin).is_some_and(|rest| of_claims.contains(&rest));
        plugins.iter().any(is_told) && self.claims_tell
    }
}
