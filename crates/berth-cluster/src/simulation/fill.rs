//! How a simulation is filled from an input, and one that stops when a certain pod has been made, before anybody decides
//! where it goes.

use super::Simulation;
use crate::workloads::KINDS;
use crate::{agent, field};
use berth_core::effect::Refusal;
use berth_kinds::admission;
use berth_kinds::kinds::persistent_volume;
use serde_json::Value;

impl Simulation {
    /// Adds the objects of an input. A DaemonSet serves the nodes that other pods run on: where some are in the input, their
    /// pods come first, after those that run already or belong to somebody.
    ///
    /// # Errors
    /// If one has no kind or name, or is already there.
    pub fn load(&mut self, objects: Vec<Value>) -> Result<(), Refusal> {
        let mut objects = in_order(objects);
        for object in &mut objects {
            agent::stop_if_lost(object);
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

    /// Lets time pass until a pod is there, and gives it as it was made. None if nothing moves any more and it is not.
    pub fn run_until_made(&mut self, namespace: &str, name: &str) -> Option<Value> {
        self.advance(None, &mut |simulation| {
            simulation.objects().get("Pod", namespace, name).is_some()
        });
        self.objects().get("Pod", namespace, name).cloned()
    }
}

/// The objects in an order in which whoever looks at one finds what it needs: pods and what makes them last.
pub(super) fn in_order(mut objects: Vec<Value>) -> Vec<Value> {
    objects.sort_by_key(|object| match object["kind"].as_str().unwrap_or_default() {
        kind if admission::reads(kind) => 0,
        "Pod" => 3,
        kind if KINDS.contains(&kind) => 2,
        _ => 1,
    });
    for object in &mut objects {
        // Who wrote which field is of no use here and takes half of the memory.
        field::unset(object, &["metadata", "managedFields"]);
    }
    objects
}

/// Whether an object is, or makes, pods that nobody has placed yet.
fn is_new(object: &Value) -> bool {
    match field::kind(object) {
        "Pod" => field::text(object, "/spec/nodeName").is_empty() && field::controller_of(object).is_none(),
        "DaemonSet" => false,
        kind => KINDS.contains(&kind),
    }
}
