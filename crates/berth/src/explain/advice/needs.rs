//! What has to be dealt with on a node before it takes the pod.

use crate::explain::cause::Cause;
use crate::explain::demands::Demand;
use crate::explain::details::{Detail, Taint, resource_of};
use crate::explain::report::{Found, NodeReport, Offer, Report};
use berth_core::names;
use berth_core::reason::VolumeReason;
use berth_scheduler::reason::Reason;
use std::collections::HashMap;

/// A volume that would serve a claim but for one thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VolumeFix {
    /// The volume.
    pub(super) volume: String,
    /// What keeps it from the claim.
    pub(super) cause: Cause,
}

/// One thing that stands against the pod, on a node or anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Need {
    /// A claim of the pod, by its place in the report, has to be put right before any node can be considered.
    Claim(usize),
    /// The pod asks for more of a resource than any node has in all.
    TooLarge(String),
    /// Storage for a claim of the pod, by its place in the report.
    Storage(usize),
    /// Space for an inline volume of the pod, by its place in the report.
    Inline(usize),
    /// Storage for all claims at once: each alone would find its place.
    StorageTogether,
    /// Storage; the node was not asked for which claim, to save time.
    StorageForSome,
    /// Another node is selected for the claim.
    SelectedElsewhere(usize),
    /// The claim that all pods of a DaemonSet share is bound to a volume elsewhere.
    OwnVolume(usize),
    /// The pod asks for more of a resource than the node has in all.
    SmallerPod(String),
    /// A resource of which the node has enough, but not free.
    Room(String),
    /// The node is cordoned.
    Cordoned,
    /// The node does not answer, by the taints that say so.
    NodeDown(Vec<Taint>),
    /// The node is in a state that passes, by the taints that say so.
    NodeState(Vec<Taint>),
    /// Taints that the pod does not tolerate.
    Taints(Vec<Taint>),
    /// The pod asks for other nodes, by what this one lacks.
    OtherNodes(Vec<Demand>),
    /// A volume that would serve a claim of the pod, by its place in the report, but for one thing.
    Volume(usize, VolumeFix),
    /// Another reason.
    Reason(Reason),
}

impl Need {
    /// How hard it is to deal with, compared with others.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Cordoned | Self::NodeState(_) | Self::Volume(..) => 1,
            Self::Claim(_) | Self::TooLarge(_) => 2,
            Self::Storage(_) | Self::Inline(_) | Self::StorageTogether => 2,
            Self::Room(_) | Self::Taints(_) | Self::OtherNodes(_) => 2,
            Self::StorageForSome | Self::NodeDown(_) => 3,
            Self::OwnVolume(_) => 5,
            Self::SelectedElsewhere(_) | Self::SmallerPod(_) => 20,
            Self::Reason(Reason::OtherNodeName) => 10,
            Self::Reason(reason) if is_out_of_reach(reason) => 20,
            Self::Reason(_) => 2,
        }
    }
}

/// Whether a reason says that a bound volume cannot be reached.
pub(super) fn is_out_of_reach(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Volume(VolumeReason::NodeConflict) | Reason::ZoneConflict
    )
}

/// Taints by which Kubernetes says that a node does not answer. Tolerating them puts the pod where nothing runs.
const DOWN: [&str; 4] = [
    names::TAINT_NOT_READY,
    names::TAINT_UNREACHABLE,
    names::TAINT_OUT_OF_SERVICE,
    names::TAINT_SHUTDOWN,
];

/// Taints by which Kubernetes says that a node is in a state that passes.
const STATES: [&str; 5] = [
    names::TAINT_MEMORY_PRESSURE,
    names::TAINT_DISK_PRESSURE,
    names::TAINT_PID_PRESSURE,
    names::TAINT_NETWORK_UNAVAILABLE,
    names::TAINT_UNINITIALIZED,
];

/// Whether a taint says that its node does not answer.
pub(in crate::explain) fn says_down(key: &str) -> bool {
    DOWN.contains(&key)
}

/// The needs of all nodes.
pub(super) struct Needs<'r> {
    report: &'r Report,
    /// There are steps for claims, which hold for every node.
    claims_tell: bool,
    /// The pod belongs to a DaemonSet, which gives every node a pod of its own.
    is_daemon: bool,
    /// What storage is short of, by node.
    short: HashMap<&'r str, Vec<Need>>,
}

