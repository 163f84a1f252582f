//! The words of advice.

use super::Way;
use super::needs::Need;
use crate::explain::claims::MADE_ELSEWHERE;
use crate::explain::details::APART_BY;
use crate::explain::report::{ClaimReport, ClaimState, Offer, Report, TooSmall};
use berth_core::names;
use berth_core::quantity::Bytes;
use std::collections::HashSet;

/// What has to be done whichever node the pod goes to.
pub(super) struct Everywhere<'r> {
    pub(super) steps: Vec<String>,
    /// The resources of which the pod asks for more than any node has.
    pub(super) too_large: Vec<&'r str>,
}

/// Finds what stands against the pod on every node.
pub(super) fn everywhere(report: &Report) -> Everywhere<'_> {
    let claims = report.claims.iter();
    let mut steps: Vec<String> = claims.filter_map(|claim| step_for_claim(report, claim)).collect();
    let mut too_large = Vec::new();
    let first = report.nodes.first().map_or(&[][..], |node| node.too_small.as_slice());
    for TooSmall { resource, wants, .. } in first {
        let found = report.nodes.iter().map(|node| {
            let mut small = node.too_small.iter();
            Some((small.find(|small| small.resource == *resource)?, node.name.as_str()))
        });
        let Some(nodes) = found.collect::<Option<Vec<_>>>() else {
            continue;
        };
        too_large.push(resource.as_str());
        // Of equals the first.
        let largest = nodes.iter().rev().max_by_key(|(small, _)| small.amount);
        let Some((largest, name)) = largest else {
            continue;
        };
        steps.push(match largest.amount {
            0 => format!("no node has any {resource}: add one that has {wants}, or let the pod ask for none"),
            _ => format!(
                "no node has so much {resource}: the pod asks for {wants}, and the largest ({name}) has {} in all; add a \
                 larger node, or let the pod ask for less",
                largest.has
            ),
        });
    }
    if steps.is_empty() {
        let early = report.pre_filter.iter();
        let early = early.flat_map(|refusal| refusal.reason_codes.iter().zip(&refusal.reasons));
        steps.extend(early.map(|(code, reason)| reason_step(report, code, reason, "")));
        steps.dedup();
    }
    Everywhere { steps, too_large }
}

/// What a claim needs before any node can be considered.
fn step_for_claim(report: &Report, claim: &ClaimReport) -> Option<String> {
    let name = &claim.claim;
    let namespace = report.pod.split_once('/').map_or("default", |(namespace, _)| namespace);
    let class = claim.class.as_deref().filter(|class| !class.is_empty());
    Some(match claim.state {
        ClaimState::Unknown => {
            format!(
                "have the persistentvolumeclaims read by a user who may: nothing can be told about claim {name} without"
            )
        }
        ClaimState::Missing if claim.summary.contains("ephemeral") => {
            format!("have claim {namespace}/{name} made by the ephemeral volume controller, with the pod as its owner")
        }
        ClaimState::Missing => format!("create claim {namespace}/{name}, or correct the name in the pod"),
        ClaimState::Lost => format!("restore the volume of claim {name}, or delete the claim and create it anew"),
        ClaimState::Deleting => format!("wait until claim {name} is gone, and create it anew"),
        ClaimState::NotOwned => format!("delete or rename claim {name}, so that one can be made for the pod"),
        ClaimState::Unbound => match class {
            Some(class) if claim.class_missing => {
                format!("create StorageClass {class}, or create claim {name} anew with a class that exists")
            }
            // The mode of a class that exists cannot be changed.
            Some(_) if !claim.summary.contains("waits to be bound to volume") => format!(
                "have claim {name} bound to a volume (its events say what keeps it), or create it anew with a class whose \
                 `volumeBindingMode` is WaitForFirstConsumer"
            ),
            Some(_) | None => format!("have claim {name} bound to a volume: its events say what keeps it"),
        },
        ClaimState::Bound if claim.summary.ends_with("which does not exist") => {
            format!("restore the volume of claim {name}, or create the claim anew")
        }
        ClaimState::Bound if claim.summary.contains("persistentvolumes are not in the input") => {
            format!(
                "have the persistentvolumes read by a user who may: where claim {name} can be reached is not known without"
            )
        }
        ClaimState::Bound | ClaimState::Delayed => return None,
    })
}

/// The nodes of a way.
pub(super) struct Members<'r> {
    first: &'r str,
    all: HashSet<&'r str>,
}

