//! What a provisioner knows about the cluster: the last observed state of each object.

use crate::answer::Then;
use crate::bids::{Bids, Wait};
use crate::rejections::Rejections;
use crate::request::Naming;
use crate::source;
use berth_core::api::{
    CsiNode, Kind, Node, Object, ObjectMeta, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment,
};
use berth_core::effect::ObjectKey;
use berth_core::names;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Whether an object's state is the known one, or older. Versions of one object increase.
fn is_known(new: &ObjectMeta, known: &ObjectMeta) -> bool {
    let version = |metadata: &ObjectMeta| metadata.resource_version.parse::<u64>().ok();
    new.uid == known.uid
        && version(new)
            .zip(version(known))
            .is_some_and(|(new, known)| new <= known)
}

/// The objects that provisioning reads. It has one writer, the caller.
#[derive(Clone, Debug, Default)]
pub struct State {
    naming: Naming,
    classes: BTreeMap<String, StorageClass>,
    nodes: BTreeMap<String, Node>,
    csi_nodes: BTreeMap<String, CsiNode>,
    volumes: BTreeMap<String, PersistentVolume>,
    claims: BTreeMap<(String, String), PersistentVolumeClaim>,
    attachments: BTreeMap<String, VolumeAttachment>,
    /// The attachments of each volume, by name.
    attached: BTreeMap<String, BTreeSet<String>>,
    rejections: Rejections,
    bids: Bids,
}

impl State {
    /// A state in which volumes are named like this.
    #[must_use]
    pub fn naming(naming: Naming) -> Self {
        Self {
            naming,
            ..Self::default()
        }
    }

    /// The name of the volume for a claim.
    #[must_use]
    pub fn volume_name(&self, claim: &PersistentVolumeClaim) -> String {
        self.naming.volume(claim)
    }

    /// Whether this or a newer state of a claim or volume is known: responses to writes may arrive before the watch, which
    /// then brings only echoes.
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

    /// Whether an object's change matters to provisioning. Nodes send heartbeats; only their labels matter here.
    #[must_use]
    pub fn is_news(&self, object: &Object) -> bool {
        let name = &object.metadata().name;
        match object {
            Object::Node(node) => {
                let known = self.nodes.get(name);
                known.is_none_or(|known| known.metadata.labels != node.metadata.labels)
            }
            Object::CsiNode(csi_node) => self.csi_nodes.get(name).is_none_or(|known| known.spec != csi_node.spec),
            _ => !self.knows(object),
        }
    }

    /// Applies the new state of an object, and returns the claims and volumes whose step must run. Kinds that provisioning
    /// does not read and objects without [news](Self::is_news) are skipped.
    pub fn apply(&mut self, object: &Object) -> Vec<ObjectKey> {
        if !self.is_news(object) {
            return Vec::new();
        }
        self.forget_rejections(object);
        let keys = self.concerned(object);
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
        keys
    }

    /// The steps that an object affects.
    fn concerned(&self, object: &Object) -> Vec<ObjectKey> {
        match object {
            Object::PersistentVolumeClaim(claim) => {
                // Its own, and that of its volume if that is being deleted or was created for an attempt.
                let volume = self.volume(&self.volume_name(claim)).filter(|volume| {
                    volume.metadata.is_deleting() || volume.metadata.annotation(names::MADE_FOR).is_some()
                });
                let volume = volume.map(|volume| ObjectKey::volume(&volume.metadata.name));
                // A claim that is being deleted may have waited for its clones.
                let source = source::cloned_claim(claim);
                let keys = std::iter::once(claim_key(claim)).chain(volume);
                keys.chain(source.filter(|key| self.is_waiting(key))).collect()
            }
            Object::PersistentVolume(volume) => vec![ObjectKey::volume(&volume.metadata.name)],
            Object::StorageClass(class) => self.unbound(|claim| claim.class_name() == Some(&class.metadata.name)),
            Object::Node(_) | Object::CsiNode(_) => self.selected(&object.metadata().name),
            _ => Vec::new(),
        }
    }

