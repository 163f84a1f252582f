//! The wording of advice.

use super::needs::{Need, is_out_of_reach};
use crate::explain::cause::Cause;
use crate::explain::demands::{Demand, Label};
use crate::explain::details::Detail;
use crate::explain::layout::{count as counted, names as list};
use crate::explain::report::{ClaimReport, ClaimState, Offer, Report, TooSmall};
use berth_core::names;
use berth_core::quantity::Bytes;
use berth_scheduler::reason::Reason;
use std::collections::{BTreeSet, HashSet};

/// Maximum number of pods named.
const NAMES_SHOWN: usize = 3;

/// Whether a claim must be fixed before any node can be considered.
pub(super) fn is_broken(claim: &ClaimReport) -> bool {
    !matches!(claim.code, Cause::ClaimBound | Cause::ClaimDelayed)
}

/// What a claim needs before any node can be considered.
fn claim_step(report: &Report, claim: &ClaimReport) -> String {
    let name = &claim.claim;
    let namespace = report.pod.split_once('/').map_or("default", |(namespace, _)| namespace);
    let class = claim.class.as_deref().unwrap_or_default();
    let volume = match &claim.state {
        ClaimState::Bound { volume, .. } => volume.as_str(),
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
        Cause::ClaimMissing => format!("create claim {namespace}/{name}"),
        Cause::ClaimLost | Cause::ClaimVolumeMissing => format!("restore the volume of claim {name}"),
        Cause::ClaimDeleting => format!("wait until claim {name} is deleted, then recreate it"),
        Cause::ClaimNodeMissing => give_up(claim),
        Cause::ClaimOutOfReach => {
            format!("correct the node labels: the node affinity of volume {volume} of claim {name} matches no node")
        }
        Cause::ClaimNoDefaultClass => {
            format!("set `storageClassName` of claim {name}, or mark a StorageClass as default: there is none")
        }
        Cause::ClaimNotOwned => format!("delete claim {name}, so that the pod's own claim can be created"),
        Cause::ClaimClassMissing => format!("create StorageClass {class}"),
        Cause::ClaimClassUnknown => format!(
            "ask someone with list permission for storageclasses to run `berth snapshot`: how claim {name} gets its volume is \
             unknown without them"
        ),
        Cause::ClaimWaitsForController => format!(
            "provide a volume for claim {name}: {}; if there is one, see the claim's events",
            claim.wants
        ),
        _ => format!("get claim {name} bound: see its events"),
    }
}

/// The node that has most of a resource of which no node has enough; the first of equal ones.
fn largest_node<'r>(report: &'r Report, resource: &str) -> Option<(&'r TooSmall, &'r str)> {
    let small = report.nodes.iter().filter_map(|node| {
        let found = node.too_small.iter().find(|small| small.resource == resource);
        Some((found?, node.name.as_str()))
    });
    let small: Vec<_> = small.collect();
    small.into_iter().rev().max_by_key(|(small, _)| small.amount)
}

/// `the pod requests 9 cpu, the largest node (n1) has 4`.
fn too_large(report: &Report, resource: &str) -> String {
    match largest_node(report, resource) {
        Some((largest, name)) if largest.amount > 0 => format!(
            "the pod requests {} {resource}, the largest node ({name}) has {}",
            largest.wants, largest.has
        ),
        Some((none, _)) => format!("the pod requests {} {resource}, which no node has", none.wants),
        None => format!("no node has enough {resource}"),
    }
}

/// What to do about the request for a resource of which no node has enough.
fn too_large_step(report: &Report, resource: &str) -> String {
    match largest_node(report, resource) {
        Some((largest, name)) if largest.amount > 0 => {
            format!(
                "reduce the pod's {resource} request: the largest node ({name}) has {}",
                largest.has
            )
        }
        _ => format!("remove the pod's {resource} request: no node has it"),
    }
}

/// What to do about resources of which no node has enough.
pub(super) fn larger_node(report: &Report, resources: &[&str], beside: &[String]) -> String {
    let problems: Vec<String> = resources.iter().map(|resource| too_large(report, resource)).collect();
    let with = match beside {
        [] => String::new(),
        labels => format!(" with {}", labels.join(", ")),
    };
    format!("add a larger node{with}: {}", problems.join("; "))
}

