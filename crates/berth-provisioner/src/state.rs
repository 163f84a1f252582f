//! What a provisioner knows of the cluster: the last seen state of each object.

use berth_core::api::{
    CsiNode, Kind, Node, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
use std::collections::BTreeMap;

/// Whether one state of an object is older than another. Versions of one object grow.
fn is_older(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.parse::<u64>().ok();
    one.uid == other.uid && version(one).zip(version(other)).is_some_and(|(one, other)| one < other)
}

/// The objects that provisioning reads. Whoever feeds it decides how; it has one writer.
#[derive(Clone, Debug, Default)]
pub struct State {
    classes: BTreeMap<String, StorageClass>,
    nodes: BTreeMap<String, Node>,
    csi_nodes: BTreeMap<String, CsiNode>,
    volumes: BTreeMap<String, PersistentVolume>,
    claims: BTreeMap<(String, String), PersistentVolumeClaim>,
    attachments: BTreeMap<String, VolumeAttachment>,
}

impl State {
    /// Takes in the new state of an object. Kinds that provisioning does not read are skipped, and so is a claim or
    /// volume in an older version than the one that is known: answers to writes may overtake a watch.
    pub fn upsert(&mut self, object: &Object) {
        let name = object.metadata().name.clone();
        let known = match object {
            Object::PersistentVolume(_) => self.volumes.get(&name).map(|volume| &volume.metadata),
            Object::PersistentVolumeClaim(claim) => {
                self.claim(&claim.metadata.namespace, &name).map(|one| &one.metadata)
            }
            _ => None,
        };
        if known.is_some_and(|known| is_older(object.metadata(), known)) {
            return;
        }
        match object {
            Object::StorageClass(class) => drop(self.classes.insert(name, (**class).clone())),
            Object::Node(node) => drop(self.nodes.insert(name, (**node).clone())),
            Object::CsiNode(csi_node) => drop(self.csi_nodes.insert(name, (**csi_node).clone())),
            Object::PersistentVolume(volume) => drop(self.volumes.insert(name, (**volume).clone())),
            Object::PersistentVolumeClaim(claim) => {
                let key = (claim.metadata.namespace.clone(), name);
                drop(self.claims.insert(key, (**claim).clone()));
            }
            Object::VolumeAttachment(attachment) => drop(self.attachments.insert(name, (**attachment).clone())),
            // The model reads more kinds than provisioning does.
            _ => {}
        }
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::StorageClass => drop(self.classes.remove(name)),
            Kind::Node => drop(self.nodes.remove(name)),
            Kind::CsiNode => drop(self.csi_nodes.remove(name)),
            Kind::PersistentVolume => drop(self.volumes.remove(name)),
            Kind::PersistentVolumeClaim => {
                drop(self.claims.remove(&(namespace.to_owned(), name.to_owned())));
            }
            Kind::VolumeAttachment => drop(self.attachments.remove(name)),
            _ => {}
        }
    }

    /// A class.
    #[must_use]
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        self.classes.get(name)
    }

    /// All classes, by name.
    pub fn classes(&self) -> impl Iterator<Item = &StorageClass> {
        self.classes.values()
    }

    /// All nodes.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<String, Node> {
        &self.nodes
    }

    /// What drivers registered on nodes.
    #[must_use]
    pub fn csi_nodes(&self) -> &BTreeMap<String, CsiNode> {
        &self.csi_nodes
    }

    /// A volume.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        self.volumes.get(name)
    }

    /// All volumes, by name.
    pub fn volumes(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.volumes.values()
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, namespace: &str, name: &str) -> Option<&PersistentVolumeClaim> {
        self.claims.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All claims, by namespace and name.
    pub fn claims(&self) -> impl Iterator<Item = &PersistentVolumeClaim> {
        self.claims.values()
    }

    /// A node that a volume is attached to, or about to be.
    #[must_use]
    pub fn attached_to(&self, volume: &str) -> Option<&str> {
        self.attachments
            .values()
            .find(|attachment| attachment.spec.source.persistent_volume_name.as_deref() == Some(volume))
            .map(|attachment| attachment.spec.node_name.as_str())
    }
}
