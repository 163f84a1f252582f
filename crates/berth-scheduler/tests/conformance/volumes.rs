//! The volumes of a decision: checked against the rules themselves, and compared with the recorded ones.

use berth_core::api::{CsiStorageCapacity, Object, PersistentVolume, PersistentVolumeClaim};
use berth_core::label::{LabelSelector, Labels};
use berth_core::node_selector::NodeSelector;
use berth_core::symbols::Symbols;
use berth_core::zone::allowed_nodes;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The volumes chosen for a pod on a node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) bindings: BTreeMap<String, String>,
    pub(crate) provisions: BTreeSet<String>,
}

impl Chosen {
    pub(crate) fn recorded(volumes: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let bindings = volumes["static"].as_object().into_iter().flatten();
        let provisions = volumes["provision"].as_array().into_iter().flatten();
        Self {
            bindings: bindings.map(|(claim, volume)| (claim.clone(), text(volume))).collect(),
            provisions: provisions.map(text).collect(),
        }
    }
}

/// The objects of a case against which choices are checked.
pub(crate) struct Storage {
    volumes: BTreeMap<String, PersistentVolume>,
    claims: BTreeMap<String, PersistentVolumeClaim>,
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    capacities: Vec<CsiStorageCapacity>,
}

impl Storage {
    pub(crate) fn of(objects: &[Value]) -> Self {
        let mut storage = Self {
            volumes: BTreeMap::new(),
            claims: BTreeMap::new(),
            nodes: BTreeMap::new(),
            capacities: Vec::new(),
        };
        for object in objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            match Object::decode(object) {
                Ok(Some(Object::PersistentVolume(volume))) => {
                    storage.volumes.insert(name, *volume);
                }
                Ok(Some(Object::PersistentVolumeClaim(claim))) => {
                    storage.claims.insert(name, *claim);
                }
                Ok(Some(Object::CsiStorageCapacity(capacity))) => storage.capacities.push(*capacity),
                Ok(Some(Object::Node(node))) => {
                    storage.nodes.insert(name, node.metadata.labels);
                }
                _ => {}
            }
        }
        storage
    }

    /// The total capacity of the chosen volumes.
    pub(crate) fn total(&self, chosen: &Chosen) -> i64 {
        let capacity = |name: &String| self.volumes.get(name).map_or(0, capacity_of);
        chosen.bindings.values().map(capacity).sum()
    }

    /// What is wrong with a choice, by the rules of KEP-490 (Scheduler Changes, Predicate).
    pub(crate) fn faults(&self, node: &str, chosen: &Chosen) -> Vec<String> {
        let mut faults = Vec::new();
        let mut taken = BTreeSet::new();
        for (claim, volume) in &chosen.bindings {
            if !taken.insert(volume) {
                faults.push(format!("{node}: volume {volume} is given twice"));
            }
            if !self.may_bind(claim, volume, node) {
                faults.push(format!("{node}: claim {claim} must not take volume {volume}"));
            }
        }
        faults
    }

    fn may_bind(&self, claim: &str, volume: &str, node: &str) -> bool {
        let (Some(claim), Some(volume)) = (self.claims.get(claim), self.volumes.get(volume)) else {
            return false;
        };
        let (wanted, offered) = (&claim.spec, &volume.spec);
        let reserved = offered.claim_ref.as_ref().map(|reference| {
            reference.name == claim.metadata.name
                && reference.namespace == claim.metadata.namespace
                && (reference.uid.is_empty() || reference.uid == claim.metadata.uid)
        });
        let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
        let free = volume.status.phase == "Available"
            && wanted
                .access_modes
                .iter()
                .all(|mode| offered.access_modes.contains(mode))
            && self.selected(claim, volume);
        reserved != Some(false)
            && (reserved == Some(true) || free)
            && volume.metadata.deletion_timestamp.is_none()
            && claim.class_name().unwrap_or_default() == volume.class_name()
            && capacity_of(volume) >= claim.requested_bytes()
            && mode(&wanted.volume_mode) == mode(&offered.volume_mode)
            && wanted.volume_attributes_class_name.as_deref().unwrap_or_default()
                == offered.volume_attributes_class_name.as_deref().unwrap_or_default()
            && self.reaches(node, volume)
    }

    /// Whether every volume to provision fits into the capacity published for its class and node.
    pub(crate) fn has_room(&self, node: &str, chosen: &Chosen) -> bool {
        let Some(labels) = self.nodes.get(node) else {
            return false;
        };
        let holds = |claim: &PersistentVolumeClaim, capacity: &CsiStorageCapacity| {
            let mut symbols = Symbols::default();
            let topology = LabelSelector::new(&mut symbols, capacity.node_topology.as_ref());
            let largest = capacity.maximum_volume_size.or(capacity.capacity);
            capacity.storage_class_name == claim.class_name().unwrap_or_default()
                && capacity.node_topology.is_some()
                && topology.matches(&Labels::new(&mut symbols, labels))
                && largest.is_some_and(|largest| largest.value() >= claim.requested_bytes())
        };
        chosen.provisions.iter().all(|claim| {
            let claim = self.claims.get(claim);
            claim.is_some_and(|claim| self.capacities.iter().any(|capacity| holds(claim, capacity)))
        })
    }

    /// Whether labels of a chosen volume locate it away from the node.
    pub(crate) fn is_elsewhere(&self, node: &str, chosen: &Chosen) -> bool {
        let mut volumes = chosen.bindings.values().filter_map(|name| self.volumes.get(name));
        volumes.any(|volume| {
            let mut symbols = Symbols::default();
            let allowed = allowed_nodes(&mut symbols, &volume.metadata.labels);
            let labels = self.nodes.get(node).map(|labels| Labels::new(&mut symbols, labels));
            let name = symbols.intern(node);
            let matches = |labels: Labels| allowed.is_none_or(|allowed| allowed.matches(&symbols, name, &labels));
            !labels.is_some_and(matches)
        })
    }

    fn selected(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
        let mut symbols = Symbols::default();
        let labels = Labels::new(&mut symbols, &volume.metadata.labels);
        let selector = claim.spec.selector.as_ref();
        selector.is_none() || LabelSelector::new(&mut symbols, selector).matches(&labels)
    }

    fn reaches(&self, node: &str, volume: &PersistentVolume) -> bool {
        let required = volume
            .spec
            .node_affinity
            .as_ref()
            .and_then(|affinity| affinity.required.as_ref());
        let (Some(required), Some(labels)) = (required, self.nodes.get(node)) else {
            return self.nodes.contains_key(node);
        };
        let mut symbols = Symbols::default();
        let selector = NodeSelector::new(&mut symbols, required);
        let labels = Labels::new(&mut symbols, labels);
        let name = symbols.intern(node);
        selector.matches(&symbols, name, &labels)
    }
}

fn capacity_of(volume: &PersistentVolume) -> i64 {
    volume.spec.capacity.get("storage").map_or(0, |size| size.value())
}