/// What to do about a bound claim whose volume is on a node that does not exist.
pub(super) fn bring_back(claim: &ClaimReport, node: &str) -> String {
    let volume = match &claim.state {
        ClaimState::Bound { volume, .. } => volume.as_str(),
        _ => "",
    };
    format!("bring {node} back: it has volume {volume} of claim {}", claim.claim)
}

/// What to do about a claim whose data is on a node that does not exist and will not come back.
fn give_up(claim: &ClaimReport) -> String {
    let node = claim.missing_node().unwrap_or("its node");
    format!(
        "if {node} is gone for good, its data is lost: recreate claim {}",
        claim.claim
    )
}

/// What to do about a problem that affects every node if neither a node comes back nor a larger one is added.
pub(super) fn otherwise(report: &Report, need: &Need) -> String {
    match need {
        Need::Claim(index) => give_up(&report.claims[*index]),
        need => step(report, need, &Members::default(), None, None),
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

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'r str> + '_ {
        self.all.iter().copied()
    }

    /// The first of them; empty if there are none.
    pub(super) fn first(&self) -> &'r str {
        self.first
    }
}

/// What to do about a need on one of these nodes. `detail` is that of its reason, `daemon_set` the one that the pod belongs to.
pub(super) fn step(
    report: &Report,
    need: &Need,
    nodes: &Members<'_>,
    detail: Option<&Detail>,
    daemon_set: Option<&str>,
) -> String {
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
            let largest = largest_pool(report, *index, nodes);
            let largest = largest.map_or(String::new(), |(node, bytes)| {
                format!(", the largest pool has {} ({node})", Bytes(bytes))
            });
            format!("free space for the pod's inline volume of {driver}: it requests {wants}{largest}")
        }
        Need::InlinePool(index) => {
            let volume = &report.inline_volumes[*index];
            format!(
                "add a pool of {} with {} for the pod's inline volume: there is none",
                volume.driver,
                Bytes(volume.request_bytes)
            )
        }
        Need::StorageTogether => storage_together(report, nodes),
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
            format!("reduce the pod's {resource} request: the node has only {has}")
        }
        Need::Room(resource) => format!("free {resource}, or reduce the pod's request"),
        Need::Cordoned => format!("uncordon it (kubectl uncordon {})", nodes.first),
        Need::NodeDown(taints) => {
            let mut keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
            keys.dedup();
            format!("bring it back: it does not respond ({})", keys.join(", "))
        }
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
        Need::Reason(reason) => match (detail, reason_step(reason)) {
            (Some(Detail::HeldBy(pods)), _) => format!(
                "stop {}: only one pod may use a ReadWriteOncePod claim",
                list(pods, NAMES_SHOWN)
            ),
            (
                Some(Detail::Attached {
                    driver,
                    count,
                    of,
                    excess,
                    pods,
                }),
                _,
            ) => {
                let pods = match pods.as_slice() {
                    [] => String::new(),
                    pods => format!(", for {}", list(pods, NAMES_SHOWN)),
                };
                format!(
                    "stop pods to detach {} of {driver}: {count} of at most {of} are attached{pods}",
                    counted(*excess, "volume", "volumes")
                )
            }
            (Some(detail), step) => format!("{step} ({detail})"),
            (None, step) => step,
        },
    }
}

/// What to do if each claim would find storage on one of these nodes, but not all of them.
fn storage_together(report: &Report, nodes: &Members<'_>) -> String {
    let has_rivals = |claim: &&ClaimReport| {
        let mut offers = claim.offers().iter().filter(|offer| !offer.rivals.is_empty());
        offers.any(|offer| offer.nodes.iter().any(|node| nodes.all.contains(node.as_str())))
    };
    let rivals = report
        .claims
        .iter()
        .filter(has_rivals)
        .map(|claim| claim.claim.as_str());
    match rivals.collect::<Vec<_>>().as_slice() {
        [] => "add storage: each of the pod's claims fits alone, but not all of them together".to_owned(),
        [one, other] => {
            format!("add storage for one of claims {one} and {other}: what is there suffices for either, not for both")
        }
        claims => format!(
            "add storage for claims {}: what is there suffices for each, not for all of them",
            claims.join(", ")
        ),
    }
}

