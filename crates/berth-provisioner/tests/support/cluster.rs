//! The cluster of the tests, with a scheduler that chooses the next node and a controller that completes bindings.

use berth_core::api::{Object, PersistentVolumeClaim};
use berth_core::effect::{Effect, Refusal};
use berth_core::names;
use berth_provisioner::state::State;
use berth_testing::{Carried, Cluster as Objects, Fault};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

/// Objects in memory, and the state of scheduler and controller.
#[derive(Default)]
pub struct Cluster {
    objects: Objects,
    /// This many of the next writes get a conflict.
    pub conflicts: usize,
    /// Nodes that were tried for a claim, by its name.
    pub tried: BTreeMap<String, BTreeSet<String>>,
}

impl Deref for Cluster {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}

impl DerefMut for Cluster {
    fn deref_mut(&mut self) -> &mut Objects {
        &mut self.objects
    }
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

    /// Creates an object. An example of KEP-490 spells `name` with a capital letter.
    pub fn create(&mut self, mut object: Value) {
        if let Some(metadata) = object["metadata"].as_object_mut()
            && let Some(name) = metadata.remove("Name")
        {
            metadata.insert("name".into(), name);
        }
        self.objects.create_unprotected(object).unwrap();
    }

    /// The state of a watcher.
    pub fn state(&self) -> State {
        let mut state = State::default();
        for object in self.objects.objects() {
            if let Some(object) = Object::decode(object).unwrap_or_else(|error| panic!("{error}")) {
                state.apply(&object);
            }
        }
        state
    }

    /// The claim with this name, as a watcher sees it.
    pub fn claim(&self, name: &str) -> PersistentVolumeClaim {
        self.state().claim("default", name).unwrap().clone()
    }

    /// Carries out the next effect of a list.
    pub fn apply(&mut self, effect: &Effect, carried: &mut Carried) -> Result<(), Refusal> {
        let is_write = effect.writes_to().is_some();
        let fault = if is_write && self.conflicts > 0 {
            self.conflicts -= 1;
            Fault::Conflict
        } else {
            Fault::None
        };
        self.objects.carry_out_next(effect, fault, carried)
    }

    /// The actions of the volume controller: claims are assigned to their provisioner, reserved volumes to their
    /// claims, and volumes of deleted claims are released.
    pub fn control(&mut self) {
        let claims: Vec<Value> = self.of_kind("PersistentVolumeClaim").cloned().collect();
        for claim in &claims {
            let name = text(claim, "/metadata/name");
            let class = self.get("StorageClass", text(claim, "/spec/storageClassName"));
            let provisioner = class.map(|class| text(class, "/provisioner").to_owned());
            if let Some(provisioner) =
                provisioner.filter(|_| claim["metadata"]["annotations"][names::STORAGE_PROVISIONER].is_null())
            {
                self.edit("PersistentVolumeClaim", name, |claim| {
                    claim["metadata"]["annotations"][names::STORAGE_PROVISIONER] = json!(provisioner);
                });
            }
        }
        let volumes: Vec<Value> = self.of_kind("PersistentVolume").cloned().collect();
        for volume in &volumes {
            let name = text(volume, "/metadata/name");
            let claim = text(volume, "/spec/claimRef/name");
            let found = self.get("PersistentVolumeClaim", claim);
            let uid = found.map(|claim| text(claim, "/metadata/uid").to_owned());
            let bound = found.is_some_and(|claim| !text(claim, "/spec/volumeName").is_empty());
            if uid.as_deref() == Some(text(volume, "/spec/claimRef/uid")) {
                if !bound {
                    self.edit("PersistentVolumeClaim", claim, |claim| {
                        claim["spec"]["volumeName"] = json!(name);
                        claim["status"]["phase"] = json!("Bound");
                    });
                }
                self.phase(name, "Bound");
            } else {
                self.phase(name, "Released");
                self.unprotect(name);
            }
        }
    }

    fn phase(&mut self, volume: &str, phase: &str) {
        if self
            .get("PersistentVolume", volume)
            .is_some_and(|found| text(found, "/status/phase") != phase)
        {
            self.edit("PersistentVolume", volume, |volume| {
                volume["status"]["phase"] = json!(phase);
            });
        }
    }

    /// Removes the protection of a volume that no claim uses.
    fn unprotect(&mut self, volume: &str) {
        if self.get("PersistentVolume", volume).is_some() {
            self.edit("PersistentVolume", volume, |volume| {
                if let Some(finalizers) = volume["metadata"]["finalizers"].as_array_mut() {
                    finalizers.retain(|finalizer| *finalizer != names::VOLUME_PROTECTION);
                }
            });
        }
    }

    /// A scheduler without capacity information: selects the next untried node for each waiting claim of a delayed
    /// class. Returns false if nothing is left to try.
    pub fn schedule(&mut self) -> bool {
        let nodes: Vec<String> = self
            .of_kind("Node")
            .map(|node| text(node, "/metadata/name").to_owned())
            .collect();
        let claims: Vec<Value> = self.of_kind("PersistentVolumeClaim").cloned().collect();
        let mut chosen = false;
        for claim in &claims {
            let name = text(claim, "/metadata/name");
            let class = self.get("StorageClass", text(claim, "/spec/storageClassName"));
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
                self.edit("PersistentVolumeClaim", name, |claim| {
                    claim["metadata"]["annotations"][names::SELECTED_NODE] = json!(node);
                });
            }
        }
        chosen
    }

    /// The messages of all events about an object.
    pub fn told(&self, name: &str) -> Vec<String> {
        let about = self.events().iter().filter(|event| event.about.key.name == name);
        about
            .map(|event| format!("{}: {}", event.reason, event.message))
            .collect()
    }
}

/// The volumes of a cluster by the claim they belong to.
pub fn claim_of(volume: &Value) -> &str {
    text(volume, "/spec/claimRef/name")
}
