//! Watched objects: what they change in the cluster, which pods they wake, and which bindings they advance.

use super::Scheduler;
use crate::cluster::{Cluster, CountedClaim};
use crate::events::{ClusterEvent, NodeFacets};
use berth_core::api::{self, Kind, Object};
use berth_core::clean::Rollback;
use berth_core::quantity::Quantity;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// What is remembered of a node to detect changes: heartbeats change nothing that decisions read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeDigest {
    labels: u64,
    taints: u64,
    allocatable: u64,
    images: u64,
}

impl NodeDigest {
    fn of(node: &api::Node) -> Self {
        let taints: Vec<_> = node.spec.taints.iter().map(|t| (&t.key, &t.value, &t.effect)).collect();
        let images: Vec<_> = node.status.images.iter().map(|i| (&i.names, i.size_bytes)).collect();
        Self {
            labels: digest(&node.metadata.labels),
            taints: digest(&(taints, node.spec.unschedulable)),
            allocatable: digest(&node.status.allocatable),
            images: digest(&images),
        }
    }

    fn facets(self, before: Self) -> NodeFacets {
        NodeFacets {
            labels: self.labels != before.labels,
            taints: self.taints != before.taints,
            allocatable: self.allocatable != before.allocatable,
        }
    }
}

fn digest(value: &impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Scheduler {
    /// Applies the state of a watched object.
    pub fn upsert(&mut self, object: &Object, now: Duration) {
        match object {
            Object::Pod(pod) => self.upsert_pod(pod, now),
            Object::Node(node) => self.upsert_node(object, node, now),
            Object::Namespace(_) => self.change_namespace(object, now),
            other => {
                let raised = self.raises_capacity(other);
                let counted = self.counted_claim(other);
                self.cluster.upsert(other);
                self.tell_recounted(other, counted, now);
                if let Some(event) = self.event_of(other).filter(|_| raised) {
                    self.happened(&event, now);
                }
                self.settle_promises(now);
                self.move_bindings_on(other, now);
                if let Object::PersistentVolumeClaim(claim) = other {
                    self.let_go(&claim.metadata.full_name(), now);
                }
            }
        }
    }

    /// Promised storage may no longer be needed: notifies the pods that wait for it, and schedules the next check.
    pub(super) fn settle_promises(&mut self, now: Duration) {
        for class in self.cluster.settle_promises() {
            self.happened(&ClusterEvent::CapacityRaised { class }, now);
        }
        let left = self.cluster.binder().seconds_to_promise_end();
        self.promise_end = left.map(|seconds| now + Duration::from_secs(seconds.max(1)));
    }

    /// Only the labels of a namespace matter.
    fn change_namespace(&mut self, object: &Object, now: Duration) {
        let name = &object.metadata().name;
        let labels = |cluster: &Cluster| {
            let name = cluster.symbols().get(name);
            name.map(|name| cluster.namespace_labels(name).clone())
        };
        let before = labels(&self.cluster);
        self.cluster.upsert(object);
        if labels(&self.cluster) != before {
            self.happened(&ClusterEvent::Namespace, now);
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str, now: Duration) {
        match kind {
            Kind::Pod => self.remove_pod(namespace, name, now),
            Kind::Node => self.remove_node(name, now),
            Kind::PersistentVolume => self.remove_volume(name, now),
            _ => {
                // What an event needs from the object must be read before it is removed.
                let event = self.event_of_removal(kind, namespace, name);
                self.cluster.remove(kind, namespace, name);
                if let Some(event) = event {
                    self.happened(&event, now);
                }
                self.settle_promises(now);
                if kind == Kind::PersistentVolumeClaim {
                    self.happened(&ClusterEvent::Uncounted, now);
                    self.check_binding_of_claim(&format!("{namespace}/{name}"), now);
                }
            }
        }
    }

    fn event_of_removal(&mut self, kind: Kind, namespace: &str, name: &str) -> Option<ClusterEvent> {
        let binder = self.cluster.binder();
        Some(match kind {
            Kind::PersistentVolumeClaim => ClusterEvent::Claim {
                claim: format!("{namespace}/{name}").into(),
            },
            Kind::StorageClass => ClusterEvent::Class {
                name: binder.symbols().get(name)?,
            },
            Kind::CsiNode => ClusterEvent::CsiNode {
                node: binder.node(name)?,
            },
            Kind::CsiDriver => ClusterEvent::CsiDriver {
                name: binder.symbols().get(name)?,
            },
            Kind::VolumeAttachment => ClusterEvent::Attachment {
                node: binder.attachment_node(name)?,
            },
            Kind::Namespace => ClusterEvent::Namespace,
            // Less capacity helps no pod; the others affect no filter.
            Kind::CsiStorageCapacity
            | Kind::Node
            | Kind::Pod
            | Kind::PersistentVolume
            | Kind::PriorityClass
            | Kind::Service
            | Kind::ReplicationController
            | Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::PodDisruptionBudget => return None,
        })
    }

    fn remove_node(&mut self, name: &str, now: Duration) {
        self.nodes.remove(name);
        // An unknown one was already gone.
        let known = self.cluster.binder().node(name);
        let Some(symbol) = known.and_then(|_| self.cluster.symbols().get(name)) else {
            return;
        };
        let pods = self.cluster.pods().of_node(symbol);
        let counted = pods.filter(|(_, running)| running.node.is_some());
        let pods = counted.map(|(_, running)| Arc::clone(&running.footprint)).collect();
        self.cluster.remove(Kind::Node, "", name);
        self.check_all_bindings(now);
        self.happened(&ClusterEvent::NodeGone { pods }, now);
        self.room_is_gone(name, now);
    }

    fn remove_volume(&mut self, name: &str, now: Duration) {
        let binder = self.cluster.binder();
        let id = binder.volume_id(name);
        let Some((id, volume)) = id.and_then(|id| Some((id, binder.volume(id)?))) else {
            return;
        };
        let class = volume.class;
        let claim = volume.claim_ref.as_ref();
        let claim = claim.map(|claim| format!("{}/{}", binder.symbols().text(claim.namespace), claim.name));
        self.cluster.remove(Kind::PersistentVolume, "", name);
        self.settle_promises(now);
        let name = name.into();
        self.happened(&ClusterEvent::Volume { name, class }, now);
        self.happened(&ClusterEvent::Uncounted, now);
        self.check_bindings_of_volume(id, now);
        if let Some(claim) = claim {
            self.check_binding_of_claim(&claim, now);
        }
    }

    fn upsert_node(&mut self, object: &Object, node: &api::Node, now: Duration) {
        let digest = NodeDigest::of(node);
        let before = self.nodes.insert(node.metadata.name.as_str().into(), digest);
        if before == Some(digest) {
            return;
        }
        self.cluster.upsert(object);
        let Some(id) = self.cluster.binder().node(&node.metadata.name) else {
            return;
        };
        let event = match before {
            None => ClusterEvent::NodeAdded {
                node: id,
                occupied: !self.cluster.pods().on_node(self.cluster.nodes().name(id)).is_empty(),
            },
            Some(before) => ClusterEvent::NodeChanged {
                node: id,
                facets: digest.facets(before),
            },
        };
        self.happened(&event, now);
        if before.is_some() {
            self.room_changed(&node.metadata.name, now);
        }
    }

    /// What the claim of an object, or of its volume, counts as on the nodes where it is in use.
    fn counted_claim(&self, object: &Object) -> Option<CountedClaim> {
        let (namespace, name) = match object {
            Object::PersistentVolumeClaim(claim) => (&claim.metadata.namespace, &claim.metadata.name),
            Object::PersistentVolume(volume) => {
                let claim = volume.spec.claim_ref.as_ref()?;
                (&claim.namespace, &claim.name)
            }
            _ => return None,
        };
        self.cluster.counted_claim(namespace, name)
    }

    /// A claim that now counts as another volume may free an attach slot on the nodes where it is in use.
    fn tell_recounted(&mut self, object: &Object, before: Option<CountedClaim>, now: Duration) {
        let Some(CountedClaim { counted, nodes }) = before else {
            return;
        };
        if self.counted_claim(object).is_some_and(|after| after.counted == counted) {
            return;
        }
        for node in nodes {
            self.happened(&ClusterEvent::Attachment { node }, now);
        }
    }

    fn event_of(&mut self, object: &Object) -> Option<ClusterEvent> {
        let binder = self.cluster.binder_mut();
        Some(match object {
            // No pod fits because its claim is on the way out.
            Object::PersistentVolumeClaim(claim)
                if claim.metadata.is_deleting() || Rollback::of_claim(claim).is_some() =>
            {
                return None;
            }
            Object::PersistentVolumeClaim(claim) => ClusterEvent::Claim {
                claim: claim.metadata.full_name().into(),
            },
            Object::PersistentVolume(volume) => ClusterEvent::Volume {
                name: volume.metadata.name.as_str().into(),
                class: binder.symbols_mut().intern(volume.class_name()),
            },
            Object::StorageClass(class) => ClusterEvent::Class {
                name: binder.symbols_mut().intern(&class.metadata.name),
            },
            Object::CsiNode(node) => ClusterEvent::CsiNode {
                node: binder.node(&node.metadata.name)?,
            },
            Object::CsiDriver(driver) => ClusterEvent::CsiDriver {
                name: binder.symbols_mut().intern(&driver.metadata.name),
            },
            Object::CsiStorageCapacity(capacity) => ClusterEvent::CapacityRaised {
                class: binder.symbols_mut().intern(&capacity.storage_class_name),
            },
            Object::VolumeAttachment(attachment) => ClusterEvent::Attachment {
                node: binder.attachment_node(&attachment.metadata.name)?,
            },
            Object::Namespace(_)
            | Object::PriorityClass(_)
            | Object::Node(_)
            | Object::Pod(_)
            | Object::Service(_)
            | Object::ReplicationController(_)
            | Object::ReplicaSet(_)
            | Object::StatefulSet(_)
            | Object::PodDisruptionBudget(_) => return None,
        })
    }

    /// Whether published capacity grew; other kinds of objects always count.
    fn raises_capacity(&self, object: &Object) -> bool {
        let Object::CsiStorageCapacity(capacity) = object else {
            return true;
        };
        let before = self.cluster.binder().published_capacity(&capacity.metadata.full_name());
        let value = |quantity: Option<Quantity>| quantity.map(Quantity::value);
        let after = limits(value(capacity.capacity), value(capacity.maximum_volume_size));
        before.is_none_or(|(capacity, maximum)| {
            let before = limits(capacity, maximum);
            after.0 > before.0 || after.1 > before.1
        })
    }
}

/// The largest volume that fits into published capacity, and the total for all volumes. A maximum size replaces the capacity
/// for one volume: without it, a larger one may fit.
fn limits(capacity: Option<i64>, maximum_volume_size: Option<i64>) -> (Option<i64>, i64) {
    (maximum_volume_size.or(capacity), capacity.unwrap_or(i64::MAX))
}
