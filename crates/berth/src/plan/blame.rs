//! Why a pod of a simulation has no node, as data: why each node refuses it, the state of its claims, and what would
//! help.

use crate::explain::cause::Cause;
use crate::explain::explain_pod;
use crate::explain::report::{ClaimReport, Refusal, Report};
use crate::input::Gaps;
use crate::simulate::pending::world_of;
use berth_cluster::simulation::Simulation;
use berth_core::api::Object;
use berth_plan::{Played, Standing};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Why a pod does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Blame {
    /// `namespace/name`.
    pub pod: String,
    /// The reason, in kube-scheduler's format.
    pub message: String,
    /// Why nodes refuse it; a node is listed with each of its reasons.
    pub refused: Vec<RefusedNodes>,
    /// Its claims.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<BlamedClaim>,
    /// What would help.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advice: Vec<String>,
}

/// Nodes that refuse a pod for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct RefusedNodes {
    /// The plugin, as named in kube-scheduler.
    pub plugin: String,
    /// The stable code of the reason.
    pub code: String,
    /// The reason as worded by kube-scheduler, with the missing details.
    pub reason: String,
    /// The nodes, by name.
    pub nodes: Vec<String>,
}

/// The state of a claim of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct BlamedClaim {
    /// Its name.
    pub claim: String,
    /// The stable code of its state.
    pub code: Cause,
    /// As text.
    pub summary: String,
}

/// The first pod that waits in a simulation and did not wait before, and why. If none is new, others wait behind one that waited
/// before.
pub(super) fn first_new(played: &Played, before: &Standing, gaps: &Gaps) -> Option<Blame> {
    let known: BTreeSet<&str> = before.waiting.iter().map(|waiting| &*waiting.pod).collect();
    let waiting = &played.standing.waiting;
    let new = waiting.iter().find(|waiting| !known.contains(&*waiting.pod));
    let first = new.or(waiting.first())?;
    Some(of_pod(&played.simulation, &first.pod, &first.message, gaps))
}

/// Why a pod of a simulation waits.
pub(super) fn of_pod(simulation: &Simulation, pod: &str, message: &str, gaps: &Gaps) -> Blame {
    let mut blame = Blame {
        pod: pod.to_owned(),
        message: message.to_owned(),
        refused: Vec::new(),
        claims: Vec::new(),
        advice: Vec::new(),
    };
    let named = pod.split_once('/');
    let found = named.and_then(|(namespace, name)| simulation.objects().get("Pod", namespace, name));
    let Some(Ok(Some(Object::Pod(pod)))) = found.map(Object::decode) else {
        return blame;
    };
    let profile = simulation.settings().profile_of(&pod);
    if let Some(profile) = profile.filter(|_| pod.spec.node_name.is_empty()) {
        let mut world = world_of(simulation, gaps);
        let report = explain_pod(&mut world, &pod, profile);
        blame.refused = refused(&report);
        blame.claims = report.claims.iter().map(blamed_claim).collect();
        blame.advice = report.advice;
    }
    blame
}

fn blamed_claim(claim: &ClaimReport) -> BlamedClaim {
    BlamedClaim {
        claim: claim.claim.clone(),
        code: claim.code,
        summary: claim.summary.clone(),
    }
}

/// The refusals of a report by reason, most nodes first.
fn refused(report: &Report) -> Vec<RefusedNodes> {
    let mut by_reason: BTreeMap<(&str, &str, String), Vec<String>> = BTreeMap::new();
    for node in &report.nodes {
        let whole = report.pre_filter.iter();
        for (plugin, code, reason) in node.refused.iter().chain(whole).flat_map(reasons) {
            by_reason
                .entry((plugin, code, reason))
                .or_default()
                .push(node.name.clone());
        }
    }
    let named = by_reason
        .into_iter()
        .map(|((plugin, code, reason), nodes)| RefusedNodes {
            plugin: plugin.to_owned(),
            code: code.to_owned(),
            reason,
            nodes,
        });
    let mut all: Vec<RefusedNodes> = named.collect();
    all.sort_by_key(|refused| std::cmp::Reverse(refused.nodes.len()));
    all
}

fn reasons(refusal: &Refusal) -> impl Iterator<Item = (&str, &str, String)> {
    let details = refusal.details.iter().map(String::as_str).chain(std::iter::repeat(""));
    let texts = refusal.reasons.iter().zip(details);
    refusal.reason_codes.iter().zip(texts).map(|(code, (reason, detail))| {
        let reason = match detail {
            "" => reason.clone(),
            detail => format!("{reason} ({detail})"),
        };
        (&*refusal.plugin, &**code, reason)
    })
}
