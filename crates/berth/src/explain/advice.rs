//! What would help: concrete steps, taken from the reasons for which nodes refuse the pod.
//!
//! A step is worth the more, the more nodes would fit if it alone were taken.

use super::layout::names;
use super::report::{ClaimReport, ClaimState, Report};
use berth_core::quantity::Bytes;
use std::collections::BTreeMap;

/// How many steps are listed. More is a list of everything, not advice.
const STEPS_MAX: usize = 6;
/// How many nodes are named in a step.
const NAMES_SHOWN: usize = 3;

/// The nodes that refuse the pod for a reason.
#[derive(Default)]
struct Refusing<'r> {
    nodes: Vec<&'r str>,
    /// Those of them that refuse it for nothing else.
    alone: Vec<&'r str>,
}

/// Lists what would help a pod that fits nowhere.
pub(super) fn steps(report: &Report) -> Vec<String> {
    if report.schedulable {
        return Vec::new();
    }
    if report.nodes.is_empty() {
        return vec!["add Node objects to the input: without nodes there is nothing to decide".to_owned()];
    }
    let mut steps: Vec<String> = report
        .claims
        .iter()
        .filter_map(|claim| step_for_claim(report, claim))
        .collect();
    let mut by_reason: Vec<_> = refusing_nodes(report).into_iter().collect();
    by_reason.sort_by_key(|(_, refusing)| std::cmp::Reverse((refusing.alone.len(), refusing.nodes.len())));
    for (why, refusing) in by_reason {
        for step in steps_for_reason(report, why, &refusing) {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    steps.truncate(STEPS_MAX);
    steps
}

/// A reason: its stable code, its words, and what keeps it apart from the same reason elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Why<'r> {
    code: &'r str,
    reason: &'r str,
    detail: &'r str,
}

fn refusing_nodes(report: &Report) -> BTreeMap<Why<'_>, Refusing<'_>> {
    let mut by_reason: BTreeMap<Why<'_>, Refusing<'_>> = BTreeMap::new();
    for node in &report.nodes {
        let reasons: usize = node.refused.iter().map(|refusal| refusal.reasons.len()).sum();
        for refusal in &node.refused {
            let codes = refusal.reason_codes.iter().zip(&refusal.details);
            for (reason, (code, detail)) in refusal.reasons.iter().zip(codes) {
                // Each taint is a step of its own; how much is left of a resource is not.
                let apart = code == "TaintToleration.UntoleratedTaint";
                let why = Why {
                    code,
                    reason,
                    detail: if apart { detail } else { "" },
                };
                let refusing = by_reason.entry(why).or_default();
                refusing.nodes.push(&node.name);
                if reasons == 1 {
                    refusing.alone.push(&node.name);
                }
            }
        }
    }
    by_reason
}

/// What a claim needs before any node can be considered.
fn step_for_claim(report: &Report, claim: &ClaimReport) -> Option<String> {
    let name = &claim.claim;
    let namespace = report.pod.split_once('/').map_or("default", |(namespace, _)| namespace);
    Some(match claim.state {
        ClaimState::Missing if claim.summary.contains("ephemeral") => {
            format!("have claim {namespace}/{name} made by the ephemeral volume controller, with the pod as its owner")
        }
        ClaimState::Missing => format!("create claim {namespace}/{name}, or correct the name in the pod"),
        ClaimState::Lost => format!("restore the volume of claim {name}, or delete the claim and create it anew"),
        ClaimState::Deleting => format!("wait until claim {name} is gone, and create it anew"),
        ClaimState::NotOwned => format!("delete or rename claim {name}, so that one can be made for the pod"),
        ClaimState::Unbound => {
            let class = claim.class.as_deref().filter(|class| !class.is_empty());
            let delay = class.map_or(String::new(), |class| {
                format!(", or give class {class} `volumeBindingMode: WaitForFirstConsumer`")
            });
            format!("have claim {name} bound to a volume{delay}")
        }
        ClaimState::Bound | ClaimState::Delayed => return None,
    })
}

/// The steps for a reason for which nodes refuse the pod. Reasons that a claim's own step deals with have none.
fn steps_for_reason(report: &Report, why: Why<'_>, refusing: &Refusing<'_>) -> Vec<String> {
    // Nodes that would fit at once are worth naming before those that would not.
    let named = if refusing.alone.is_empty() {
        &refusing.nodes
    } else {
        &refusing.alone
    };
    let nodes = names(named, NAMES_SHOWN);
    let on = if named.len() == 1 {
        format!("on {nodes}")
    } else {
        format!("on one of {nodes}")
    };
    let step = match why.code {
        "VolumeBinding.NodeConflict" => return out_of_reach_steps(report),
        "VolumeBinding.VolumeNotFound" => return gone_volume_steps(report),
        "VolumeBinding.BindConflict" | "VolumeBinding.NotEnoughSpace" => return storage_steps(report, refusing, &on),
        "NodeUnschedulable.Unschedulable" => format!("uncordon a node: kubectl uncordon {}", named[0]),
        "NodeName.OtherNode" => "take `spec.nodeName` out of the pod, or name a node that fits".to_owned(),
        "TaintToleration.UntoleratedTaint" => format!("let the pod tolerate {}, or remove it {on}", why.detail),
        "NodeAffinity.Mismatch" => {
            format!(
                "give a node the labels that the pod's node affinity or selector asks for ({nodes}), or ask for less"
            )
        }
        "NodePorts.Taken" => format!("free the pod's host ports {on}, or let the pod use others"),
        "NodeResourcesFit.TooManyPods" => format!("remove pods {on}, let it run more, or add a node"),
        "VolumeRestrictions.DiskConflict" | "VolumeRestrictions.ClaimInUse" => {
            format!("stop the pod that uses the same disk or ReadWriteOncePod claim ({nodes})")
        }
        "NodeVolumeLimits.TooManyVolumes" => {
            format!("detach volumes {on}, or add a node: as many are attached as the driver allows")
        }
        "NodeVolumeLimits.DriverNotInstalled" => format!("install the driver of the pod's volumes {on}"),
        "VolumeZone.Conflict" => format!("make room in the zone of the pod's volumes, in which {nodes} is not"),
        "PodTopologySpread.MissingLabel" => {
            format!("give {nodes} the label that the pod's spread constraints name")
        }
        "PodTopologySpread.Skew" => "add nodes in the domains with the fewest pods, or raise `maxSkew`".to_owned(),
        "InterPodAffinity.Affinity" => "run a pod that this one wants to be near, or relax its affinity".to_owned(),
        "InterPodAffinity.AntiAffinity" => format!("relax the pod's anti-affinity to pods near {nodes}, or add a node"),
        "InterPodAffinity.ExistingPods" => format!("relax the anti-affinity of pods near {nodes}, or add a node"),
        code if code.starts_with("NodeResourcesFit.Insufficient") => {
            let resource = why.reason.strip_prefix("Insufficient ").unwrap_or(why.reason);
            format!("free {resource} {on}, add a node, or let the pod request less {resource}")
        }
        _ => return Vec::new(),
    };
    vec![step]
}

fn out_of_reach_steps(report: &Report) -> Vec<String> {
    let bound = report.claims.iter().filter(|claim| claim.state == ClaimState::Bound);
    bound
        .filter(|claim| claim.summary.contains(" can reach") && !claim.summary.contains("every node"))
        .map(|claim| {
            let (name, summary) = (&claim.claim, &claim.summary);
            format!("claim {name} {summary}: make the pod fit there, or move the data")
        })
        .collect()
}

fn gone_volume_steps(report: &Report) -> Vec<String> {
    let bound = report.claims.iter().filter(|claim| claim.state == ClaimState::Bound);
    bound
        .filter(|claim| claim.summary.contains("does not exist"))
        .map(|claim| format!("restore the volume of claim {}, or create the claim anew", claim.claim))
        .collect()
}

fn storage_steps(report: &Report, refusing: &Refusing<'_>, on: &str) -> Vec<String> {
    let delayed = report.claims.iter().filter(|claim| claim.state == ClaimState::Delayed);
    let mut steps: Vec<String> = delayed
        .filter_map(|claim| larger_volume_step(claim, refusing, on))
        .collect();
    if steps.is_empty() {
        steps.push(format!(
            "add volumes or storage {on}: each claim would find its place alone, but not all together"
        ));
    }
    steps
}

fn larger_volume_step(claim: &ClaimReport, refusing: &Refusing<'_>, on: &str) -> Option<String> {
    let here = |node: &String| refusing.nodes.contains(&node.as_str());
    let short = claim.offers.iter().filter(|offer| !offer.suffices);
    let short: Vec<_> = short.filter(|offer| offer.nodes.iter().any(here)).collect();
    if short.is_empty() {
        return None;
    }
    let at_once = |node: &String| refusing.alone.contains(&node.as_str());
    let best = short
        .iter()
        .filter(|offer| {
            offer
                .largest_bytes
                .is_some_and(|bytes| bytes > 0 && bytes < claim.request_bytes)
        })
        .max_by_key(|offer| (offer.nodes.iter().any(at_once), offer.largest_bytes));
    let or_less = best.map_or(String::new(), |offer| {
        let largest = Bytes(offer.largest_bytes.unwrap_or(0));
        format!(
            ", or let claim {} ask for {largest}, which {} could give",
            claim.claim,
            offer.nodes.iter().find(|node| at_once(node)).unwrap_or(&offer.nodes[0])
        )
    });
    let wanted = claim.summary.strip_prefix("wants ").unwrap_or(&claim.summary);
    Some(format!(
        "provide storage for claim {} {on}: {wanted}{or_less}",
        claim.claim
    ))
}
