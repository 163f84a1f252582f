//! The workload controllers, and the node lifecycle controller.

use crate::keyed::JobOf;
use crate::world::Doc;
use berth_cluster::workloads::Workloads;
use berth_cluster::{Objects, controllers, disruption, lifecycle};
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
        let mut keys = controllers::concerned(&self.view, object);
        keys.extend(lifecycle::concerned(&self.view, object));
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
            "Node" => lifecycle::step(&self.view, &key.name, now),
            _ => controllers::step(&mut self.workloads, &self.view, key, now),
        };
        Work::Effects(step.into_effects(key))
    }
}