/// What to do if the pod selects other nodes.
fn other_nodes_step(report: &Report, demands: &[Demand], nodes: &Members<'_>) -> String {
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
            "label it as the pod asks (kubectl label node {} {} --overwrite)",
            nodes.first,
            commands.join(" ")
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
        [] => what_nodes_have(report, &facts),
        [one] => format!(": there is no node {one}"),
        many => format!(": there are no nodes {}", many.join(", ")),
    };
    format!(
        "remove {} from the pod's nodeSelector or node affinity{why}",
        listed(demands)
    )
}

/// If no node at all meets a demand: what nodes have instead.
fn what_nodes_have(report: &Report, facts: &[&Demand]) -> String {
    let lacking = |demand: &Demand| {
        let nodes = report.nodes.iter().map(|node| {
            let mut found = node.refused.iter().flat_map(|refusal| &refusal.found);
            found.find_map(|found| match &found.detail {
                Detail::Demands(unmet) => unmet.iter().find(|unmet| unmet.demand == *demand),
                _ => None,
            })
        });
        nodes.collect::<Option<Vec<_>>>()
    };
    let Some(unmet) = facts.iter().find_map(|demand| lacking(demand)) else {
        return String::new();
    };
    let values = unmet.iter().filter_map(|unmet| unmet.has.as_deref()?.split_once('='));
    let values: BTreeSet<&str> = values.map(|(_, value)| value).collect();
    match values.into_iter().collect::<Vec<_>>().as_slice() {
        [] => ": no node has that label".to_owned(),
        values => format!(": no node has that value (nodes have {})", list(values, NAMES_SHOWN)),
    }
}

fn listed(demands: &[Demand]) -> String {
    demands.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether a node can be labelled so that it meets the demands.
pub(super) fn is_labelled(demands: &[Demand]) -> bool {
    !demands.is_empty() && demands.iter().all(|demand| demand.label().is_some())
}

/// To change the pod instead of the labels of a node.
pub(super) fn or_remove(demands: &[Demand]) -> String {
    format!(
        ", or remove {} from the pod's nodeSelector or node affinity",
        listed(demands)
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
        Reason::PortsTaken => "use other host ports in the pod",
        Reason::TooManyPods => "raise the node's pod limit",
        Reason::DiskConflict => "stop the pod that uses the same disk",
        Reason::ClaimInUse => "stop the pod that uses the same ReadWriteOncePod claim, wherever it runs",
        Reason::TooManyVolumes => "detach volumes: the driver's attach limit is reached",
        Reason::SpreadLabelMissing => "add the label that the pod's spread constraints use",
        Reason::SpreadTooUneven => "raise `maxSkew` of the pod's spread constraints",
        Reason::PodAffinity => "relax the pod's affinity",
        Reason::PodAntiAffinity => "relax the pod's anti-affinity",
        Reason::ExistingPodsAntiAffinity => "relax the anti-affinity of pods near it",
        reason => return format!("resolve: {reason}"),
    };
    step.to_owned()
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

/// The largest pool of these nodes for an inline volume, and its size.
pub(super) fn largest_pool<'r>(report: &'r Report, index: usize, nodes: &Members<'_>) -> Option<(&'r str, i64)> {
    largest(&report.inline_volumes.get(index)?.offers, nodes)
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
    beside: &[String],
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
    has.extend(beside.iter().cloned());
    if needs.contains(&&Need::Reason(Reason::ExistingPodsAntiAffinity)) {
        has.push("no pods nearby that avoid it".to_owned());
    }
    let last = has.pop().unwrap_or_default();
    match has.as_slice() {
        [] => format!("add a node with {last}"),
        others => format!("add a node with {} and {last}", others.join(", ")),
    }
}
