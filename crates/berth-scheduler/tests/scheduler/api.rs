//! The cluster in memory as a scheduler sees it: undelivered changes, and the results of its writes.

use berth_core::api::{Kind, Object};
use berth_scheduler::scheduler::{Effect, WriteOutcome};
use berth_testing::{Cluster, Fault, Manifest};
use serde_json::Value;

/// An undelivered change: the object, or its deletion.
pub(crate) type Change = (Kind, String, Option<Value>);

#[derive(Clone, Default)]
pub(crate) struct Api {
    cluster: Cluster,
    pub(crate) changes: Vec<Change>,
}

pub(crate) fn decoded(value: &Value) -> Object {
    value.decoded()
}

impl Api {
    fn change(&mut self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster);
        for logged in self.cluster.take_log() {
            let Some(kind) = logged.key.known_kind() else {
                continue;
            };
            let name = match logged.key.namespace.as_str() {
                "" => logged.key.name.clone(),
                namespace => format!("{namespace}/{}", logged.key.name),
            };
            self.changes.push((kind, name, logged.object));
        }
    }

    pub(crate) fn put(&mut self, value: Value) {
        self.change(|cluster| cluster.put(value));
    }

    pub(crate) fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        self.change(|cluster| cluster.edit(kind.name(), name, change));
    }

    /// A user deletes an object that is kept: a running pod, a protected claim.
    pub(crate) fn start_deletion(&mut self, kind: Kind, name: &str) {
        self.change(|cluster| cluster.delete(kind.name(), name));
    }

    /// A user deletes an object, and nothing keeps it.
    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        self.change(|cluster| cluster.remove(kind.name(), name));
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.cluster.get(kind.name(), name)
    }

    /// The objects of a kind by their names, with namespaces.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (String, &Value)> {
        self.cluster.of_kind(kind.name()).map(|object| {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            let namespace = metadata["namespace"].as_str();
            (
                namespace.map_or(name.to_owned(), |namespace| format!("{namespace}/{name}")),
                object,
            )
        })
    }

    pub(crate) fn everything(&self) -> impl Iterator<Item = &Value> {
        self.cluster.objects()
    }

    pub(crate) fn text(&self, kind: Kind, name: &str, pointer: &str) -> &str {
        self.cluster.text(kind.name(), name, pointer)
    }

    pub(crate) fn node_of(&self, pod: &str) -> &str {
        self.text(Kind::Pod, pod, "/spec/nodeName")
    }

    pub(crate) fn volume_of(&self, claim: &str) -> &str {
        self.text(Kind::PersistentVolumeClaim, claim, "/spec/volumeName")
    }

    /// Carries out the scheduler's effects like its executors. The result is that of a write.
    pub(crate) fn apply(&mut self, effect: &Effect, fault: Fault) -> Option<WriteOutcome> {
        let effects = effect.lower(self.cluster.now());
        // The lost response is that of all requests together.
        let befallen = if fault == Fault::AnswerLost { effects.len() } else { 1 };
        let mut number = 0;
        let befalls = |_: &_| {
            number += 1;
            if number == befallen { fault } else { Fault::None }
        };
        let mut carried = None;
        self.change(|cluster| carried = Some(cluster.carry_out_with(&effects, befalls)));
        let carried = carried?;
        let Effect::Write { write, .. } = effect else {
            return None;
        };
        let version = carried.versions.values().next().map_or("", String::as_str);
        Some(write.outcome(carried.refused.as_ref().map_or(Ok(version), Err)))
    }
}
