//! Watched objects: what they change in the cluster, whom they wake, and which bindings they move on.

use super::{PendingPod, Scheduler, scheduler_name};
use crate::cluster::Cluster;
use crate::events::{ClusterEvent, NodeFacets};
use crate::pod::Footprint;
use crate::queue::PodKey;
use berth_core::api::{self, Kind, Object};
use berth_core::nodes::NodeId;
use rustc_hash::FxHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// What is remembered of a node to tell what changed: heartbeats change nothing that decisions read.
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
    /// Takes over the state of a watched object.
    pub fn upsert(&mut self, object: &Object, now: Duration) {
        match object {
            Object::Pod(pod) => self.upsert_pod(pod, now),
            Object::Node(node) => self.upsert_node(object, node, now),
            Object::Namespace(_) => self.change_namespace(object, now),
            other => {
                let raised = self.raises_capacity(other);
                self.cluster.upsert(other);
                if let Some(event) = self.event_of(other).filter(|_| raised) {
                    self.happened(&event, now);
                }
                self.move_bindings_on(other, now);
            }
        }
    }

    /// Only the labels of a namespace matter to anybody.
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

    /// Takes over that an object is gone.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str, now: Duration) {
        match kind {
            Kind::Pod => self.remove_pod(namespace, name, now),
            Kind::Node => self.remove_node(name, now),
            Kind::PersistentVolume => self.remove_volume(name, now),
            _ => {
                // What an event needs to know of the object must be known before it is gone.
                let event = self.event_of_removal(kind, namespace, name);
                self.cluster.remove(kind, namespace, name);
                if let Some(event) = event {
                    self.happened(&event, now);
                }
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
            // Less capacity helps nobody; the others matter to no filter.
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
        let Some(symbol) = self.cluster.symbols().get(name) else {
            return;
        };
        let pods = self.cluster.pods().of_node(symbol);
        let counted = pods.filter(|(_, running)| running.node.is_some());
        let pods = counted.map(|(_, running)| Arc::clone(&running.footprint)).collect();
        self.cluster.remove(Kind::Node, "", name);
        self.check_all_bindings(now);
        self.happened(&ClusterEvent::NodeGone { pods }, now);
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
    }

    fn upsert_pod(&mut self, pod: &api::Pod, now: Duration) {
        let key: PodKey = pod.metadata.full_name().into();
        if !pod.spec.node_name.is_empty() {
            match self.cluster.binder().node(&pod.spec.node_name) {
                Some(node) => self.settle_room(&key, node, now),
                None => self.give_up_room(&key, now),
            }
            self.confirm_binding(&key, pod);
            self.drop_pending(&key, now);
            self.track_running(pod, now);
            return;
        }
        let profile = self.profiles.get(scheduler_name(pod));
        let Some(profile) = profile.filter(|_| !pod.is_finished() && !pod.metadata.is_deleting()) else {
            self.give_up_room(&key, now);
            self.drop_pending(&key, now);
            return;
        };
        let adapted = profile.adapt(pod);
        let known = self.pods.get(&key);
        let same_pod = known.is_some_and(|known| known.object.metadata.uid == pod.metadata.uid);
        let unchanged = known
            .is_some_and(|known| known.object.spec == pod.spec && known.object.metadata.labels == pod.metadata.labels);
        if same_pod {
            self.follow_nomination(&key, &pod.status.nominated_node_name, now);
        }
        if same_pod && unchanged {
            return;
        }
        if !same_pod {
            self.give_up_room(&key, now);
            self.drop_pending(&key, now);
            self.restore_nomination(&key, &pod.status.nominated_node_name);
        }
        // A pod whose binding is under way keeps it: what its spec says now is met if the binding fails.
        let old = self.pods.remove(&key);
        let (said, nominated_here) = old.map_or((None, false), |old| {
            self.cluster.release(&old.compiled);
            (old.said, old.nominated_here)
        });
        let compiled = self.cluster.compile(&adapted);
        let (priority, gated) = (pod.spec.priority.unwrap_or(0), !pod.spec.scheduling_gates.is_empty());
        let object = pod.clone();
        self.pods.insert(
            PodKey::clone(&key),
            PendingPod {
                object,
                compiled,
                said,
                nominated_here,
            },
        );
        self.queue.upsert(&key, priority, gated, now);
        self.queue.wake(&key, now);
    }

    /// A pod that has a node: the cluster counts it there.
    fn track_running(&mut self, pod: &api::Pod, now: Duration) {
        let before = self.running(&pod.metadata.namespace, &pod.metadata.name);
        self.cluster.upsert(&Object::Pod(Box::new(pod.clone())));
        let after = self.running(&pod.metadata.namespace, &pod.metadata.name);
        if after.is_none() {
            self.evicted(&pod.metadata.full_name(), None);
        } else {
            self.evicted(&pod.metadata.full_name(), Some(&pod.metadata.uid));
        }
        match (before, after) {
            // Most changes of a running pod matter to nobody who waits.
            (Some((from, old)), Some((to, new))) if from == to && old.uid == new.uid => {
                if old.labels != new.labels {
                    let (node, pod) = (None, Arc::clone(&old));
                    self.happened(&ClusterEvent::PodGone { node, pod }, now);
                    let (node, pod) = (to, Arc::clone(&new));
                    self.happened(&ClusterEvent::PodPlaced { node, pod }, now);
                }
                if old.requests != new.requests {
                    self.happened(&ClusterEvent::PodResized { node: to }, now);
                }
                if old.terminating != new.terminating {
                    self.happened(&ClusterEvent::PodTerminating { pod: new }, now);
                }
            }
            (before, after) => {
                if let Some((node, pod)) = before {
                    let node = Some(node);
                    self.happened(&ClusterEvent::PodGone { node, pod }, now);
                }
                if let Some((node, pod)) = after {
                    self.happened(&ClusterEvent::PodPlaced { node, pod }, now);
                }
            }
        }
    }

    /// A pod that is counted on a node.
    fn running(&self, namespace: &str, name: &str) -> Option<(NodeId, Arc<Footprint>)> {
        let namespace = self.cluster.symbols().get(namespace)?;
        let pods = self.cluster.pods();
        let running = pods.get(pods.find(namespace, name)?)?;
        Some((running.node?, Arc::clone(&running.footprint)))
    }

    fn remove_pod(&mut self, namespace: &str, name: &str, now: Duration) {
        let key: PodKey = format!("{namespace}/{name}").into();
        self.give_up_room(&key, now);
        self.drop_pending(&key, now);
        self.evicted(&key, None);
        let running = self.running(namespace, name);
        self.cluster.remove(Kind::Pod, namespace, name);
        if let Some((node, pod)) = running {
            let node = Some(node);
            self.happened(&ClusterEvent::PodGone { node, pod }, now);
        }
    }

    /// Lets go of a pod that need not be placed any more, with its binding if there is one.
    fn drop_pending(&mut self, key: &str, now: Duration) {
        self.end_binding(key, now);
        if let Some(pod) = self.pods.remove(key) {
            self.cluster.release(&pod.compiled);
            self.queue.remove(key);
        }
    }

    fn event_of(&mut self, object: &Object) -> Option<ClusterEvent> {
        let binder = self.cluster.binder_mut();
        Some(match object {
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
        let value = |quantity: Option<berth_core::quantity::Quantity>| quantity.map(|quantity| quantity.value());
        let after = (value(capacity.capacity), value(capacity.maximum_volume_size));
        before.is_none_or(|before| after.0 > before.0 || after.1 > before.1)
    }
}
