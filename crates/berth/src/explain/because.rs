//! Why a pod fits nowhere, in one line and plain words: what its claims lack, or what each node refuses it for.

use super::advice::needs::{is_out_of_reach, says_down};
use super::cause::Cause;
use super::details::{Detail, Taint, resource_of};
use super::layout::names;
use super::report::{ClaimReport, Found, NodeReport, Report};
use berth_core::reason::VolumeReason;
use berth_scheduler::reason::Reason;

/// Maximum number of reasons in the line.
const REASONS_SHOWN: usize = 3;
/// Maximum number of nodes or pods named with a reason.
const NAMES_SHOWN: usize = 2;

/// The line; empty if nothing is known that is not in the verdict.
pub(super) fn because(report: &Report) -> String {
    let broken: Vec<String> = report.claims.iter().filter_map(broken).collect();
    if !broken.is_empty() {
        return broken.join("; ");
    }
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for node in &report.nodes {
        let Some(reason) = of_node(report, node) else { continue };
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, nodes)) => nodes.push(&node.name),
            None => groups.push((reason, vec![&node.name])),
        }
    }
    if groups.is_empty() {
        let early = report.pre_filter.iter().flat_map(|refusal| &refusal.reasons);
        return early.take(1).cloned().collect();
    }
    // Nodes that the pod does not select are expected to refuse it.
    groups.sort_by_key(|(reason, nodes)| (reason == NOT_SELECTED, std::cmp::Reverse(nodes.len())));
    let all = report.nodes.len();
    let more = groups.len() > REASONS_SHOWN;
    let told = groups
        .into_iter()
        .take(REASONS_SHOWN)
        .map(|(reason, nodes)| match nodes.len() == all {
            true => reason,
            false => format!("{reason} ({})", names(&nodes, NAMES_SHOWN)),
        });
    let told = told.collect::<Vec<_>>().join("; ");
    if more {
        format!("{told}; and other reasons")
    } else {
        told
    }
}

const NOT_SELECTED: &str = "the pod selects other nodes";

/// What is wrong with a claim before any node is considered.
fn broken(claim: &ClaimReport) -> Option<String> {
    if matches!(claim.code, Cause::ClaimBound | Cause::ClaimDelayed) {
        return None;
    }
    // What it wants is listed below.
    let problem = &claim.problem;
    // A sentence of its own, or the rest of one.
    let colon = matches!(claim.code, Cause::ClaimClassMissing | Cause::ClaimClassUnknown);
    let colon = if colon { ":" } else { "" };
    Some(format!("claim {}{colon} {problem}", claim.claim))
}

/// The first reason for which a node refuses the pod, as a phrase without the node.
fn of_node(report: &Report, node: &NodeReport) -> Option<String> {
    if node.fits {
        return None;
    }
    let first = node.refused.iter().flat_map(|refusal| &refusal.found).next();
    let Some(Found { reason, detail }) = first else {
        return report.pre_filter.is_empty().then(|| NOT_SELECTED.to_owned());
    };
    Some(match (reason, detail) {
        (Reason::Volume(VolumeReason::BindConflict), _) => storage(report, node, "no volume"),
        (Reason::Volume(VolumeReason::NotEnoughSpace), _) => storage(report, node, "too little free space"),
        (reason, _) if is_out_of_reach(reason) => out_of_reach(report),
        (Reason::Unschedulable, _) => "cordoned".to_owned(),
        (Reason::UntoleratedTaint, Detail::Taints(taints)) => tainted(taints),
        (Reason::NodeAffinity | Reason::NotAmongNodes { .. }, _) => NOT_SELECTED.to_owned(),
        (Reason::ClaimInUse, Detail::HeldBy(pods)) => {
            format!("its ReadWriteOncePod claim is in use by {}", names(pods, NAMES_SHOWN))
        }
        (Reason::TooManyVolumes, Detail::Attached { driver, count, of, .. }) => {
            format!("{count} of at most {of} volumes of {driver} are attached")
        }
        (Reason::TooManyPods, _) => "no room for another pod".to_owned(),
        (Reason::PortsTaken, _) => "its host ports are taken".to_owned(),
        (Reason::PodAffinity, _) => "no pod nearby that it has to be near".to_owned(),
        (Reason::PodAntiAffinity, _) => "pods nearby that it avoids".to_owned(),
        (Reason::ExistingPodsAntiAffinity, _) => "pods nearby that avoid it".to_owned(),
        (Reason::SpreadTooUneven, _) => "its pods would be spread too unevenly".to_owned(),
        (reason, _) => match resource_of(reason) {
            Some(resource) => format!("not enough {resource}"),
            None => reason.to_string().trim_start_matches("node(s) ").to_owned(),
        },
    })
}

/// Which claims find no storage on a node.
fn storage(report: &Report, node: &NodeReport, what: &str) -> String {
    let lacks = |claim: &&ClaimReport| {
        let mut offers = claim.offers().iter().filter(|offer| !offer.suffices);
        offers.any(|offer| offer.nodes.contains(&node.name))
    };
    let lacking: Vec<&str> = report
        .claims
        .iter()
        .filter(lacks)
        .map(|claim| claim.claim.as_str())
        .collect();
    let delayed = report.claims.iter().filter(|claim| claim.is_delayed());
    let delayed: Vec<&str> = delayed.map(|claim| claim.claim.as_str()).collect();
    match (lacking.as_slice(), delayed.as_slice()) {
        ([claim], _) | ([], [claim]) => format!("{what} for claim {claim}"),
        ([], []) => format!("{what} for its inline volumes"),
        ([], claims) => format!("not enough storage for claims {} together", claims.join(", ")),
        (claims, _) => format!("{what} for claims {}", claims.join(", ")),
    }
}

/// Which bound claims keep the pod from some nodes.
fn out_of_reach(report: &Report) -> String {
    let far = report.claims.iter().filter(|claim| report.is_held_by_its_volume(claim));
    match far.map(|claim| claim.claim.as_str()).collect::<Vec<_>>().as_slice() {
        [] => "its volumes are out of reach".to_owned(),
        [claim] => format!("the volume of claim {claim} is out of reach"),
        claims => format!("the volumes of claims {} are out of reach", claims.join(", ")),
    }
}

fn tainted(taints: &[Taint]) -> String {
    if taints.iter().any(|taint| says_down(&taint.key)) {
        return "does not respond".to_owned();
    }
    let taints: Vec<String> = taints.iter().map(Taint::to_string).collect();
    format!("taint {}", names(&taints, NAMES_SHOWN))
}
