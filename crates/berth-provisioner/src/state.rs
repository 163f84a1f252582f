//! What a provisioner knows of the cluster: the last seen state of each object.

use crate::answer::Then;
use crate::rejections::Rejections;
use berth_core::api::{
    CsiNode, Kind, Node, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Whether a state of an object is the one that is known, or one from before. Versions of one object grow.
fn is_known(new: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.parse::<u64>().ok();
    new.uid == known.uid
        && version(new)
            .zip(version(known))
            .is_some_and(|(new, known)| new <= known)
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
    /// The attachments of each volume, by name.
    attached: BTreeMap<String, BTreeSet<String>>,
    rejections: Rejections,
}

impl State {
    /// Whether this state of a claim or volume is known, or a newer one: answers to writes may overtake a watch, which then
    /// brings nothing but echoes.
    #[must_use]
    pub fn knows(&self, object: &Object) -> bool {
        let metadata = object.metadata();
        let known = match object {
            Object::PersistentVolume(_) => self.volumes.get(&metadata.name).map(|volume| &volume.metadata),
            Object::PersistentVolumeClaim(_) => {
                self.claim(&metadata.namespace, &metadata.name).map(|one| &one.metadata)
            }
            _ => None,
        };
        known.is_some_and(|known| is_known(metadata, known))
    }

    /// Takes in the new state of an object. Kinds that provisioning does not read are skipped, and so is what is
    /// [known](Self::knows).
    pub fn upsert(&mut self, object: &Object) {
        if self.knows(object) {
            return;
        }
        self.forget_rejections(object);
        let name = object.metadata().name.clone();
        match object {
            Object::StorageClass(class) => drop(self.classes.insert(name, (**class).clone())),
            Object::Node(node) => drop(self.nodes.insert(name, (**node).clone())),
            Object::CsiNode(csi_node) => drop(self.csi_nodes.insert(name, (**csi_node).clone())),
            Object::PersistentVolume(volume) => drop(self.volumes.insert(name, (**volume).clone())),
            Object::PersistentVolumeClaim(claim) => {
                let key = (claim.metadata.namespace.clone(), name);
                drop(self.claims.insert(key, (**claim).clone()));
            }
            Object::VolumeAttachment(attachment) => {
                self.detach(&name);
                if let Some(volume) = attached_volume(attachment) {
                    let of_volume = self.attached.entry(volume.to_owned()).or_default();
                    of_volume.insert(name.clone());
                }
                drop(self.attachments.insert(name, (**attachment).clone()));
            }
            // The model reads more kinds than provisioning does.
            _ => {}
        }
    }

    /// What was rejected before this change may do now.
    fn forget_rejections(&mut self, object: &Object) {
        let metadata = object.metadata();
        match object {
            Object::PersistentVolumeClaim(claim) if !claim.spec.volume_name.is_empty() => {
                self.rejections.forget_claim(&metadata.namespace, &metadata.name);
            }
            Object::StorageClass(class) if self.classes.get(&metadata.name) != Some(&**class) => {
                self.rejections.clear();
            }
            Object::Node(node) => {
                let known = self.nodes.get(&metadata.name);
                if known.is_none_or(|known| known.metadata.labels != node.metadata.labels) {
                    self.rejections.forget_node(&metadata.name);
                }
            }
            Object::CsiNode(csi_node) => {
                let known = self.csi_nodes.get(&metadata.name);
                if known.is_none_or(|known| known.spec != csi_node.spec) {
                    self.rejections.forget_node(&metadata.name);
                }
            }
            _ => {}
        }
    }

    /// Takes in what became of a claim.
    pub fn concluded(&mut self, claim: &PersistentVolumeClaim, then: &Then, now: Timestamp) {
        if let Then::Rejected { node } = then {
            self.rejections.add(claim, node, now);
        }
    }

    /// Until when a node is not tried again for a claim that it was rejected for.
    #[must_use]
    pub fn rejected_until(&self, claim: &PersistentVolumeClaim, node: &str) -> Option<Timestamp> {
        self.rejections.until(claim, node)
    }

    /// Forgets an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            // Its room is free.
            Kind::PersistentVolume => self.rejections.clear(),
            Kind::PersistentVolumeClaim => self.rejections.forget_claim(namespace, name),
            _ => {}
        }
        match kind {
            Kind::StorageClass => drop(self.classes.remove(name)),
            Kind::Node => drop(self.nodes.remove(name)),
            Kind::CsiNode => drop(self.csi_nodes.remove(name)),
            Kind::PersistentVolume => drop(self.volumes.remove(name)),
            Kind::PersistentVolumeClaim => {
                drop(self.claims.remove(&(namespace.to_owned(), name.to_owned())));
            }
            Kind::VolumeAttachment => drop(self.detach(name)),
            _ => {}
        }
    }

    /// Forgets an attachment. Gives the volume that it was of.
    pub fn detach(&mut self, name: &str) -> Option<String> {
        let attachment = self.attachments.remove(name)?;
        let volume = attached_volume(&attachment)?;
        if let Some(of_volume) = self.attached.get_mut(volume) {
            of_volume.remove(name);
            if of_volume.is_empty() {
                self.attached.remove(volume);
            }
        }
        Some(volume.to_owned())
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
        let first = self.attached.get(volume)?.first()?;
        let attachment = self.attachments.get(first)?;
        Some(attachment.spec.node_name.as_str())
    }
}

fn attached_volume(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attachment(name: &str, volume: &str, node: &str) -> Object {
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "a", "nodeName": node, "source": {"persistentVolumeName": volume}}});
        Object::decode(object).unwrap().unwrap()
    }

    #[test]
    fn attachments_are_found_by_their_volume() {
        let mut state = State::default();
        state.upsert(&attachment("a", "pv1", "n1"));
        state.upsert(&attachment("b", "pv1", "n2"));
        state.upsert(&attachment("c", "pv2", "n3"));
        assert_eq!(state.attached_to("pv1"), Some("n1"));
        assert_eq!(state.detach("a").as_deref(), Some("pv1"));
        assert_eq!(state.attached_to("pv1"), Some("n2"));
        // The same attachment of another volume.
        state.upsert(&attachment("b", "pv2", "n2"));
        assert_eq!(state.attached_to("pv1"), None);
        state.remove(Kind::VolumeAttachment, "", "c");
        assert_eq!(state.attached_to("pv2"), Some("n2"));
        assert_eq!(state.detach("c"), None);
    }

    #[test]
    fn an_echo_is_known_and_a_namesake_is_not() {
        let claim = |uid: &str, version: &str| {
            let metadata = json!({"name": "c", "namespace": "default", "uid": uid, "resourceVersion": version});
            let object = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}});
            Object::decode(object).unwrap().unwrap()
        };
        let mut state = State::default();
        state.upsert(&claim("u", "9"));
        assert!(state.knows(&claim("u", "9")) && state.knows(&claim("u", "7")));
        assert!(!state.knows(&claim("u", "10")) && !state.knows(&claim("v", "3")));
    }
}
