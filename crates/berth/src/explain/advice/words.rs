//! The wording of advice.

use super::needs::{Need, is_out_of_reach};
use crate::explain::cause::Cause;
use crate::explain::demands::{Demand, Label};
use crate::explain::report::{ClaimReport, ClaimState, Offer, Report};
use berth_core::names;
use berth_core::quantity::Bytes;
use berth_scheduler::reason::Reason;
use std::collections::HashSet;

/// Whether a claim must be fixed before any node can be considered.
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
            "ask someone with list permission for persistentvolumeclaims to run `berth snapshot`: claim {name} is unknown \
             without them"
        ),
        Cause::ClaimVolumeUnknown => format!(
            "ask someone with list permission for persistentvolumes to run `berth snapshot`: which nodes reach claim {name} is \
             unknown without them"
        ),
        Cause::ClaimEphemeralMissing => {
            format!(
                "wait for the ephemeral volume controller to create claim {namespace}/{name} for the pod; if it does not, see the pod's events"
            )
        }
        Cause::ClaimMissing => format!("create claim {namespace}/{name}, or correct the name in the pod"),
        Cause::ClaimLost => format!("restore the volume of claim {name}, or recreate the claim"),
        Cause::ClaimVolumeMissing => format!("restore the volume of claim {name}, or recreate the claim"),
        Cause::ClaimDeleting => format!("wait until claim {name} is deleted, then recreate it"),
        Cause::ClaimNodeMissing => format!(
            "bring {} back: it has volume {} of claim {name}; if the node is gone for good, the data is lost: recreate the claim",
            node.unwrap_or("its node"),
            volume
        ),
        Cause::ClaimOutOfReach => format!(
            "fix the node labels, or recreate volume {} of claim {name}: its node affinity matches no node",
            volume
        ),
        Cause::ClaimNoDefaultClass => {
            format!("set `storageClassName` of claim {name}, or mark a StorageClass as default: there is none")
        }
        Cause::ClaimNotOwned => format!("delete or rename claim {name}, so that the pod's own claim can be created"),
        Cause::ClaimClassMissing => {
            format!("create StorageClass {class}, or recreate claim {name} with a class that exists")
        }
        Cause::ClaimClassUnknown => format!(
            "ask someone with list permission for storageclasses to run `berth snapshot`: how claim {name} gets its volume is \
             unknown without them"
        ),
        Cause::ClaimWaitsForController => format!(
            "provide a volume for claim {name}: {}; if there is one, see the claim's events",
            claim.wants
        ),
        // The binding mode of an existing class cannot be changed.
        Cause::ClaimWaitsForProvisioner => format!(
            "get claim {name} bound (see its events), or recreate it with a class whose `volumeBindingMode` is \
             WaitForFirstConsumer"
        ),
        _ => format!("get claim {name} bound: see its events"),
    }
}