    /// Whether a claim is being deleted.
    fn is_waiting(&self, claim: &ObjectKey) -> bool {
        let claim = self.claim(&claim.namespace, &claim.name);
        claim.is_some_and(|claim| claim.metadata.is_deleting())
    }

    fn selected(&self, node: &str) -> Vec<ObjectKey> {
        self.unbound(|claim| claim.selected_node() == Some(node))
    }

    fn unbound(&self, wanted: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<ObjectKey> {
        let unbound = self.claims().filter(|claim| claim.spec.volume_name.is_empty());
        unbound.filter(|claim| wanted(claim)).map(claim_key).collect()
    }

    /// An earlier rejection may no longer apply after this change.
    fn forget_rejections(&mut self, object: &Object) {
        let metadata = object.metadata();
        if let Object::PersistentVolumeClaim(claim) = object
            && (claim.selected_node().is_some_and(|node| !node.is_empty()) || !claim.spec.volume_name.is_empty())
        {
            self.bids.forget(&metadata.namespace, &metadata.name);
        }
        match object {
            Object::PersistentVolumeClaim(claim) if !claim.spec.volume_name.is_empty() => {
                self.rejections.forget_claim(&metadata.namespace, &metadata.name);
            }
            Object::StorageClass(class) if self.classes.get(&metadata.name) != Some(&**class) => {
                self.rejections.clear();
            }
            Object::Node(_) | Object::CsiNode(_) => self.rejections.forget_node(&metadata.name),
            _ => {}
        }
    }

    /// Records what happened to a claim.
    pub fn concluded(&mut self, claim: &PersistentVolumeClaim, then: &Then, now: Timestamp) {
        match then {
            Then::Rejected { node } => self.rejections.add(claim, node, now),
            Then::Wait(wait) => self.bids.set(claim, *wait),
            Then::Rest | Then::Retry => {}
        }
    }

    /// When this provisioner tries to get a claim that those of all nodes compete for.
    #[must_use]
    pub fn waits_for(&self, claim: &PersistentVolumeClaim) -> Option<Wait> {
        self.bids.get(claim)
    }

    /// Until when a rejected node is not tried again for a claim.
    #[must_use]
    pub fn rejected_until(&self, claim: &PersistentVolumeClaim, node: &str) -> Option<Timestamp> {
        self.rejections.until(claim, node)
    }

    /// Removes an object, and returns the claims and volumes whose step must run.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) -> Vec<ObjectKey> {
        match kind {
            // Its space is free.
            Kind::PersistentVolume => self.rejections.clear(),
            Kind::PersistentVolumeClaim => {
                self.rejections.forget_claim(namespace, name);
                self.bids.forget(namespace, name);
            }
            _ => {}
        }
        match kind {
            Kind::StorageClass => drop(self.classes.remove(name)),
            Kind::Node => drop(self.nodes.remove(name)),
            Kind::CsiNode => drop(self.csi_nodes.remove(name)),
            Kind::PersistentVolume => {
                let volume = self.volumes.remove(name);
                // A volume deleted before its claim was bound is created again.
                let claim = volume.and_then(|volume| volume.spec.claim_ref.as_ref().map(ObjectKey::referred));
                return claim.into_iter().collect();
            }
            Kind::PersistentVolumeClaim => {
                let claim = self.claims.remove(&(namespace.to_owned(), name.to_owned()));
                let source = claim.and_then(|claim| source::cloned_claim(&claim));
                return source.filter(|key| self.is_waiting(key)).into_iter().collect();
            }
            // A volume may have waited to be detached.
            Kind::VolumeAttachment => return self.detach(name).map(ObjectKey::volume).into_iter().collect(),
            _ => {}
        }
        match kind {
            Kind::Node | Kind::CsiNode => self.selected(name),
            _ => Vec::new(),
        }
    }

