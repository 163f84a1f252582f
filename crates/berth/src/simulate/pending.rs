//! Why pods are left without a node: which nodes refuse them, for which reasons, and what would help.
//!
//! Pods with the same message are told of together, and one of them is examined for all: every plugin is asked about every
//! node, on a copy of the scheduler's cluster.

use super::Simulation;
use super::outcome::PodOutcome;
use crate::explain::explain_pod_despite;
use crate::explain::report::{NodeReport, Report};
use berth_core::api::Object;
use berth_scheduler::scheduler::DEFAULT_SCHEDULER_NAME;
use serde::Serialize;
use std::collections::BTreeMap;

/// How many groups are examined: a person reads a few, and each costs a look at every node.
const MAX_EXAMINED: usize = 20;

/// Pods that are left without a node for the same reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PendingOutcome {
    /// Why, in kube-scheduler's form.
    pub message: String,
    /// The pods, by name.
    pub pods: Vec<String>,
    /// Why nodes refuse the first of them. A node stands with every reason it has.
    pub refused: Vec<RefusedNodes>,
    /// What would help.
    pub advice: Vec<String>,
}

/// Nodes that refuse a pod for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedNodes {
    /// The plugin, as kube-scheduler names it.
    pub plugin: String,
    /// The reason in kube-scheduler's words, with what they leave out.
    pub reason: String,
    /// The nodes, by name.
    pub nodes: Vec<String>,
}

impl Simulation {
    /// Why the pods without a node have none.
    pub(super) fn pending(&self, pods: &[PodOutcome]) -> Vec<PendingOutcome> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !pod.is_placed) {
            groups.entry(&pod.message).or_default().push(&pod.pod);
        }
        if groups.is_empty() {
            return Vec::new();
        }
        let mut cluster = self.scheduler.cluster().clone();
        let mut outcomes: Vec<PendingOutcome> = groups
            .into_iter()
            .map(|(message, pods)| PendingOutcome {
                message: message.to_owned(),
                pods: pods.into_iter().map(str::to_owned).collect(),
                ..PendingOutcome::default()
            })
            .collect();
        // What keeps most pods waiting comes first.
        outcomes.sort_by_key(|group| std::cmp::Reverse(group.pods.len()));
        for group in outcomes.iter_mut().take(MAX_EXAMINED) {
            let first = group.pods.first().and_then(|name| name.split_once('/'));
            let found = first.and_then(|(namespace, name)| self.objects().get("Pod", namespace, name));
            let Some(Ok(Some(Object::Pod(pod)))) = found.map(|pod| Object::decode(pod.clone())) else {
                continue;
            };
            if !pod.spec.node_name.is_empty() {
                continue;
            }
            let scheduler = pod.spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER_NAME);
            let Some(profile) = self.profiles.get(scheduler) else {
                continue;
            };
            let report = explain_pod_despite(&mut cluster, &pod, profile, &self.gaps);
            group.refused = refused(&report);
            group.advice = report.advice;
        }
        outcomes
    }
}

/// The refusals of a report by reason, those of most nodes first.
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