/// Reports that the pod requests more of a resource than any node has.
fn too_large_step(report: &Report, resource: &str) -> String {
    let small = report.nodes.iter().filter_map(|node| {
        let found = node.too_small.iter().find(|small| small.resource == resource);
        Some((found?, node.name.as_str()))
    });
    let small: Vec<_> = small.collect();
    // The first of equal ones.
    match small.iter().rev().max_by_key(|(small, _)| small.amount) {
        Some((largest, name)) if largest.amount > 0 => format!(
            "no node has enough {resource}: the pod requests {}, the largest node ({name}) has {}; add a larger node, or reduce \
             the request",
            largest.wants, largest.has
        ),
        Some((largest, _)) => format!(
            "no node has {resource}: add a node with {}, or remove the request",
            largest.wants
        ),
        None => format!("reduce the pod's {resource} request"),
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

    /// The first of them; empty if there are none.
    pub(super) fn first(&self) -> &'r str {
        self.first
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
                    "free space for the pod's inline volume of {driver}: it requests {wants}, the largest pool has {} ({node}); or \
                     reduce the request to that",
                    Bytes(largest)
                ),
                None => format!("add a pool of {driver} with {wants} for the pod's inline volume: there is none"),
            }
        }
        Need::StorageTogether => {
            "add storage: each of the pod's claims fits alone, but not all of them together".to_owned()
        }
        Need::StorageForSome => "provide storage for the pod's claims".to_owned(),
        Need::SelectedElsewhere(index) => selected_step(report, &report.claims[*index]),
        Need::Move(index) => {
            let claim = &report.claims[*index];
            format!("move the data there: claim {} {}", claim.claim, claim.summary)
        }
        Need::OwnVolume(index) => {
            let claim = &report.claims[*index];
            format!(
                "give each pod of DaemonSet {} its own volume with `ephemeral.volumeClaimTemplate` instead of claim {}: that claim \
                 {}",
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
            format!("reduce the pod's {resource} request to {has}, which is all the node has")
        }
        Need::Room(resource) => format!("free {resource}, or reduce the pod's request"),
        Need::Cordoned => format!("uncordon it (kubectl uncordon {})", nodes.first),
        Need::NodeDown(taints) => format!("bring it back: it does not respond ({})", listed(taints)),
        Need::NodeState(taints) => format!("wait until it recovers ({})", listed(taints)),
        Need::Taints(taints) if taints.len() > 1 => {
            format!(
                "add tolerations for {} to the pod, or remove these taints",
                listed(taints)
            )
        }
        Need::Taints(taints) => format!(
            "add a toleration for {} to the pod, or remove the taint",
            listed(taints)
        ),
        Need::OtherNodes(demands) => other_nodes_step(report, demands, nodes),
        // The first is worded where the volume is known; nobody can resolve the second.
        Need::Volume(..) | Need::AttachLimit => String::new(),
        Need::Reason(reason) => match (reason_step(reason), common_detail(report, reason, nodes)) {
            (step, Some(detail)) => format!("{step} ({detail})"),
            (step, None) => step,
        },
    }
}

/// What to do if the pod selects other nodes.
fn other_nodes_step(report: &Report, demands: &[Demand], nodes: &Members<'_>) -> String {
    let listed = |demands: &[&Demand]| demands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let all: Vec<&Demand> = demands.iter().collect();
    let (labels, facts): (Vec<&Demand>, Vec<&Demand>) = demands.iter().partition(|demand| demand.label().is_some());
    if demands.is_empty() {
        return "change the pod's nodeSelector or node affinity, which ask for other nodes".to_owned();
    }
    if facts.is_empty() {
        let commands: Vec<String> = labels
            .iter()
            .filter_map(|demand| demand.label())
            .map(|label| match label {
                Label::Set(key, value) => format!("{key}={value}"),
                Label::Remove(key) => format!("{key}-"),
            })
            .collect();
        return format!(
            "label it as the pod asks (kubectl label node {} {} --overwrite), or remove {} from the pod's nodeSelector or node \
             affinity",
            nodes.first,
            commands.join(" "),
            listed(&all)
        );
    }
    let exists = |name: &String| report.nodes.iter().any(|node| node.name == *name);
    let missing = facts.iter().filter_map(|demand| demand.named_nodes());
    let missing: Vec<&str> = missing
        .filter(|names| !names.iter().any(exists))
        .flatten()
        .map(String::as_str)
        .collect();
    let why = match missing.as_slice() {
        [] => String::new(),
        [one] => format!(": there is no node {one}"),
        many => format!(": there are no nodes {}", many.join(", ")),
    };
    format!(
        "remove {} from the pod's nodeSelector or node affinity{why}",
        listed(&all)
    )
}

/// Only the provisioner clears a selected node: a volume may be in progress there.
fn selected_step(report: &Report, claim: &ClaimReport) -> String {
    let (name, node) = (&claim.claim, claim.selected_node().unwrap_or_default());
    if !report.nodes.iter().any(|known| known.name == node) {
        return format!(
            "remove the annotation {} from claim {name}, unless its provisioner does so: it selects node {node}, which does not \
             exist",
            names::SELECTED_NODE
        );
    }
    format!(
        "node {node} is selected for claim {name}, and only the provisioner may change that: it clears the selection when it \
         cannot create the volume there. If the provisioner is not running, remove the annotation {} from the claim",
        names::SELECTED_NODE
    )
}