impl<'r> Members<'r> {
    pub(super) fn new(nodes: &[&'r str]) -> Self {
        Self {
            first: nodes.first().copied().unwrap_or_default(),
            all: nodes.iter().copied().collect(),
        }
    }
}

/// What to do about a need on one of these nodes.
pub(super) fn step(report: &Report, need: &Need<'_>, nodes: &Members<'_>) -> String {
    match need {
        Need::Storage(index) => storage_step(report, &report.claims[*index], nodes),
        Need::Inline(index) => {
            let volume = &report.inline_volumes[*index];
            let (driver, wants) = (&volume.driver, Bytes(volume.request_bytes));
            match largest(&volume.offers, nodes) {
                Some((node, largest)) => format!(
                    "make room for the pod's inline volume of {driver}: it asks for {wants}, and the largest pool has {} \
                     ({node}); or let it ask for no more than that",
                    Bytes(largest)
                ),
                None => format!("have {driver} offer {wants} for the pod's inline volume: there is no pool"),
            }
        }
        Need::StorageTogether => {
            "add volumes or storage: each of the pod's volumes would find its place alone, but not all together"
                .to_owned()
        }
        Need::StorageForSome => "provide storage for the pod's claims".to_owned(),
        Need::MadeElsewhere(index) => {
            let claim = &report.claims[*index];
            let mut offers = claim.offers.iter();
            let elsewhere = offers.find_map(|offer| offer.text.strip_prefix(MADE_ELSEWHERE));
            format!(
                "the volume of claim {} is already being made for node {}: take the annotation \
                 volume.kubernetes.io/selected-node off the claim",
                claim.claim,
                elsewhere.unwrap_or_default()
            )
        }
        Need::SmallerPod(resource) => {
            let found = report
                .nodes
                .iter()
                .filter(|node| nodes.all.contains(node.name.as_str()));
            let small = found.flat_map(|node| &node.too_small);
            let largest = small
                .filter(|small| small.resource == *resource)
                .max_by_key(|small| small.amount);
            let has = largest.map_or("0", |small| small.has.as_str());
            format!("let the pod ask for no more {resource} than there is in all: {has}")
        }
        Need::Room(resource) => format!("free {resource}, or let the pod request less of it"),
        Need::Taints(taints) if taints.contains(", ") => {
            format!("let the pod tolerate {taints}, or remove these taints")
        }
        Need::Taints(taint) => format!("let the pod tolerate {taint}, or remove the taint"),
        Need::Reason(code, reason) => reason_step(report, code, reason, nodes.first),
    }
}

fn reason_step(report: &Report, code: &str, reason: &str, first: &str) -> String {
    let step = match code {
        "NodeUnschedulable.Unschedulable" => return format!("uncordon it (kubectl uncordon {first})"),
        "VolumeBinding.NodeConflict" | "VolumeZone.Conflict" => return move_step(report),
        "NodeVolumeLimits.DriverNotInstalled" => {
            let driver = reason.split(' ').next().unwrap_or("of the pod's volumes");
            return format!("install the driver {driver}");
        }
        "NodeAffinity.ConflictingTerms" => {
            "correct the pod's node affinity: its terms name nodes that exclude each other"
        }
        "NodeName.OtherNode" => "take `spec.nodeName` out of the pod",
        "NodeAffinity.Mismatch" | "Framework.OnlyNodes" => {
            "give it the labels that the pod's node affinity or selector asks for, or let the pod ask for less"
        }
        "NodePorts.Taken" => "free the pod's host ports, or let the pod use others",
        "NodeResourcesFit.TooManyPods" => "remove pods, or let it run more",
        "VolumeRestrictions.DiskConflict" => "stop the pod that uses the same disk",
        "VolumeRestrictions.ClaimInUse" => "stop the pod that uses the same ReadWriteOncePod claim, wherever it runs",
        "NodeVolumeLimits.TooManyVolumes" => "detach volumes: as many are attached as the driver allows",
        "PodTopologySpread.MissingLabel" => "give it the label that the pod's spread constraints name",
        "PodTopologySpread.Skew" => "have more of the counted pods in the domains with the fewest, or raise `maxSkew`",
        "InterPodAffinity.Affinity" => "run a pod there that this one wants to be near, or relax the pod's affinity",
        "InterPodAffinity.AntiAffinity" => "relax the pod's anti-affinity to pods near it",
        "InterPodAffinity.ExistingPods" => "relax the anti-affinity of pods near it to this one",
        _ => return format!("see to this: {reason}"),
    };
    step.to_owned()
}

/// What can be done where the volumes of bound claims cannot be reached.
fn move_step(report: &Report) -> String {
    let bound = report.claims.iter().filter(|claim| claim.state == ClaimState::Bound);
    let held = bound.filter(|claim| is_held_by_its_volume(claim));
    let held: Vec<String> = held
        .map(|claim| format!("claim {} {}", claim.claim, claim.summary))
        .collect();
    match held.as_slice() {
        [] => "move the data of the pod's volumes there, as they cannot be reached".to_owned(),
        held => format!("move the data there, as {}", held.join(", and ")),
    }
}

fn is_held_by_its_volume(claim: &ClaimReport) -> bool {
    claim.summary.contains(" can reach") && !claim.summary.contains("every node")
}

fn storage_step(report: &Report, claim: &ClaimReport, nodes: &Members<'_>) -> String {
    let name = &claim.claim;
    let wanted = claim.summary.strip_prefix("wants ").unwrap_or(&claim.summary);
    // What one claim could have, another one of the class may be about to take.
    let delayed = report.claims.iter().filter(|other| other.state == ClaimState::Delayed);
    let rivals = delayed.filter(|other| other.class == claim.class).count() > 1;
    let less = largest(&claim.offers, nodes).filter(|(_, bytes)| *bytes < claim.request_bytes && !rivals);
    let or_less = less.map_or(String::new(), |(node, bytes)| {
        format!(
            ", or let claim {name} ask for {}, which {node} could give",
            Bytes(bytes)
        )
    });
    format!("provide storage for claim {name}: {wanted}{or_less}")
}

/// The node of these that could give the largest volume, and how large that is, of offers that do not suffice.
fn largest<'r>(offers: &'r [Offer], nodes: &Members<'_>) -> Option<(&'r str, i64)> {
    let short = offers.iter().filter(|offer| !offer.suffices);
    let known = short.filter_map(|offer| Some((offer, offer.largest_bytes.filter(|bytes| *bytes > 0)?)));
    let here = known.filter_map(|(offer, bytes)| {
        let node = offer.nodes.iter().find(|node| nodes.all.contains(node.as_str()))?;
        Some((node.as_str(), bytes))
    });
    // Of equals the first.
    here.fold(None, |best: Option<(&str, i64)>, found| match best {
        Some((_, bytes)) if bytes >= found.1 => best,
        _ => Some(found),
    })
}

