//! The API server of the tests, and who else lives there: a scheduler that chooses the next node, a
//! controller that completes bindings.

use berth_core::api::{Object, PersistentVolumeClaim};
use berth_core::effect::{Effect, Event, Fact, Guard, ObjectKey, Target};
use berth_core::names;
use berth_provisioner::state::State;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Why a write was not made.
#[derive(Debug, PartialEq)]
pub enum WriteError {
    /// The object has another version.
    Conflict,
    /// The object is not there.
    NotFound,
    /// What was decided on is not so.
    Stale,
}

type Key = (String, String, String);

/// Objects as an API server keeps them.
#[derive(Default)]
pub struct Cluster {
    objects: BTreeMap<Key, Value>,
    version: u64,
    /// So many of the next writes meet a conflict.
    pub conflicts: usize,
    pub events: Vec<Event>,
    /// Nodes that were tried for a claim, by its name.
    pub tried: BTreeMap<String, BTreeSet<String>>,
}

fn key(kind: &str, namespace: &str, name: &str) -> Key {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

impl Cluster {
    pub fn with(documents: Vec<Value>) -> Self {
        let mut cluster = Self::default();
        for document in documents {
            cluster.create(document);
        }
        cluster
    }

    pub fn create(&mut self, mut object: Value) {
        if let Some(metadata) = object["metadata"].as_object_mut()
            && let Some(name) = metadata.remove("Name")
        {
            metadata.insert("name".into(), name);
        }
        let kind = text(&object, "/kind").to_owned();
        if kind == "PersistentVolumeClaim" && text(&object, "/metadata/namespace").is_empty() {
            object["metadata"]["namespace"] = json!("default");
        }
        let (namespace, name) = (
            text(&object, "/metadata/namespace").to_owned(),
            text(&object, "/metadata/name").to_owned(),
        );
        if text(&object, "/metadata/uid").is_empty() {
            object["metadata"]["uid"] = json!(format!("uid-{name}-{}", self.version + 1));
        }
        self.put(key(&kind, &namespace, &name), object);
    }

    fn put(&mut self, key: Key, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        let held = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        if deleting && !held {
            self.objects.remove(&key);
        } else {
            self.objects.insert(key, object);
        }
    }

    pub fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&key(kind, namespace, name))
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> + 'a {
        self.objects
            .iter()
            .filter(move |(key, _)| key.0 == kind)
            .map(|(_, object)| object)
    }

    /// Changes an object in place, as a user would.
    pub fn edit(&mut self, kind: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let key = key(kind, namespace, name);
        let mut object = self.objects[&key].clone();
        change(&mut object);
        self.put(key, object);
    }

    pub fn delete(&mut self, kind: &str, namespace: &str, name: &str) {
        let key = key(kind, namespace, name);
        if let Some(mut object) = self.objects.get(&key).cloned() {
            object["metadata"]["deletionTimestamp"] = json!("2026-11-15T00:00:00Z");
            self.put(key, object);
        }
    }

    /// What a watcher has seen.
    pub fn state(&self) -> State {
        let mut state = State::default();
        for object in self.objects.values() {
            if let Some(object) = Object::decode(object.clone()).unwrap_or_else(|error| panic!("{error}")) {
                state.upsert(&object);
            }
        }
        state
    }

    fn write(&mut self) -> Result<(), WriteError> {
        if self.conflicts > 0 {
            self.conflicts -= 1;
            return Err(WriteError::Conflict);
        }
        Ok(())
    }

    fn find(&self, target: &Target) -> Result<Key, WriteError> {
        let key = key(&target.key.kind, &target.key.namespace, &target.key.name);
        let uid = self.objects.get(&key).map(|object| text(object, "/metadata/uid"));
        if uid == Some(target.uid.as_str()) {
            Ok(key)
        } else {
            Err(WriteError::NotFound)
        }
    }

    fn version(&self, key: &Key) -> &str {
        let object = self.objects.get(key);
        object.map_or("", |object| text(object, "/metadata/resourceVersion"))
    }

    /// The claim of this name, as a watcher sees it.
    pub fn claim(&self, namespace: &str, name: &str) -> PersistentVolumeClaim {
        self.state().claim(namespace, name).unwrap().clone()
    }

    /// Carries out an effect. `written` are the versions that earlier effects of the same list left.
    pub fn apply(&mut self, effect: &Effect, written: &mut BTreeMap<ObjectKey, String>) -> Result<(), WriteError> {
        match effect {
            Effect::Confirm(Fact::Unchanged(target)) => {
                let key = self.find(target)?;
                if self.version(&key) == target.resource_version {
                    Ok(())
                } else {
                    Err(WriteError::Stale)
                }
            }
            Effect::Confirm(Fact::Gone { key: gone, uid }) => {
                let found = self.objects.get(&key(&gone.kind, &gone.namespace, &gone.name));
                match found {
                    Some(found) if uid.is_empty() || text(found, "/metadata/uid") == uid => Err(WriteError::Stale),
                    _ => Ok(()),
                }
            }
            Effect::Patch(patch) => {
                let target = &patch.target;
                let key = self.find(target)?;
                self.write()?;
                let decided = written.get(&target.key).unwrap_or(&target.resource_version);
                if patch.guard == Guard::Version && self.version(&key) != decided {
                    return Err(WriteError::Conflict);
                }
                let mut object = self.objects[&key].clone();
                merge(&mut object, &patch.body);
                self.put(key.clone(), object);
                written.insert(target.key.clone(), self.version(&key).to_owned());
                Ok(())
            }
            Effect::Create(volume) => {
                self.write()?;
                let name = text(volume, "/metadata/name").to_owned();
                if self.get("PersistentVolume", "", &name).is_none() {
                    let mut volume = (**volume).clone();
                    volume["status"] = json!({"phase": "Pending"});
                    self.create(volume);
                }
                Ok(())
            }
            Effect::Delete(delete) => {
                let target = &delete.target;
                let key = self.find(target)?;
                self.write()?;
                self.delete(&target.key.kind, &target.key.namespace, &target.key.name);
                written.insert(target.key.clone(), self.version(&key).to_owned());
                Ok(())
            }
            Effect::Event(event) => {
                self.events.push(event.clone());
                Ok(())
            }
            Effect::Confirm(Fact::ClaimUnused { .. }) | Effect::Bind { .. } | Effect::LookAgain { .. } => {
                panic!("{effect:?} is none of a provisioner's")
            }
        }
    }

    /// What the volume controller does: claims go to their provisioner, reserved volumes to their
    /// claims, and volumes whose claims are gone are released.
    pub fn control(&mut self) {
        let claims: Vec<Value> = self.of_kind("PersistentVolumeClaim").cloned().collect();
        for claim in &claims {
            let (namespace, name) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
            let class = self.get("StorageClass", "", text(claim, "/spec/storageClassName"));
            let provisioner = class.map(|class| text(class, "/provisioner").to_owned());
            if let Some(provisioner) =
                provisioner.filter(|_| claim["metadata"]["annotations"][names::STORAGE_PROVISIONER].is_null())
            {
                self.edit("PersistentVolumeClaim", namespace, name, |claim| {
                    claim["metadata"]["annotations"][names::STORAGE_PROVISIONER] = json!(provisioner);
                });
            }
        }
        let volumes: Vec<Value> = self.of_kind("PersistentVolume").cloned().collect();
        for volume in &volumes {
            let name = text(volume, "/metadata/name");
            let (namespace, claim) = (
                text(volume, "/spec/claimRef/namespace"),
                text(volume, "/spec/claimRef/name"),
            );
            let found = self.get("PersistentVolumeClaim", namespace, claim);
            let uid = found.map(|claim| text(claim, "/metadata/uid").to_owned());
            let bound = found.is_some_and(|claim| !text(claim, "/spec/volumeName").is_empty());
            if uid.as_deref() == Some(text(volume, "/spec/claimRef/uid")) {
                if !bound {
                    self.edit("PersistentVolumeClaim", namespace, claim, |claim| {
                        claim["spec"]["volumeName"] = json!(name);
                        claim["status"]["phase"] = json!("Bound");
                    });
                }
                self.phase(name, "Bound");
            } else {
                self.phase(name, "Released");
            }
        }
    }

    fn phase(&mut self, volume: &str, phase: &str) {
        if self
            .get("PersistentVolume", "", volume)
            .is_some_and(|found| text(found, "/status/phase") != phase)
        {
            self.edit("PersistentVolume", "", volume, |volume| {
                volume["status"]["phase"] = json!(phase);
            });
        }
    }

    /// What a scheduler does that knows nothing of capacity: for each waiting claim of a delayed class
    /// the next node that was not tried yet. False if nothing is left to try for any.
    pub fn schedule(&mut self) -> bool {
        let nodes: Vec<String> = self
            .of_kind("Node")
            .map(|node| text(node, "/metadata/name").to_owned())
            .collect();
        let claims: Vec<Value> = self.of_kind("PersistentVolumeClaim").cloned().collect();
        let mut chosen = false;
        for claim in &claims {
            let name = text(claim, "/metadata/name");
            let class = self.get("StorageClass", "", text(claim, "/spec/storageClassName"));
            let delayed = class.is_some_and(|class| {
                [text(class, "/volumeBindingMode"), text(class, "/bindingMode")].contains(&"WaitForFirstConsumer")
            });
            let waits = text(claim, "/spec/volumeName").is_empty()
                && claim["metadata"]["annotations"][names::SELECTED_NODE].is_null()
                && claim["metadata"]["deletionTimestamp"].is_null();
            if !delayed || !waits {
                continue;
            }
            let tried = self.tried.entry(name.to_owned()).or_default();
            if let Some(node) = nodes.iter().find(|node| !tried.contains(*node)) {
                tried.insert(node.clone());
                chosen = true;
                self.edit(
                    "PersistentVolumeClaim",
                    text(claim, "/metadata/namespace"),
                    name,
                    |claim| {
                        claim["metadata"]["annotations"][names::SELECTED_NODE] = json!(node);
                    },
                );
            }
        }
        chosen
    }

    /// The words of all events about an object.
    pub fn told(&self, name: &str) -> Vec<String> {
        let about = self.events.iter().filter(|event| event.about.key.name == name);
        about
            .map(|event| format!("{}: {}", event.reason, event.message))
            .collect()
    }
}

/// A JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}

/// The volumes of a cluster by the claim they belong to.
pub fn claim_of(volume: &Value) -> &str {
    text(volume, "/spec/claimRef/name")
}