fn reason_step(reason: &Reason) -> String {
    let step = match reason {
        reason if is_out_of_reach(reason) => "move the data of the pod's volumes there: they cannot be reached from it",
        Reason::DriverNotInstalled { driver } => return format!("install the driver {driver}"),
        Reason::ConflictingAffinityTerms => "fix the pod's node affinity: its terms exclude each other",
        Reason::OtherNodeName => "remove `spec.nodeName` from the pod",
        Reason::PortsTaken => "free the host ports, or use other ports in the pod",
        Reason::TooManyPods => "remove pods, or raise the node's pod limit",
        Reason::DiskConflict => "stop the pod that uses the same disk",
        Reason::ClaimInUse => "stop the pod that uses the same ReadWriteOncePod claim, wherever it runs",
        Reason::TooManyVolumes => "detach volumes: the driver's attach limit is reached",
        Reason::SpreadLabelMissing => "add the label that the pod's spread constraints use",
        Reason::SpreadTooUneven => "run more matching pods in the other domains, or raise `maxSkew`",
        Reason::PodAffinity => "run a matching pod there, or relax the pod's affinity",
        Reason::PodAntiAffinity => "relax the pod's anti-affinity",
        Reason::ExistingPodsAntiAffinity => "relax the anti-affinity of pods near it",
        reason => return format!("resolve: {reason}"),
    };
    step.to_owned()
}

/// The missing details of a reason, if they are the same on all of these nodes.
fn common_detail(report: &Report, reason: &Reason, nodes: &Members<'_>) -> Option<String> {
    let members = report
        .nodes
        .iter()
        .filter(|node| nodes.all.contains(node.name.as_str()));
    let mut details = members.map(|node| {
        let found = node.refused.iter().flat_map(|refusal| &refusal.found);
        found
            .filter(|found| found.reason == *reason)
            .map(|found| &found.detail)
            .next()
    });
    let first = details.next()??;
    let is_same = details.all(|detail| detail == Some(first));
    Some(first.to_string()).filter(|text| is_same && !text.is_empty())
}

/// The size that a claim could request instead, with the node that could provide it.
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
        ", or reduce claim {} to {}, which {node} has",
        claim.claim,
        Bytes(bytes)
    )
}

/// Of insufficient offers, the one of these nodes with the largest volume, and its size.
fn largest<'r>(offers: &'r [Offer], nodes: &Members<'_>) -> Option<(&'r str, i64)> {
    let short = offers.iter().filter(|offer| !offer.suffices);
    let known = short.filter_map(|offer| Some((offer, offer.largest_bytes.filter(|bytes| *bytes > 0)?)));
    let here = known.filter_map(|(offer, bytes)| {
        let node = offer.nodes.iter().find(|node| nodes.all.contains(node.as_str()))?;
        Some((node.as_str(), bytes))
    });
    // The first of equal ones.
    here.fold(None, |best: Option<(&str, i64)>, found| match best {
        Some((_, bytes)) if bytes >= found.1 => best,
        _ => Some(found),
    })
}

/// Whether a need would not exist on a new node.
pub(super) fn calls_for_a_node(need: &Need) -> bool {
    match need {
        Need::Room(_) | Need::SmallerPod(_) | Need::NodeDown(_) | Need::AttachLimit => true,
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
    let demands = needs.iter().find_map(|need| match need {
        Need::OtherNodes(demands) => Some(demands.iter().map(Demand::to_string).collect::<Vec<_>>()),
        _ => None,
    });
    match demands.as_deref() {
        None => {}
        Some([]) => has.push("the labels that it asks for".to_owned()),
        Some(demands) => has.push(demands.join(", ")),
    }
    if has_storage {
        has.push("storage for it".to_owned());
    }
    if report.claims.iter().any(|claim| report.is_held_by_its_volume(claim)) {
        has.push("access to its volumes".to_owned());
    }
    // A new node is in any case a separate node.
    let apart: Vec<&str> = apart
        .iter()
        .map(String::as_str)
        .filter(|key| *key != names::HOSTNAME)
        .collect();
    if !apart.is_empty() {
        has.push(format!("a different {} from the pods it avoids", apart.join(", ")));
    }
    if needs.contains(&&Need::Reason(Reason::ExistingPodsAntiAffinity)) {
        has.push("no pods nearby that avoid it".to_owned());
    }
    let last = has.pop().unwrap_or_default();
    match has.as_slice() {
        [] => format!("add a node with {last}"),
        others => format!("add a node with {} and {last}", others.join(", ")),
    }
}
