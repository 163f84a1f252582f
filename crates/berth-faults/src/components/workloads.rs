//! The workload controllers, and the node lifecycle controller.

use crate::keyed::JobOf;
use crate::world::Doc;
use berth_cluster::names::NODE_LEASES;
use berth_cluster::workloads::{self, Workloads};
use berth_cluster::{Objects, Step, disruption, field, key_for, key_of, lifecycle};
use berth_core::effect::ObjectKey;
use berth_provisioner::course::Ended;
use berth_reconcile::{Reconciler, Version, Work};
use jiff::Timestamp;
use serde_json::Value;
use std::rc::Rc;

/// The view of workload controllers.
pub(crate) struct WorkloadSteps {
    view: Objects,
    workloads: Workloads,
}

impl WorkloadSteps {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            view: Objects::default(),
            workloads: Workloads::new(seed),
        }
    }

    /// The keys affected by an object that was created, changed or deleted.
    fn concerned(&self, object: &Value) -> Vec<ObjectKey> {
        let mut keys = workloads::concerned(&self.view, object);
        keys.extend(disruption::concerned(&self.view, object));
        match field::kind(object) {
            "Node" => keys.push(key_of(object)),
            "Pod" => {
                let node = field::text(object, "/spec/nodeName");
                if !node.is_empty() {
                    keys.push(key_for("Node", "", node));
                }
            }
            "Lease" if field::namespace(object) == NODE_LEASES => keys.push(key_for("Node", "", field::name(object))),
            _ => {}
        }
        keys
    }
}

/// Adds a state of an object to a view. Returns whether it is news.
pub(super) fn insert(view: &mut Objects, doc: &Doc) -> bool {
    let before = version(view, &doc.key);
    view.insert(doc.value.clone());
    version(view, &doc.key) != before
}

pub(super) fn version(view: &Objects, key: &ObjectKey) -> Option<Version> {
    view.find(key).map(Version::of_value)
}

impl Reconciler for WorkloadSteps {
    type Object = Rc<Doc>;
    type Answer = Rc<Doc>;
    type Job = JobOf;
    type Report = Ended;

    fn apply(&mut self, doc: Rc<Doc>) -> Vec<ObjectKey> {
        let mut keys = disruption::no_longer_concerned(&self.view, &doc.value);
        if !insert(&mut self.view, &doc) {
            return Vec::new();
        }
        keys.extend(self.concerned(&doc.value));
        keys
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        match self.view.remove(key) {
            Some(gone) => self.concerned(&gone),
            None => Vec::new(),
        }
    }

    fn answered(&mut self, doc: &Rc<Doc>) -> Vec<ObjectKey> {
        self.apply(Rc::clone(doc))
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        version(&self.view, key)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<JobOf> {
        let step = match &*key.kind {
            "PodDisruptionBudget" => {
                let budget = self.view.find(key);
                let effect = budget.and_then(|budget| disruption::step(&self.view, budget, now));
                Step {
                    effects: effect.into_iter().collect(),
                    wake: None,
                }
            }
            "Node" => lifecycle::step(&self.view, &key.name, now),
            _ => self.workloads.reconcile(&self.view, key, now),
        };
        Work::Effects(step.into_effects(key))
    }
}
