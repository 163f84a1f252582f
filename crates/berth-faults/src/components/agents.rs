//! The node agents.

use super::workloads::{insert, version};
use crate::keyed::JobOf;
use crate::world::Doc;
use berth_cluster::agent::{self, Mode};
use berth_cluster::{Objects, Step, View, field, key_of};
use berth_core::effect::ObjectKey;
use berth_provisioner::course::Ended;
use berth_reconcile::{Reconciler, Version, Work};
use jiff::Timestamp;
use serde_json::Value;
use std::rc::Rc;

/// The view of all node agents. They watch pods, nodes, claims and volumes.
#[derive(Default)]
pub(crate) struct Agents {
    view: Objects,
}

impl Agents {
    /// Pods that an object affects.
    fn concerned(&self, object: &Value) -> Vec<ObjectKey> {
        let waits = self.view.of_kind("Pod").filter(|pod| {
            !field::text(pod, "/spec/nodeName").is_empty() && field::text(pod, "/status/phase") == "Pending"
        });
        let waiting: Vec<ObjectKey> = waits.map(key_of).collect();
        let mut pods = Vec::new();
        for key in agent::concerned(object, &waiting) {
            match &*key.kind {
                "Node" => pods.extend(self.view.pods_on(&key.name).map(key_of)),
                _ => pods.push(key),
            }
        }
        pods
    }
}

impl Reconciler for Agents {
    type Object = Rc<Doc>;
    type Answer = Rc<Doc>;
    type Job = JobOf;
    type Report = Ended;

    fn apply(&mut self, doc: Rc<Doc>) -> Vec<ObjectKey> {
        match insert(&mut self.view, &doc) {
            true => self.concerned(&doc.value),
            false => Vec::new(),
        }
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        match self.view.remove(key) {
            Some(gone) if key.kind != "Pod" => self.concerned(&gone),
            _ => Vec::new(),
        }
    }

    fn answered(&mut self, doc: &Rc<Doc>) -> Vec<ObjectKey> {
        self.apply(Rc::clone(doc))
    }

    fn version(&self, key: &ObjectKey) -> Option<Version> {
        version(&self.view, key)
    }

    fn step(&mut self, key: &ObjectKey, now: Timestamp) -> Work<JobOf> {
        let step = match self.view.find(key) {
            Some(pod) if key.kind == "Pod" => {
                let node = self.view.get("Node", "", field::text(pod, "/spec/nodeName"));
                let mode = node.and_then(Mode::of_node).unwrap_or_default();
                agent::pod_step(&self.view, pod, mode, &agent::Settings::default(), now)
            }
            _ => Step::default(),
        };
        Work::Effects(step.into_effects(key))
    }
}
