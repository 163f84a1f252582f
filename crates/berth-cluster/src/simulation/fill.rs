//! Loads a simulation from an input, and runs one until pods have been created but not scheduled.

use super::Simulation;
use super::onlooker::Stop;
use crate::workloads::KINDS;
use crate::{agent, field, key_of, status};
use berth_core::effect::Refusal;
use berth_kinds::admission;
use berth_kinds::kinds::persistent_volume;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

impl Simulation {
    /// Adds the objects of an input. A DaemonSet serves the nodes that other pods run on: if the input contains some, their
    /// pods come first, after those that already run or have an owner.
    ///
    /// # Errors
    /// If one has no kind or name, or already exists.
    pub fn load(&mut self, objects: Vec<Value>) -> Result<(), Refusal> {
        let mut objects = in_order(objects);
        for object in &mut objects {
            agent::stop_if_lost(object);
            if field::kind(object) == "Job" && status::holds(object, "Failed") {
                self.failed_before.insert(key_of(object));
            }
            if field::kind(object) == persistent_volume::KIND.name {
                persistent_volume::settle(object);
            }
        }
        let has_daemon_sets = objects.iter().any(|object| field::kind(object) == "DaemonSet");
        let (later, first): (Vec<Value>, Vec<Value>) = objects
            .into_iter()
            .partition(|object| has_daemon_sets && is_new(object));
        first.into_iter().try_for_each(|object| self.create(object))?;
        if has_daemon_sets {
            self.run_daemon_sets();
        }
        later.into_iter().try_for_each(|object| self.create(object))
    }

    /// Lets everything act that acts before the scheduler: workload controllers create pods, claims are created and bound,
    /// volumes are provisioned.
    pub fn run_until_placing(&mut self) {
        self.advance(None, &mut Stop(|_: &Self| true));
    }

    /// Runs for some time, or until nothing changes any more.
    pub fn run_for(&mut self, time: SignedDuration) {
        let end = self.now.saturating_add(time).unwrap_or(Timestamp::MAX);
        self.run_until(Some(end), &mut |_| {});
    }

    /// Runs until a pod exists, and returns it as created. `None` if nothing changes any more and it does not exist.
    pub fn run_until_made(&mut self, namespace: &str, name: &str) -> Option<Value> {
        let is_there = |simulation: &Self| simulation.objects().get("Pod", namespace, name).is_some();
        self.advance(None, &mut Stop(is_there));
        self.objects().get("Pod", namespace, name).cloned()
    }
}

/// Sorts the objects so that dependencies come first: pods and what creates them last.
pub(super) fn in_order(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| match object["kind"].as_str().unwrap_or_default() {
        kind if admission::reads(kind) => 0,
        "Pod" => 3,
        kind if KINDS.contains(&kind) => 2,
        _ => 1,
    });
    for object in &mut objects {
        // Managed fields are not used here and take half of the memory.
        field::unset(object, &["metadata", "managedFields"]);
    }
    objects
}

/// Whether an object is, or creates, unscheduled pods.
fn is_new(object: &Value) -> bool {
    match field::kind(object) {
        "Pod" => field::text(object, "/spec/nodeName").is_empty() && field::controller_of(object).is_none(),
        "DaemonSet" => false,
        kind => KINDS.contains(&kind),
    }
}
