//! Why pods have no node: which nodes refuse them, for which reasons, and what would help.
//!
//! Pods with the same message are grouped, and one of them is examined for all: every plugin is queried about every node,
//! on a copy of the scheduler's cluster.

use crate::explain::report::{NodeReport, Report};
use crate::explain::{World, explain_pod};
use crate::input::Gaps;
use berth_cluster::simulation::{Outcome, RefusedNodes, Simulation};
use berth_core::api::{Kind, Object};
use std::collections::BTreeMap;

/// Maximum number of groups examined: a person reads a few, and each requires examining every node.
const MAX_EXAMINED: usize = 20;

/// The outcome of a simulation, with the reasons why pods have no node and what would help. What could not be read does
/// not count as missing.
#[must_use]
pub fn examined(simulation: &Simulation, gaps: &Gaps) -> Outcome {
    let mut outcome = simulation.outcome();
    if outcome.pending.is_empty() {
        return outcome;
    }
    let mut world = world_of(simulation, gaps);
    for group in outcome.pending.iter_mut().take(MAX_EXAMINED) {
        let first = group.pods.first().and_then(|name| name.split_once('/'));
        let found = first.and_then(|(namespace, name)| simulation.objects().get("Pod", namespace, name));
        let Some(Ok(Some(Object::Pod(pod)))) = found.map(Object::decode) else {
            continue;
        };
        if !pod.spec.node_name.is_empty() {
            continue;
        }
        let Some(profile) = simulation.settings().profile_of(&pod) else {
            continue;
        };
        let report = explain_pod(&mut world, &pod, profile);
        group.refused = refused(&report);
        group.advice = report.advice;
    }
    outcome
}

/// The current cluster, for queries.
pub(crate) fn world_of(simulation: &Simulation, gaps: &Gaps) -> World {
    let mut world = World {
        cluster: simulation.scheduled_cluster().clone(),
        gaps: gaps.clone(),
        ..World::default()
    };
    for object in Kind::ALL
        .iter()
        .flat_map(|kind| simulation.objects().of_kind(kind.name()))
    {
        if let Ok(Some(object)) = Object::decode(object) {
            world.objects.keep(object);
        }
    }
    world
}

/// The refusals of a report by reason, most nodes first.
fn refused(report: &Report) -> Vec<RefusedNodes> {
    let mut by_reason: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for node in &report.nodes {
        for (plugin, reason) in reasons(node) {
            by_reason.entry((plugin, reason)).or_default().push(node.name.clone());
        }
    }
    let mut all: Vec<RefusedNodes> = by_reason
        .into_iter()
        .map(|((plugin, reason), nodes)| RefusedNodes { plugin, reason, nodes })
        .collect();
    all.extend(report.pre_filter.iter().flat_map(|refusal| {
        let whole = |reason: &String| RefusedNodes {
            plugin: refusal.plugin.clone(),
            reason: reason.clone(),
            nodes: report.nodes.iter().map(|node| node.name.clone()).collect(),
        };
        refusal.reasons.iter().map(whole).collect::<Vec<_>>()
    }));
    all.sort_by_key(|refused| std::cmp::Reverse(refused.nodes.len()));
    all
}

fn reasons(node: &NodeReport) -> Vec<(String, String)> {
    let words = |refusal: &crate::explain::report::Refusal| {
        let details = refusal.details.iter().map(String::as_str).chain(std::iter::repeat(""));
        let texts = refusal.reasons.iter().zip(details);
        texts
            .map(|(reason, detail)| match detail {
                "" => (refusal.plugin.clone(), reason.clone()),
                detail => (refusal.plugin.clone(), format!("{reason} ({detail})")),
            })
            .collect::<Vec<_>>()
    };
    node.refused.iter().flat_map(words).collect()
}
