//! The words of advice.

use super::needs::{Need, is_out_of_reach};
use crate::explain::cause::Cause;
use crate::explain::report::{ClaimReport, ClaimState, Offer, Report};
use berth_core::names;
use berth_core::quantity::Bytes;
use berth_scheduler::reason::Reason;
use std::collections::HashSet;

/// Whether a claim has to be put right before any node can be considered.
pub(super) fn is_broken(claim: &ClaimReport) -> bool {
    !matches!(claim.code, Cause::ClaimBound | Cause::ClaimDelayed)
}

/// What a claim needs before any node can be considered.
fn claim_step(report: &Report, claim: &ClaimReport) -> String {
    let name = &claim.claim;
    let namespace = report.pod.split_once('/').map_or("default", |(namespace, _)| namespace);
    let class = claim.class.as_deref().unwrap_or_default();
    let (volume, node) = match &claim.state {
        ClaimState::Bound {
            volume, missing_node, ..
        } => (volume.as_str(), missing_node.as_deref()),
        _ => Default::default(),
    };
    match claim.code {
        Cause::ClaimUnknown => format!(
            "have the persistentvolumeclaims read by a user who may: nothing can be told about claim {name} without"
        ),
        Cause::ClaimVolumeUnknown => format!(
            "have the persistentvolumes read by a user who may: where claim {name} can be reached is not known without"
        ),
        Cause::ClaimEphemeralMissing => {
            format!("have claim {namespace}/{name} made by the ephemeral volume controller, with the pod as its owner")
        }
        Cause::ClaimMissing => format!("create claim {namespace}/{name}, or correct the name in the pod"),
        Cause::ClaimLost => format!("restore the volume of claim {name}, or delete the claim and create it anew"),
        Cause::ClaimVolumeMissing => format!("restore the volume of claim {name}, or create the claim anew"),
        Cause::ClaimDeleting => format!("wait until claim {name} is gone, and create it anew"),
        Cause::ClaimNodeMissing => format!(
            "bring {} back: volume {} of claim {name} is there; if it is gone for good, so is the data: delete the claim, and \
             create it anew",
            node.unwrap_or("its node"),
            volume
        ),
        Cause::ClaimOutOfReach => format!(
            "correct the node affinity of volume {} of claim {name}, or the labels of the nodes: no node matches",
            volume
        ),
        Cause::ClaimNoDefaultClass => {
            format!("set `storageClassName` of claim {name}, or make a StorageClass the default one: there is none")
        }
        Cause::ClaimNotOwned => format!("delete or rename claim {name}, so that one can be made for the pod"),
        Cause::ClaimClassMissing => {
            format!("create StorageClass {class}, or create claim {name} anew with a class that exists")
        }
        // The mode of a class that exists cannot be changed.
        Cause::ClaimWaitsForProvisioner | Cause::ClaimWaitsForController | Cause::ClaimClassUnknown => format!(
            "have claim {name} bound to a volume (its events say what keeps it), or create it anew with a class whose \
             `volumeBindingMode` is WaitForFirstConsumer"
        ),
        _ => format!("have claim {name} bound to a volume: its events say what keeps it"),
    }
}

/// That the pod asks for more of a resource than any node has.
fn too_large_step(report: &Report, resource: &str) -> String {
    let small = report.nodes.iter().filter_map(|node| {
        let found = node.too_small.iter().find(|small| small.resource == resource);
        Some((found?, node.name.as_str()))
    });
    let small: Vec<_> = small.collect();
    // Of equals the first.
    match small.iter().rev().max_by_key(|(small, _)| small.amount) {
        Some((largest, name)) if largest.amount > 0 => format!(
            "no node has so much {resource}: the pod asks for {}, and the largest ({name}) has {} in all; add a larger node, \
             or let the pod ask for less",
            largest.wants, largest.has
        ),
        Some((largest, _)) => format!(
            "no node has any {resource}: add one that has {}, or let the pod ask for none",
            largest.wants
        ),
        None => format!("let the pod ask for less {resource}"),
    }
}

/// The nodes of a way.
#[derive(Default)]
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

