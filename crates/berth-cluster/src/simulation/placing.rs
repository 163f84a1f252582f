//! The scheduler's part of a simulation.

use super::Simulation;
use crate::{Effect, Key, View};
use berth_core::names;
use berth_scheduler::scheduler::{Effect as Scheduling, Write, WriteOutcome};
use serde_json::{Value, json};

const SOURCE: &str = "default-scheduler";

impl Simulation {
    /// Carries out what the scheduler wants, and has it decide about the pods whose turn it is.
    pub(super) fn run_scheduler(&mut self) -> bool {
        let mut moved = false;
        loop {
            for effect in self.scheduler.take_effects() {
                moved = true;
                self.carry_out_scheduling(effect);
            }
            // What the writes changed is shown to the scheduler before it decides again.
            if self.take_changes() {
                continue;
            }
            let now = self.since_start();
            if !self.scheduler.step(now) {
                return moved;
            }
            moved = true;
        }
    }

    fn carry_out_scheduling(&mut self, effect: Scheduling) {
        match effect {
            Scheduling::Write { id, write } => {
                let outcome = match self.write(&write) {
                    Some(version) => WriteOutcome::Done { version },
                    None => WriteOutcome::Failed {
                        problem: "the object was modified or is gone".to_owned(),
                    },
                };
                let now = self.since_start();
                self.scheduler.written(id, &outcome, now);
            }
            Scheduling::Condition { pod, reason, message } => {
                let condition =
                    json!({"type": "PodScheduled", "status": "False", "reason": reason, "message": message});
                self.set_condition(&pod_key(&pod.key), &pod.uid, condition);
            }
            Scheduling::Nominate { pod, node } => {
                self.patch(
                    &pod_key(&pod.key),
                    &pod.uid,
                    json!({"status": {"nominatedNodeName": node}}),
                );
            }
            Scheduling::Event {
                pod,
                warning,
                reason,
                message,
            } => self.tell(&pod_key(&pod.key), warning, reason, message, SOURCE),
        }
    }

    /// Writes, if the object is as the scheduler saw it; gives the new version.
    fn write(&mut self, write: &Write) -> Option<u64> {
        match write {
            Write::ReserveVolume {
                volume,
                version,
                namespace,
                claim,
                uid,
            } => {
                let key = Key::new("PersistentVolume", "", volume);
                let reference = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim, "uid": uid});
                let patch = json!({"metadata": {"annotations": {names::BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}});
                (self.version_of(&key) == *version).then(|| self.patch(&key, "", patch))?
            }
            Write::SelectNode {
                namespace,
                claim,
                version,
                node,
            } => {
                let key = Key::new("PersistentVolumeClaim", namespace, claim);
                let patch = json!({"metadata": {"annotations": {names::SELECTED_NODE: node}}});
                (self.version_of(&key) == *version).then(|| self.patch(&key, "", patch))?
            }
            Write::BindPod { pod, node } => {
                let key = pod_key(&pod.key);
                self.patch(&key, &pod.uid, json!({"spec": {"nodeName": node}}))?;
                let condition = json!({"type": "PodScheduled", "status": "True"});
                self.set_condition(&key, &pod.uid, condition);
                Some(self.version_of(&key))
            }
            Write::EvictPod { pod, .. } => {
                let key = pod_key(&pod.key);
                let object = self
                    .cluster
                    .objects()
                    .get(&key.kind, &key.namespace, &key.name)?
                    .clone();
                self.cluster.carry_out(&Effect::delete(&object), self.now).ok()?;
                Some(self.version_of(&key))
            }
        }
    }

    fn set_condition(&mut self, key: &Key, uid: &str, condition: Value) {
        let object = self.cluster.objects().get(&key.kind, &key.namespace, &key.name);
        let known = object.and_then(|pod| pod.pointer("/status/conditions")?.as_array());
        let mut conditions: Vec<Value> = known.into_iter().flatten().cloned().collect();
        conditions.retain(|known| known["type"] != condition["type"]);
        conditions.push(condition);
        self.patch(key, uid, json!({"status": {"conditions": conditions}}));
    }
}

fn pod_key(key: &str) -> Key {
    let (namespace, name) = key.split_once('/').unwrap_or(("default", key));
    Key::new("Pod", namespace, name)
}
