//! Plays a scenario, and reports what each of its steps changed.

use super::Simulation;
use super::onlooker::{Onlooker, Steps};
use super::outcome::{ClaimOutcome, Picture, PodOutcome};
use super::scenario::{PerformError, Scenario};
use super::{Fit, fit};
use jiff::SignedDuration;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What one step of a scenario changed, from its time until the next step or until nothing changes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepOutcome {
    /// Its name; `start` before the first one.
    pub name: String,
    /// Its time from the start, in readable form.
    pub at: String,
    /// Its time from the start, in virtual seconds.
    pub at_seconds: f64,
    /// When the last change before the next step happened.
    pub moved_until_seconds: f64,
    /// What was done, one line per action.
    pub did: Vec<String>,
    /// What happened to pods.
    pub pods: PodChanges,
    /// What happened to claims.
    pub claims: ClaimChanges,
    /// Nodes whose drain has not ended by then: disruption budgets keep pods there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<String>,
    /// Totals at the end of the step.
    pub summary: StepSummary,
}

/// What happened to pods during a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PodChanges {
    /// Pods with the same name on another node than before.
    pub moved: Vec<Moved>,
    /// Pods that had no node, or did not exist.
    pub placed: Vec<Placed>,
    /// Pods that no longer exist.
    pub gone: Vec<String>,
    /// Pods that do not run at the end of the step, and why.
    pub pending: Vec<Waiting>,
}

/// A pod that moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// `namespace/name`
    pub pod: String,
    /// The node it was on.
    pub from: String,
    /// The node it is on.
    pub to: String,
}

/// A pod that got a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// `namespace/name`
    pub pod: String,
    /// Its node.
    pub node: String,
}

/// A pod that does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// `namespace/name`
    pub pod: String,
    /// Its node; empty if it has none.
    pub node: String,
    /// Why it does not run.
    pub message: String,
}

/// What happened to claims during a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClaimChanges {
    /// Claims that got a volume, or a different one.
    pub bound: Vec<BoundClaim>,
    /// Claims that no longer exist.
    pub gone: Vec<String>,
    /// Claims that have no volume at the end of the step.
    pub pending: Vec<String>,
}

/// A claim that got a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoundClaim {
    /// `namespace/name`
    pub claim: String,
    /// Its volume.
    pub volume: String,
}

/// Totals at the end of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepSummary {
    /// Number of pods.
    pub pods: usize,
    /// Number of pods with a node.
    pub placed: usize,
    /// Number of pods without a node.
    pub pending: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of ready nodes.
    pub ready_nodes: usize,
    /// Number of claims.
    pub claims: usize,
    /// Number of bound claims.
    pub bound_claims: usize,
    /// How well their volumes fit.
    #[serde(flatten)]
    pub fit: Fit,
    /// Pods by zone.
    pub pods_per_zone: BTreeMap<String, usize>,
}

impl Simulation {
    /// Plays a scenario until nothing changes any more after its last step. At the end of each step, including the
    /// start, `after` may inspect the cluster.
    ///
    /// # Errors
    /// If an action refers to an object that does not exist.
    pub fn play(
        &mut self,
        scenario: &Scenario,
        progress: &mut dyn FnMut(u64),
        after: &mut dyn FnMut(&Self),
    ) -> Result<(), PerformError> {
        let mut go_on = |scheduled| {
            progress(scheduled);
            false
        };
        self.play_unless(scenario, &mut go_on, after).map(drop)
    }

    /// Plays a scenario as [`Self::play`] does, unless `stop` says that it is to end early; it is given how many pods were
    /// scheduled. Says whether the scenario was played to its end.
    ///
    /// # Errors
    /// If something is to be done to an object that is not there.
    pub fn play_unless(
        &mut self,
        scenario: &Scenario,
        stop: &mut dyn FnMut(u64) -> bool,
        after: &mut dyn FnMut(&Self),
    ) -> Result<bool, PerformError> {
        self.play_before(scenario, &mut Steps { stop, after })
    }