/// That another node would help, where the ones there are too full or too near to others.
pub(super) fn another_node(report: &Report, ways: &[Way<'_>]) -> Option<String> {
    let full = |need: &Need<'_>| match need {
        Need::Room(_) | Need::SmallerPod(_) => true,
        Need::Reason(code, _) => matches!(
            *code,
            "NodeResourcesFit.TooManyPods"
                | "NodePorts.Taken"
                | "NodeVolumeLimits.TooManyVolumes"
                | "InterPodAffinity.AntiAffinity"
                | "InterPodAffinity.ExistingPods"
        ),
        _ => false,
    };
    // Where it is a matter of other pods or of volumes elsewhere, there is no saying what a new node would change.
    let elsewhere = |need: &Need<'_>| match need {
        Need::MadeElsewhere(_) => true,
        Need::Reason(code, _) => matches!(
            *code,
            "VolumeBinding.NodeConflict"
                | "VolumeZone.Conflict"
                | "PodTopologySpread.Skew"
                | "InterPodAffinity.Affinity"
                | "NodeName.OtherNode"
        ),
        _ => false,
    };
    let nearest = &ways.first()?.needs;
    if !nearest.iter().any(full) || nearest.iter().any(elsewhere) {
        return None;
    }
    let any = |found: &dyn Fn(&Need<'_>) -> bool| ways.iter().flat_map(|way| &way.needs).any(found);
    let mut has = vec!["room for the pod"];
    if any(&|need| matches!(need, Need::Reason("NodeAffinity.Mismatch", _))) {
        has.push("the labels that it asks for");
    }
    if report.claims.iter().any(|claim| claim.state == ClaimState::Delayed) || !report.inline_volumes.is_empty() {
        has.push("storage for it");
    }
    if report.claims.iter().any(is_held_by_its_volume) {
        has.push("its volumes in reach");
    }
    let details = report.nodes.iter().flat_map(|node| &node.refused);
    let mut details = details.flat_map(|refusal| &refusal.details);
    let apart = details.find_map(|detail| detail.strip_prefix(APART_BY));
    // A node of its own a new node is in any case.
    let apart = apart.filter(|keys| *keys != names::HOSTNAME);
    let apart = apart.map(|keys| format!("another {keys} than the pods that it avoids"));
    has.extend(apart.as_deref());
    if any(&|need| matches!(need, Need::Reason("InterPodAffinity.ExistingPods", _))) {
        has.push("none of the pods near that avoid it");
    }
    let last = has.pop()?;
    Some(match has.as_slice() {
        [] => format!("add a node with {last}"),
        others => format!("add a node with {} and {last}", others.join(", ")),
    })
}
