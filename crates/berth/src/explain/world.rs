//! The cluster in question: the compact model for decisions, and the objects for answers.
//!
//! Decisions read only the model. Objects are kept next to it for what the model drops (why a volume is not free, who owns a
//! pod) and for trying advice.

use super::evidence::Evidence;
use super::played::Turns;
use crate::input::Gaps;
use berth_core::api::{self, Object};
use berth_core::names;
use berth_scheduler::cluster::Cluster;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// A cluster that was read.
#[derive(Default)]
pub struct World {
    /// The model for decisions.
    pub cluster: Cluster,
    /// The objects for answers.
    pub objects: Objects,
    /// Traces of components.
    pub evidence: Evidence,
    /// What could not be read.
    pub gaps: Gaps,
    /// Its time. Unknown for files without events and leases.
    pub now: Option<Timestamp>,
    /// Which of the waiting pods get a place, if several wait.
    pub turns: Option<Turns>,
}

impl World {
    /// Adds an object.
    pub fn upsert(&mut self, object: Object) {
        self.cluster.upsert(&object);
        self.objects.keep(object);
    }

    /// The number of pods without a node.
    pub(super) fn waiting_pods(&self) -> usize {
        let waits = |pod: &&api::Pod| pod.spec.node_name.is_empty() && !pod.is_finished();
        self.objects.pods.values().filter(waits).count()
    }
}

/// Objects by name; namespaced ones by `namespace/name`.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    pub(super) nodes: BTreeMap<String, api::Node>,
    pub(super) csi_nodes: BTreeMap<String, api::CsiNode>,
    pub(super) volumes: BTreeMap<String, api::PersistentVolume>,
    pub(super) claims: BTreeMap<String, api::PersistentVolumeClaim>,
    pub(super) classes: BTreeMap<String, api::StorageClass>,
    pub(super) drivers: BTreeMap<String, api::CsiDriver>,
    pub(super) pods: BTreeMap<String, api::Pod>,
    /// The owners of ReplicaSets: a pod of a Deployment refers only to its ReplicaSet.
    owners: BTreeMap<String, Vec<api::OwnerReference>>,
}

impl Objects {
    /// Keeps an object, if answers use its kind.
    pub fn keep(&mut self, object: Object) {
        let name = object.metadata().full_name();
        match object {
            Object::Node(mut node) => {
                // Images take most of a node's memory, and answers do not use them.
                node.status.images.clear();
                self.nodes.insert(name, *node);
            }
            Object::CsiNode(node) => {
                self.csi_nodes.insert(name, *node);
            }
            Object::PersistentVolume(volume) => {
                self.volumes.insert(name, *volume);
            }
            Object::PersistentVolumeClaim(claim) => {
                self.claims.insert(name, *claim);
            }
            Object::StorageClass(class) => {
                self.classes.insert(name, *class);
            }
            Object::CsiDriver(driver) => {
                self.drivers.insert(name, *driver);
            }
            Object::Pod(pod) => {
                self.pods.insert(name, *pod);
            }
            Object::ReplicaSet(set) => {
                self.owners.insert(name, set.metadata.owner_references);
            }
            Object::Namespace(_)
            | Object::CsiStorageCapacity(_)
            | Object::VolumeAttachment(_)
            | Object::PriorityClass(_)
            | Object::Service(_)
            | Object::ReplicationController(_)
            | Object::StatefulSet(_)
            | Object::PodDisruptionBudget(_) => {}
        }
    }

    /// Whether a pod belongs to a workload, directly or through its ReplicaSet.
    pub(super) fn is_pod_of(&self, pod: &api::Pod, kind: &str, name: &str) -> bool {
        let is_meant = |owner: &api::OwnerReference| owner.kind == kind && owner.name == name;
        let through = |owner: &api::OwnerReference| {
            let set = format!("{}/{}", pod.metadata.namespace, owner.name);
            owner.kind == "ReplicaSet" && self.owners.get(&set).is_some_and(|owners| owners.iter().any(is_meant))
        };
        let mut owners = pod.metadata.owner_references.iter();
        owners.any(|owner| is_meant(owner) || through(owner))
    }

    /// The claim that a volume refers to. An earlier claim of its name is not it.
    pub(super) fn claim_of(&self, reference: &api::ObjectReference) -> Option<&api::PersistentVolumeClaim> {
        let claim = self
            .claims
            .get(&format!("{}/{}", reference.namespace, reference.name))?;
        let is_same = |uid: &str| reference.uid.is_empty() || uid.is_empty() || reference.uid == uid;
        Some(claim).filter(|claim| is_same(&claim.metadata.uid))
    }

    /// Whether a class is the default one.
    pub(super) fn has_default_class(&self) -> bool {
        let marks = [names::IS_DEFAULT_CLASS, names::IS_DEFAULT_CLASS_BETA];
        let is_default = |class: &api::StorageClass| {
            let annotations = &class.metadata.annotations;
            marks
                .iter()
                .any(|mark| annotations.get(*mark).is_some_and(|value| value == "true"))
        };
        self.classes.values().any(is_default)
    }

    /// The pods that use a claim, by name.
    pub(super) fn users_of<'o>(
        &'o self,
        namespace: &'o str,
        claim: &'o str,
    ) -> impl Iterator<Item = &'o api::Pod> + 'o {
        let pods = self
            .pods
            .values()
            .filter(move |pod| pod.metadata.namespace == namespace);
        pods.filter(move |pod| {
            let mut volumes = pod.spec.volumes.iter();
            volumes.any(|volume| volume.claim_name(&pod.metadata.name).as_deref() == Some(claim))
        })
    }
}