impl<'r> Needs<'r> {
    pub(super) fn new(report: &'r Report, claims_tell: bool, is_daemon: bool) -> Self {
        let mut short: HashMap<&str, Vec<Need>> = HashMap::new();
        let mut note = |offers: &'r [Offer], need: &dyn Fn(&Offer) -> Need| {
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
            note(claim.offers(), &|offer| match offer.code {
                Cause::OfferSelectedElsewhere => Need::SelectedElsewhere(index),
                _ => Need::Storage(index),
            });
        }
        for (index, volume) in report.inline_volumes.iter().enumerate() {
            note(&volume.offers, &|_| Need::Inline(index));
        }
        Self {
            report,
            claims_tell,
            is_daemon,
            short,
        }
    }

    /// The needs of a node, in the order of the plugins.
    pub(super) fn of(&self, node: &NodeReport) -> Vec<Need> {
        let mut needs = Vec::new();
        for Found { reason, detail } in node.refused.iter().flat_map(|refusal| &refusal.found) {
            match (reason, detail) {
                (Reason::Volume(VolumeReason::BindConflict | VolumeReason::NotEnoughSpace), _) => {
                    needs.extend(self.storage(&node.name));
                }
                (Reason::Unschedulable, _) => needs.push(Need::Cordoned),
                (Reason::UntoleratedTaint, Detail::Taints(taints)) => needs.extend(of_taints(taints)),
                (Reason::NodeAffinity | Reason::NotAmongNodes { .. }, Detail::Demands(unmet)) => {
                    let demands = unmet.iter().map(|unmet| unmet.demand.clone());
                    needs.push(Need::OtherNodes(demands.collect()));
                }
                (Reason::NodeAffinity | Reason::NotAmongNodes { .. }, _) => needs.push(Need::OtherNodes(Vec::new())),
                (reason, _) if resource_of(reason).is_some() => {
                    let resource = resource_of(reason).unwrap_or_default();
                    let too_small = node.too_small.iter().any(|found| found.resource == resource);
                    needs.push(match too_small {
                        true => Need::SmallerPod(resource.to_owned()),
                        false => Need::Room(resource.to_owned()),
                    });
                }
                (reason, _) if is_out_of_reach(reason) && self.reaches_none() => {}
                (reason, _) if is_out_of_reach(reason) && self.is_daemon => needs.extend(self.own_volumes()),
                (reason, _) if is_of_claims(reason) && self.claims_tell => {}
                (reason, _) => needs.push(Need::Reason(reason.clone())),
            }
        }
        // A node that no plugin refuses, but that one leaves out, is not among those that the pod asks for.
        if node.refused.is_empty() && self.report.pre_filter.is_empty() {
            needs.push(Need::OtherNodes(Vec::new()));
        }
        let mut once = Vec::new();
        for need in needs {
            if !once.contains(&need) {
                once.push(need);
            }
        }
        once
    }

    fn storage(&self, node: &str) -> Vec<Need> {
        match self.short.get(node) {
            None => self.of_those_asked(),
            Some(short) if short.is_empty() => vec![Need::StorageTogether],
            Some(short) => short.clone(),
        }
    }

    /// What a node that was not asked is short of: the same as those that were, if they agree.
    fn of_those_asked(&self) -> Vec<Need> {
        let mut asked = self.short.values().filter(|short| !short.is_empty());
        match asked.next() {
            Some(first) if asked.all(|short| short == first) => first.clone(),
            _ => vec![Need::StorageForSome],
        }
    }

    /// Whether the only bound volumes that some node cannot reach are those that no node can: there is a step for their claims.
    fn reaches_none(&self) -> bool {
        let held = self
            .report
            .claims
            .iter()
            .filter(|claim| self.report.is_held_by_its_volume(claim));
        let mut held = held.peekable();
        held.peek().is_some() && held.all(|claim| claim.reaching_nodes() == Some(0))
    }

    /// The bound claims of the pod that not every node can reach.
    fn own_volumes(&self) -> impl Iterator<Item = Need> + '_ {
        let claims = self.report.claims.iter().enumerate();
        let held = claims.filter(|(_, claim)| self.report.is_held_by_its_volume(claim));
        held.map(|(index, _)| Need::OwnVolume(index))
    }
}

fn of_taints(taints: &[Taint]) -> Vec<Need> {
    let among = |keys: &[&str]| -> Vec<Taint> {
        let found = taints.iter().filter(|taint| keys.contains(&taint.key.as_str()));
        found.cloned().collect()
    };
    let known = |key: &str| DOWN.contains(&key) || STATES.contains(&key) || key == names::TAINT_UNSCHEDULABLE;
    let others: Vec<Taint> = taints.iter().filter(|taint| !known(&taint.key)).cloned().collect();
    let mut needs = Vec::new();
    // `kubectl cordon` sets a taint beside the field.
    if taints.iter().any(|taint| taint.key == names::TAINT_UNSCHEDULABLE) {
        needs.push(Need::Cordoned);
    }
    let (down, states) = (among(&DOWN), among(&STATES));
    if !down.is_empty() {
        needs.push(Need::NodeDown(down));
    }
    if !states.is_empty() {
        needs.push(Need::NodeState(states));
    }
    if !others.is_empty() {
        needs.push(Need::Taints(others));
    }
    needs
}

/// Whether a reason says of a node what holds for a claim wherever the pod goes.
pub(super) fn is_of_claims(reason: &Reason) -> bool {
    match reason {
        Reason::Volume(reason) => matches!(
            reason,
            VolumeReason::ClaimNotFound { .. } | VolumeReason::ClaimNotOwned { .. } | VolumeReason::VolumeNotFound
        ),
        Reason::RestrictedClaimNotFound { .. }
        | Reason::CountedClaimNotFound { .. }
        | Reason::CountedClaimNotOwned { .. }
        | Reason::ZonedClaimNotFound { .. }
        | Reason::ZonedClassNotFound { .. }
        | Reason::VolumeNotNamed
        | Reason::ZonedVolumeNotFound { .. } => true,
        _ => false,
    }
}