    /// Removes an attachment. Returns its volume.
    fn detach(&mut self, name: &str) -> Option<String> {
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

    /// The metadata of a known claim or volume.
    #[must_use]
    pub fn metadata(&self, key: &ObjectKey) -> Option<&ObjectMeta> {
        match key.known_kind()? {
            Kind::PersistentVolumeClaim => Some(&self.claim(&key.namespace, &key.name)?.metadata),
            Kind::PersistentVolume => Some(&self.volume(&key.name)?.metadata),
            _ => None,
        }
    }

    /// The volume that a built-in provisioner may hold for a claim although its object was never written.
    #[must_use]
    pub fn unwritten_volume(&self, namespace: &str, claim: &str) -> Option<String> {
        let volume = self.volume_name(self.claim(namespace, claim)?);
        self.volume(&volume).is_none().then_some(volume)
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

fn claim_key(claim: &PersistentVolumeClaim) -> ObjectKey {
    ObjectKey::of(Kind::PersistentVolumeClaim, &claim.metadata)
}

fn attached_volume(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn attachment(name: &str, volume: &str, node: &str) -> Object {
        let object = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
            "spec": {"attacher": "a", "nodeName": node, "source": {"persistentVolumeName": volume}}});
        Object::decode(&object).unwrap().unwrap()
    }

    #[test]
    fn attachments_are_found_by_their_volume() {
        let mut state = State::default();
        state.apply(&attachment("a", "pv1", "n1"));
        state.apply(&attachment("b", "pv1", "n2"));
        state.apply(&attachment("c", "pv2", "n3"));
        assert_eq!(state.attached_to("pv1"), Some("n1"));
        let volume = [ObjectKey::volume("pv1")];
        assert_eq!(
            state.remove(Kind::VolumeAttachment, "", "a"),
            volume,
            "it may have waited"
        );
        assert_eq!(state.attached_to("pv1"), Some("n2"));
        // The same attachment, for another volume.
        state.apply(&attachment("b", "pv2", "n2"));
        assert_eq!(state.attached_to("pv1"), None);
        state.remove(Kind::VolumeAttachment, "", "c");
        assert_eq!(state.attached_to("pv2"), Some("n2"));
        assert_eq!(state.remove(Kind::VolumeAttachment, "", "c"), []);
    }

    #[test]
    fn an_echo_is_known_and_a_namesake_is_not() {
        let claim = |uid: &str, version: &str| {
            let metadata = json!({"name": "c", "namespace": "default", "uid": uid, "resourceVersion": version});
            let object = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": {}});
            Object::decode(&object).unwrap().unwrap()
        };
        let mut state = State::default();
        state.apply(&claim("u", "9"));
        assert!(state.knows(&claim("u", "9")) && state.knows(&claim("u", "7")));
        assert!(!state.knows(&claim("u", "10")) && !state.knows(&claim("v", "3")));
    }

    #[test]
    fn claims_of_a_node_and_of_a_volume_are_looked_at_again() {
        let decode = |object: &Value| Object::decode(object).unwrap().unwrap();
        let node = |label: &str, version: &str| {
            decode(&json!({"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "n1", "labels": {"zone": label}, "resourceVersion": version}}))
        };
        let annotations = json!({"volume.kubernetes.io/selected-node": "n1"});
        let claim = decode(&json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "c", "namespace": "default", "uid": "u", "annotations": annotations}, "spec": {}}));
        let volume = decode(
            &json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pvc-u"},
            "spec": {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": "u"}}}),
        );
        let claims = [ObjectKey::new("PersistentVolumeClaim", "default", "c")];
        let mut state = State::default();
        assert_eq!(state.apply(&claim), claims);
        assert_eq!(state.apply(&node("a", "1")), claims);
        assert_eq!(state.apply(&node("a", "2")), [], "it is alive, and that is all");
        assert_eq!(state.apply(&node("b", "3")), claims);
        assert_eq!(state.apply(&volume), [ObjectKey::volume("pvc-u")]);
        assert_eq!(
            state.remove(Kind::PersistentVolume, "", "pvc-u"),
            claims,
            "it is made again"
        );
        assert_eq!(state.remove(Kind::Node, "", "n1"), claims);
    }
}