    /// Plays a scenario as [`Self::play`] does, while somebody looks on. Says whether the scenario was played to its end.
    ///
    /// # Errors
    /// If something is to be done to an object that is not there.
    pub fn play_before(&mut self, scenario: &Scenario, onlooker: &mut dyn Onlooker) -> Result<bool, PerformError> {
        self.touched = onlooker.follows().then(BTreeSet::new);
        let mut before = Picture::default();
        let mut did = Vec::new();
        let mut name = "start".to_owned();
        let mut at = SignedDuration::ZERO;
        for (index, step) in scenario.steps.iter().enumerate() {
            let moment = self.start.checked_add(step.at).unwrap_or(self.now);
            if self.advance(Some(moment), onlooker) {
                return Ok(false);
            }
            before = self.conclude(name, at, did, before);
            onlooker.step(self);
            did = self.perform(&scenario.file, index, step)?;
            (name, at) = (step.name.clone(), step.at);
        }
        if self.advance(None, onlooker) {
            return Ok(false);
        }
        self.conclude(name, at, did, before);
        onlooker.step(self);
        Ok(true)
    }

    /// The outcome of the scenario's steps so far.
    #[must_use]
    pub fn steps(&self) -> &[StepOutcome] {
        &self.steps
    }

    /// Records what has changed since the previous picture, and returns the current one.
    fn conclude(&mut self, name: String, at: SignedDuration, did: Vec<String>, before: Picture) -> Picture {
        let now = self.picture();
        self.steps.push(StepOutcome {
            name,
            at: format!("{at:#}"),
            at_seconds: at.as_secs_f64(),
            moved_until_seconds: self.moved_for().as_millis() as f64 / 1000.0,
            did,
            pods: pod_changes(&before.pods, &now.pods, now.not_running.clone()),
            claims: claim_changes(&before.claims, &now.claims),
            draining: self.drains.nodes().map(str::to_owned).collect(),
            summary: self.step_summary(&now),
        });
        now
    }

    fn step_summary(&self, now: &Picture) -> StepSummary {
        let volumes = self.volume_outcomes();
        let (zones, nodes) = fit::places(
            self.objects(),
            self.scheduled_cluster(),
            &now.pods,
            &now.claims,
            &volumes,
        );
        let placed = now.pods.iter().filter(|pod| pod.is_placed).count();
        StepSummary {
            pods: now.pods.len(),
            placed,
            pending: now.pods.iter().filter(|pod| pod.is_pending()).count(),
            nodes: self.objects().of_kind("Node").count(),
            ready_nodes: nodes.iter().filter(|node| node.ready).count(),
            claims: now.claims.len(),
            bound_claims: now.claims.iter().filter(|claim| claim.phase == "Bound").count(),
            fit: fit::overall(&now.claims, &volumes),
            pods_per_zone: zones.into_iter().map(|zone| (zone.zone, zone.pods)).collect(),
        }
    }
}

pub(super) fn pod_changes(before: &[PodOutcome], now: &[PodOutcome], not_running: Vec<Waiting>) -> PodChanges {
    let known: BTreeMap<&str, &str> = before.iter().map(|pod| (&*pod.pod, &*pod.node)).collect();
    let left: BTreeMap<&str, ()> = now.iter().map(|pod| (&*pod.pod, ())).collect();
    let mut changes = PodChanges {
        pending: not_running,
        ..PodChanges::default()
    };
    for pod in now {
        match known.get(&*pod.pod).copied().unwrap_or_default() {
            from if from == pod.node => {}
            "" => changes.placed.push(Placed {
                pod: pod.pod.clone(),
                node: pod.node.clone(),
            }),
            from => changes.moved.push(Moved {
                pod: pod.pod.clone(),
                from: from.to_owned(),
                to: pod.node.clone(),
            }),
        }
    }
    // A pod that lost its node waits; it has not moved.
    changes.moved.retain(|moved| !moved.to.is_empty());
    let gone = before.iter().filter(|pod| !left.contains_key(&*pod.pod));
    changes.gone = gone.map(|pod| pod.pod.clone()).collect();
    changes
}

pub(super) fn claim_changes(before: &[ClaimOutcome], now: &[ClaimOutcome]) -> ClaimChanges {
    let known: BTreeMap<&str, &str> = before.iter().map(|claim| (&*claim.claim, &*claim.volume)).collect();
    let left: BTreeMap<&str, ()> = now.iter().map(|claim| (&*claim.claim, ())).collect();
    let mut changes = ClaimChanges::default();
    for claim in now {
        if claim.phase != "Bound" {
            changes.pending.push(claim.claim.clone());
        } else if known.get(&*claim.claim) != Some(&&*claim.volume) {
            changes.bound.push(BoundClaim {
                claim: claim.claim.clone(),
                volume: claim.volume.clone(),
            });
        }
    }
    let gone = before.iter().filter(|claim| !left.contains_key(&*claim.claim));
    changes.gone = gone.map(|claim| claim.claim.clone()).collect();
    changes
}
