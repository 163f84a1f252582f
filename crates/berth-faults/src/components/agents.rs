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
use std::rc::Rc;

/// The view of all node agents. They watch pods, nodes, claims and volumes.
#[derive(Default)]
pub(crate) struct Agents {
    view: Objects,
}

impl Agents {
    fn pods_on(&self, node: &str) -> Vec<ObjectKey> {
        self.view.pods_on(node).map(key_of).collect()
    }

    /// Pods that an object affects: pods that do not run yet may wait for claims and volumes.
    fn concerned(&self, doc: &Doc) -> Vec<ObjectKey> {
        match &*doc.key.kind {
            "Pod" if !doc.text("/spec/nodeName").is_empty() => vec![doc.key.clone()],
            "Node" => self.pods_on(&doc.key.name),
            "PersistentVolumeClaim" | "PersistentVolume" => self.waiting_pods(),
            _ => Vec::new(),
        }
    }

    fn waiting_pods(&self) -> Vec<ObjectKey> {
        let waits = self.view.of_kind("Pod").filter(|pod| {
            !field::text(pod, "/spec/nodeName").is_empty() && field::text(pod, "/status/phase") == "Pending"
        });
        waits.map(key_of).collect()
    }
}

impl Reconciler for Agents {
    type Object = Rc<Doc>;
    type Answer = Rc<Doc>;
    type Job = JobOf;
    type Report = Ended;

    fn apply(&mut self, doc: Rc<Doc>) -> Vec<ObjectKey> {
        match insert(&mut self.view, &doc) {
            true => self.concerned(&doc),
            false => Vec::new(),
        }
    }

    fn remove(&mut self, key: &ObjectKey) -> Vec<ObjectKey> {
        self.view.remove(key);
        match &*key.kind {
            "Node" => self.pods_on(&key.name),
            "PersistentVolumeClaim" | "PersistentVolume" => self.waiting_pods(),
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