/// What to do about a need on one of these nodes. `daemon_set` is the one that the pod belongs to.
pub(super) fn step(report: &Report, need: &Need, nodes: &Members<'_>, daemon_set: Option<&str>) -> String {
    let listed = |taints: &[crate::explain::details::Taint]| {
        let taints: Vec<String> = taints.iter().map(ToString::to_string).collect();
        taints.join(", ")
    };
    match need {
        Need::Claim(index) => claim_step(report, &report.claims[*index]),
        Need::TooLarge(resource) => too_large_step(report, resource),
        Need::Storage(index) => {
            let claim = &report.claims[*index];
            format!("provide storage for claim {}: {}", claim.claim, claim.wants)
        }
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
        Need::SelectedElsewhere(index) => selected_step(&report.claims[*index]),
        Need::OwnVolume(index) => {
            let claim = &report.claims[*index];
            format!(
                "give each pod of DaemonSet {} a volume of its own, with `ephemeral.volumeClaimTemplate` in place of claim {}: \
                 it {}",
                daemon_set.unwrap_or_default(),
                claim.claim,
                claim.summary
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
        Need::Cordoned => format!("uncordon it (kubectl uncordon {})", nodes.first),
        Need::NodeDown(taints) => format!("bring it back: it does not answer ({})", listed(taints)),
        Need::NodeState(taints) => format!("wait until it has recovered ({})", listed(taints)),
        Need::Taints(taints) if taints.len() > 1 => {
            format!("let the pod tolerate {}, or remove these taints", listed(taints))
        }
        Need::Taints(taints) => format!("let the pod tolerate {}, or remove the taint", listed(taints)),
        Need::OtherNodes => {
            "give it the labels that the pod's node affinity or selector asks for, or let the pod ask for less"
                .to_owned()
        }
        Need::Reason(reason) => reason_step(report, reason),
    }
}

/// A node that was selected is cleared by the provisioner alone: a volume may be on its way there.
fn selected_step(claim: &ClaimReport) -> String {
    let (name, node) = (&claim.claim, claim.selected_node().unwrap_or_default());
    format!(
        "node {node} is selected for claim {name}, and only its provisioner may change that: it clears the selected node when \
         it cannot make the volume there. If it does not run, take the annotation {} off the claim",
        names::SELECTED_NODE
    )
}

fn reason_step(report: &Report, reason: &Reason) -> String {
    let step = match reason {
        reason if is_out_of_reach(reason) => return move_step(report),
        Reason::DriverNotInstalled { driver } => return format!("install the driver {driver}"),
        Reason::ConflictingAffinityTerms => {
            "correct the pod's node affinity: its terms name nodes that exclude each other"
        }
        Reason::OtherNodeName => "take `spec.nodeName` out of the pod",
        Reason::PortsTaken => "free the pod's host ports, or let the pod use others",
        Reason::TooManyPods => "remove pods, or let it run more",
        Reason::DiskConflict => "stop the pod that uses the same disk",
        Reason::ClaimInUse => "stop the pod that uses the same ReadWriteOncePod claim, wherever it runs",
        Reason::TooManyVolumes => "detach volumes: as many are attached as the driver allows",
        Reason::SpreadLabelMissing => "give it the label that the pod's spread constraints name",
        Reason::SpreadTooUneven => "have more of the counted pods in the domains with the fewest, or raise `maxSkew`",
        Reason::PodAffinity => "run a pod there that this one wants to be near, or relax the pod's affinity",
        Reason::PodAntiAffinity => "relax the pod's anti-affinity to pods near it",
        Reason::ExistingPodsAntiAffinity => "relax the anti-affinity of pods near it to this one",
        reason => return format!("see to this: {reason}"),
    };
    step.to_owned()
}

/// What can be done where the volumes of bound claims cannot be reached.
fn move_step(report: &Report) -> String {
    let held = report.claims.iter().filter(|claim| report.is_held_by_its_volume(claim));
    let held: Vec<String> = held
        .map(|claim| format!("claim {} {}", claim.claim, claim.summary))
        .collect();
    match held.as_slice() {
        [] => "move the data of the pod's volumes there, as they cannot be reached".to_owned(),
        held => format!("move the data there, as {}", held.join(", and ")),
    }
}

/// The size that a claim could ask for instead, with the node that could give it.
pub(super) fn smaller_claim<'r>(
    report: &'r Report,
    index: usize,
    nodes: &Members<'_>,
) -> Option<(&'r ClaimReport, &'r str, i64)> {
    let claim = report.claims.get(index)?;
    let (node, bytes) = largest(claim.offers(), nodes)?;
    (bytes < claim.request_bytes).then_some((claim, node, bytes))
}

pub(super) fn ask_for_less(claim: &ClaimReport, node: &str, bytes: i64) -> String {
    format!(
        ", or let claim {} ask for {}, which {node} could give",
        claim.claim,
        Bytes(bytes)
    )
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

/// Whether a need would not come up on a node that is added.
pub(super) fn calls_for_a_node(need: &Need) -> bool {
    match need {
        Need::Room(_) | Need::SmallerPod(_) | Need::NodeDown(_) => true,
        Need::Reason(reason) => matches!(
            reason,
            Reason::TooManyPods
                | Reason::PortsTaken
                | Reason::TooManyVolumes
                | Reason::PodAntiAffinity
                | Reason::ExistingPodsAntiAffinity
        ),
        _ => false,
    }
}

/// Describes the node that would help.
pub(super) fn another_node<'n>(
    report: &Report,
    needs: impl Iterator<Item = &'n Need>,
    apart: &[String],
    has_storage: bool,
) -> String {
    let needs: Vec<&Need> = needs.collect();
    let mut has = vec!["room for the pod".to_owned()];
    if needs.contains(&&Need::OtherNodes) {
        has.push("the labels that it asks for".to_owned());
    }
    if has_storage {
        has.push("storage for it".to_owned());
    }
    if report.claims.iter().any(|claim| report.is_held_by_its_volume(claim)) {
        has.push("its volumes in reach".to_owned());
    }
    // A node of its own a new node is in any case.
    let apart: Vec<&str> = apart
        .iter()
        .map(String::as_str)
        .filter(|key| *key != names::HOSTNAME)
        .collect();
    if !apart.is_empty() {
        has.push(format!("another {} than the pods that it avoids", apart.join(", ")));
    }
    if needs.contains(&&Need::Reason(Reason::ExistingPodsAntiAffinity)) {
        has.push("none of the pods near that avoid it".to_owned());
    }
    let last = has.pop().unwrap_or_default();
    match has.as_slice() {
        [] => format!("add a node with {last}"),
        others => format!("add a node with {} and {last}", others.join(", ")),
    }
}
