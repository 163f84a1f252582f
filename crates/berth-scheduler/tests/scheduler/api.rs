//! A tiny API server: objects as JSON with versions, a log of changes, and the writes of a scheduler.

use berth_core::api::{Kind, Object};
use berth_core::names;
use berth_scheduler::scheduler::Write;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A change that was not yet delivered: the object, or that it is gone.
pub(crate) type Change = (Kind, String, Option<Value>);

#[derive(Clone, Default)]
pub(crate) struct Api {
    objects: BTreeMap<(Kind, String), Value>,
    version: u64,
    pub(crate) changes: Vec<Change>,
}

pub(crate) fn decoded(value: &Value) -> Object {
    let object = Object::decode(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    object.expect("the kind is known")
}

/// An object's name with its namespace, if it lives in one.
fn key(object: &Object) -> (Kind, String) {
    (object.kind(), object.metadata().full_name())
}

impl Api {
    pub(crate) fn put(&mut self, mut value: Value) {
        self.version += 1;
        let object = decoded(&value);
        let (kind, name) = key(&object);
        if kind.is_namespaced() {
            value["metadata"]["namespace"] = json!(object.metadata().namespace);
        }
        if object.metadata().uid.is_empty() {
            value["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        value["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert((kind, name.clone()), value.clone());
        self.changes.push((kind, name, Some(value)));
    }

    pub(crate) fn edit(&mut self, kind: Kind, name: &str, change: impl FnOnce(&mut Value)) {
        let mut value = self.get(kind, name).expect("the object is there").clone();
        change(&mut value);
        self.put(value);
    }

    pub(crate) fn delete(&mut self, kind: Kind, name: &str) {
        if self.objects.remove(&(kind, name.to_owned())).is_some() {
            self.changes.push((kind, name.to_owned(), None));
        }
    }

    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&(kind, name.to_owned()))
    }

    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (&str, &Value)> {
        let of_kind = self.objects.iter().filter(move |((found, _), _)| *found == kind);
        of_kind.map(|((_, name), value)| (name.as_str(), value))
    }

    pub(crate) fn everything(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    pub(crate) fn text(&self, kind: Kind, name: &str, pointer: &str) -> &str {
        let value = self.get(kind, name).and_then(|value| value.pointer(pointer));
        value.and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn node_of(&self, pod: &str) -> &str {
        self.text(Kind::Pod, pod, "/spec/nodeName")
    }

    pub(crate) fn volume_of(&self, claim: &str) -> &str {
        self.text(Kind::PersistentVolumeClaim, claim, "/spec/volumeName")
    }

    /// The object that a write is about.
    pub(crate) fn target(write: &Write) -> (Kind, String) {
        match write {
            Write::ReserveVolume { volume, .. } => (Kind::PersistentVolume, volume.clone()),
            Write::SelectNode { namespace, claim, .. } => (Kind::PersistentVolumeClaim, format!("{namespace}/{claim}")),
            Write::BindPod { pod, .. } | Write::EvictPod { pod, .. } => (Kind::Pod, pod.key.to_string()),
        }
    }

    /// Carries a write out, if the object is still what the writer took it for.
    pub(crate) fn apply(&mut self, write: &Write) -> Result<u64, String> {
        let (kind, name) = Self::target(write);
        let found = self
            .get(kind, &name)
            .ok_or_else(|| format!("{kind} {name:?} not found"))?;
        let version = found["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        let expected = match write {
            Write::ReserveVolume { version, .. } | Write::SelectNode { version, .. } => version.to_string(),
            Write::BindPod { .. } | Write::EvictPod { .. } => version.to_owned(),
        };
        if version != expected {
            return Err(format!("{kind} {name:?} was modified"));
        }
        match write {
            Write::ReserveVolume {
                namespace,
                claim,
                uid,
                prebound,
                ..
            } => self.edit(kind, &name, |volume| {
                volume["spec"]["claimRef"] = json!({"namespace": namespace, "name": claim, "uid": uid});
                if !prebound {
                    volume["metadata"]["annotations"][names::BOUND_BY_CONTROLLER] = json!("yes");
                }
            }),
            Write::SelectNode { node, .. } => self.edit(kind, &name, |claim| {
                claim["metadata"]["annotations"][names::SELECTED_NODE] = json!(node);
            }),
            Write::BindPod { pod, node } => {
                if found["metadata"]["uid"] != json!(pod.uid) || !self.node_of(&name).is_empty() {
                    return Err(format!("pod {name:?} is another one, or assigned to a node"));
                }
                self.edit(kind, &name, |pod| pod["spec"]["nodeName"] = json!(node));
            }
            Write::EvictPod { pod, .. } => {
                if found["metadata"]["uid"] != json!(pod.uid) {
                    return Err(format!("pod {name:?} is another one"));
                }
                self.edit(kind, &name, |pod| {
                    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                    pod["status"]["conditions"] =
                        json!([{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]);
                });
            }
        }
        Ok(self.version)
    }
}
