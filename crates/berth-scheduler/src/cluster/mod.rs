//! The cluster state that decisions read: nodes in columns, running pods with their indexes, and volumes.
//!
//! Objects are added one by one, in any order. Nothing is decided here; see the plugins for that.

mod anchors;
mod attached;
mod budgets;
mod disks;
mod images;
mod pod_counts;
mod pods;
mod ports;
mod resources;
mod running_terms;
mod taints;
mod tidy;
mod topology;
mod workloads;

pub use attached::{Attached, Counted, CountedClaim, DriverColumn, Handle, VolumeKey, count_disk, count_volume};
pub use budgets::Budgets;
pub use disks::Disks;
pub use images::{Holders, Images};
pub use pod_counts::{NodeCounts, PodClause, PodCounts, PodQuery, QueryId, Scope};
pub use pods::{PodId, Pods, RunningPod};
pub use ports::Ports;
pub(crate) use resources::Row;
pub use resources::{Column, Resources};
pub use running_terms::{Presence, RunningTerm, RunningTerms, TermKind};
pub use taints::{TaintList, Taints};
pub use topology::{Topology, TopologyColumn};
pub use workloads::Workloads;

use crate::pod::{Footprint, Pod, Taint};
use berth_core::api::{self, Kind, Object};
use berth_core::binder::{AssumeError, Assumption, NodeVolumes, VolumeBinder, VolumeGates};
use berth_core::journal::Journal;
use berth_core::label::Labels;
use berth_core::mask::NodeMask;
use berth_core::nodes::{NodeId, Nodes};
use berth_core::symbols::{Symbol, Symbols};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The state of the cluster.
///
/// ```
/// use berth_core::api::Object;
/// use berth_scheduler::cluster::Cluster;
/// let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},
///                "status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"}}}"#;
/// let node = Object::decode(&serde_json::from_str(node)?)?;
/// let mut cluster = Cluster::default();
/// node.iter().for_each(|node| cluster.upsert(node));
/// assert_eq!(cluster.nodes().ids().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    binder: VolumeBinder,
    all_nodes: NodeMask,
    unschedulable: NodeMask,
    resources: Resources,
    taints: Taints,
    ports: Ports,
    disks: Disks,
    attached: Attached,
    images: Images,
    topology: Topology,
    pods: Pods,
    pod_counts: PodCounts,
    running_terms: RunningTerms,
    namespaces: FxHashMap<Symbol, Labels>,
    workloads: Workloads,
    budgets: Budgets,
    assumptions: u64,
    /// Nodes that changed, or whose pods changed.
    touched: Journal<NodeId>,
}

/// A pod that is assumed to run on a node. [`Cluster::forget`] reverts it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an assumed pod is either confirmed by the watch or forgotten"]
pub struct AssumedPod {
    namespace: Symbol,
    name: Box<str>,
    number: u64,
}

berth_core::trace!(AssumedPod { namespace; name, number });

/// A pod that was removed from its node for a what-if. [`Cluster::put_back`] reverts it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a lifted pod must be put back"]
pub(crate) struct Lifted {
    pub(crate) pod: PodId,
    node: NodeId,
}

impl Cluster {
    /// Adds or updates an object.
    pub fn upsert(&mut self, object: &Object) {
        match object {
            Object::Node(node) => self.upsert_node(node),
            Object::Pod(pod) => self.upsert_pod(pod),
            Object::Namespace(namespace) => {
                let symbols = self.binder.symbols_mut();
                let name = symbols.intern(&namespace.metadata.name);
                let labels = Labels::new(symbols, &namespace.metadata.labels);
                self.namespaces.insert(name, labels);
            }
            Object::Service(_) | Object::ReplicationController(_) | Object::ReplicaSet(_) | Object::StatefulSet(_) => {
                self.workloads.upsert(self.binder.symbols_mut(), object);
            }
            Object::PodDisruptionBudget(budget) => self.budgets.upsert(self.binder.symbols_mut(), budget),
            _ => {
                self.binder.upsert(object);
                let metadata = object.metadata();
                self.volumes_changed(object.kind(), &metadata.namespace, &metadata.name);
                if let Object::VolumeAttachment(new) = object {
                    let name = &metadata.name;
                    self.attached.attachment_changed(&mut self.binder, name, Some(new));
                }
            }
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::Node => self.remove_node(name),
            Kind::Pod => {
                if let Some(namespace) = self.symbols().get(namespace)
                    && let Some(pod) = self.pods.find(namespace, name)
                {
                    self.remove_pod(pod);
                }
            }
            Kind::Namespace => {
                if let Some(name) = self.symbols().get(name) {
                    self.namespaces.remove(&name);
                }
            }
            Kind::Service | Kind::ReplicationController | Kind::ReplicaSet | Kind::StatefulSet => {
                self.workloads.remove(self.binder.symbols(), kind, namespace, name);
            }
            Kind::PodDisruptionBudget => self.budgets.remove(self.binder.symbols(), namespace, name),
            _ => {
                self.binder.remove(kind, namespace, name);
                self.volumes_changed(kind, namespace, name);
            }
        }
    }

    /// An object changed that may affect the number of attached volumes.
    fn volumes_changed(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::PersistentVolumeClaim => {
                if let Some(namespace) = self.symbols().get(namespace) {
                    self.attached.claim_changed(&self.binder, namespace, name);
                }
            }
            Kind::PersistentVolume => self.attached.volume_changed(&self.binder, name),
            Kind::CsiNode => {
                if let Some(node) = self.binder.node(name) {
                    self.attached.node_changed(node);
                }
            }
            Kind::VolumeAttachment => self.attached.attachment_changed(&mut self.binder, name, None),
            // Rare, and claims of the class may be in use anywhere.
            Kind::StorageClass => self.attached.all_changed(),
            Kind::Node
            | Kind::Pod
            | Kind::CsiDriver
            | Kind::CsiStorageCapacity
            | Kind::Namespace
            | Kind::PriorityClass
            | Kind::Service
            | Kind::ReplicationController
            | Kind::ReplicaSet
            | Kind::StatefulSet
            | Kind::PodDisruptionBudget => {}
        }
    }

    fn upsert_node(&mut self, node: &api::Node) {
        let name = self.binder.symbols_mut().intern(&node.metadata.name);
        let known = self.nodes().id(name).is_some();
        let epoch = self.nodes().epoch();
        let id = self.binder.upsert_node(node);
        self.touched.push(id);
        let length = self.nodes().column_length();
        self.resources.grow(length);
        self.taints.grow(length);
        self.images.grow(length);
        self.all_nodes.grow_to(id);
        if node.spec.unschedulable {
            self.unschedulable.grow_to(id);
        } else {
            self.unschedulable.remove(id);
        }
        let symbols = self.binder.symbols_mut();
        self.resources.set_allocatable(symbols, id, &node.status.allocatable);
        let taints = node.spec.taints.iter().filter_map(|taint| Taint::new(symbols, taint));
        self.taints.set(id, taints.collect());
        let images = node.status.images.iter();
        let names = images.flat_map(|image| image.names.iter().map(|name| (name, image.size_bytes)));
        let images = names.map(|(name, size)| (symbols.intern(name), size)).collect();
        self.images.set(id, images);
        if self.nodes().epoch() != epoch {
            self.topology.node_changed(self.binder.nodes(), id);
        }
        if !known {
            self.attached.node_changed(id);
            for pod in self.pods.on_node(name).to_vec() {
                self.place(pod, id);
            }
        }
    }

    fn remove_node(&mut self, name: &str) {
        let Some(symbol) = self.symbols().get(name) else {
            return;
        };
        let Some(id) = self.nodes().id(symbol) else {
            return;
        };
        for pod in self.pods.on_node(symbol).to_vec() {
            self.displace(pod);
        }
        self.binder.remove_node(name);
        self.touched.push(id);
        self.resources.clear_allocatable(id);
        self.taints.set(id, Vec::new());
        self.images.set(id, Box::default());
        self.topology.node_changed(self.binder.nodes(), id);
        self.attached.node_changed(id);
        self.all_nodes.remove(id);
        self.unschedulable.remove(id);
    }

    fn upsert_pod(&mut self, pod: &api::Pod) {
        let symbols = self.binder.symbols_mut();
        let namespace = symbols.intern(&pod.metadata.namespace);
        if let Some(old) = self.pods.find(namespace, &pod.metadata.name) {
            self.remove_pod(old);
        }
        if pod.spec.node_name.is_empty() || pod.is_finished() {
            return;
        }
        let symbols = self.binder.symbols_mut();
        let node_name = symbols.intern(&pod.spec.node_name);
        let footprint = Arc::new(Footprint::new(symbols, pod));
        self.add_pod(footprint, node_name, None);
    }

    fn add_pod(&mut self, footprint: Arc<Footprint>, node_name: Symbol, assumed: Option<u64>) {
        let pod = self.pods.insert(RunningPod {
            footprint,
            node_name,
            node: None,
            assumed,
        });
        if let Some(node) = self.nodes().id(node_name) {
            self.place(pod, node);
        }
    }

    fn remove_pod(&mut self, pod: PodId) {
        self.displace(pod);
        self.pods.remove(pod);
    }

    /// Counts a pod on a node.
    fn place(&mut self, pod: PodId, node: NodeId) {
        let Some(running) = self.pods.get_mut(pod) else {
            return;
        };
        running.node = Some(node);
        self.touched.push(node);
        let footprint = &running.footprint;
        self.resources.count(node, footprint, 1);
        self.ports.add(node, &footprint.ports);
        self.disks.add(footprint, node);
        self.attached.add(&self.binder, footprint, node);
        self.pod_counts.add(footprint, node);
        self.running_terms.add(footprint, node);
    }

    /// Stops counting a pod on its node.
    fn displace(&mut self, pod: PodId) {
        let Some(running) = self.pods.get_mut(pod) else {
            return;
        };
        let Some(node) = running.node.take() else {
            return;
        };
        self.touched.push(node);
        let footprint = &running.footprint;
        self.resources.count(node, footprint, -1);
        self.ports.remove(node, &footprint.ports);
        self.disks.remove(footprint, node);
        self.attached.remove(footprint, node);
        self.pod_counts.remove(footprint, node);
        self.running_terms.remove(footprint, node);
    }

    /// Compiles a pod to be scheduled. Release it with [`Cluster::release`].
    pub fn compile(&mut self, pod: &api::Pod) -> Pod {
        Pod::new(&mut self.binder, pod)
    }

    /// Releases the node selectors of a compiled pod.
    pub fn release(&mut self, pod: &Pod) {
        for selector in pod.selectors() {
            self.binder.release_selector(selector);
        }
    }

    /// Counts a pod on a node before the API server confirms it. A later watch event about the pod replaces it.
    pub fn assume_pod(&mut self, pod: &Pod, node: NodeId) -> AssumedPod {
        let footprint = Arc::clone(&pod.footprint);
        if let Some(old) = self.pods.find(footprint.namespace, &footprint.name) {
            self.remove_pod(old);
        }
        let node_name = self.nodes().name(node);
        self.assumptions += 1;
        let assumed = AssumedPod {
            namespace: footprint.namespace,
            name: footprint.name.clone(),
            number: self.assumptions,
        };
        self.add_pod(footprint, node_name, Some(self.assumptions));
        assumed
    }

    /// An assumed pod, unless a watch event has replaced it.
    #[must_use]
    pub fn assumed(&self, assumed: &AssumedPod) -> Option<&RunningPod> {
        let pod = self.pods.find(assumed.namespace, &assumed.name)?;
        let running = self.pods.get(pod);
        running.filter(|running| running.assumed == Some(assumed.number))
    }

    /// Reverts an assumption, unless a watch event has replaced it.
    pub fn forget(&mut self, assumed: AssumedPod) {
        self.forget_assumed(&assumed);
    }

    /// Reverts an assumption temporarily: assume the pod again.
    pub(crate) fn forget_assumed(&mut self, assumed: &AssumedPod) {
        if self.assumed(assumed).is_some()
            && let Some(pod) = self.pods.find(assumed.namespace, &assumed.name)
        {
            self.remove_pod(pod);
        }
    }

    /// Claims, volumes and related objects.
    #[must_use]
    pub fn binder(&self) -> &VolumeBinder {
        &self.binder
    }

    /// Claims and volumes, to prepare queries for decisions. Add objects only with [`Cluster::upsert`]: other tables must be
    /// updated too.
    pub(crate) fn binder_mut(&mut self) -> &mut VolumeBinder {
        &mut self.binder
    }

    /// Assumes a decision about volumes; see [`VolumeBinder::assume`].
    ///
    /// # Errors
    /// If the state has changed since, so that the decision cannot be carried out.
    pub fn assume_volumes(&mut self, node: NodeId, decision: &NodeVolumes) -> Result<Assumption, AssumeError> {
        self.binder.assume(node, decision)
    }

    /// Reverts it; see [`VolumeBinder::revert`].
    pub fn revert_volumes(&mut self, assumption: Assumption) {
        self.binder.revert(assumption);
    }

    /// Sets the current time in seconds since 1970: expired storage pools do not count.
    pub fn set_now(&mut self, seconds: i64) {
        self.binder.set_now(seconds);
    }

    /// Applies changes of promised storage. Returns the classes of pools that have more room than before.
    pub fn settle_promises(&mut self) -> impl Iterator<Item = Symbol> + use<> {
        self.binder.settle_promises()
    }

    /// Sets the feature gates of volume decisions.
    pub fn set_gates(&mut self, gates: VolumeGates) {
        self.binder.set_gates(gates);
    }

    /// The interned strings, mutable.
    pub fn symbols_mut(&mut self) -> &mut Symbols {
        self.binder.symbols_mut()
    }

    /// The nodes with their labels.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        self.binder.nodes()
    }

    /// The interned strings.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        self.binder.symbols()
    }

    /// All nodes.
    #[must_use]
    pub fn all_nodes(&self) -> &NodeMask {
        &self.all_nodes
    }

    /// The cordoned nodes.
    #[must_use]
    pub fn unschedulable(&self) -> &NodeMask {
        &self.unschedulable
    }

    /// The resources of nodes and their usage.
    #[must_use]
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The taints of nodes.
    #[must_use]
    pub fn taints(&self) -> &Taints {
        &self.taints
    }

    /// The host ports in use.
    #[must_use]
    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The disks and claims in use.
    #[must_use]
    pub fn disks(&self) -> &Disks {
        &self.disks
    }

    /// The attached volumes of nodes, as of the last [`Cluster::refresh_attached`].
    #[must_use]
    pub fn attached(&self) -> &Attached {
        &self.attached
    }

    /// What a claim counts as on the nodes of the pods that use it. `None` if no pod with a node does.
    #[must_use]
    pub fn counted_claim(&self, namespace: &str, name: &str) -> Option<CountedClaim> {
        let namespace = self.symbols().get(namespace)?;
        self.attached.counted_claim(&self.binder, namespace, name)
    }

    /// Recomputes the attached volumes of the changed nodes.
    pub fn refresh_attached(&mut self) {
        self.attached.refresh(&mut self.binder, &self.pods);
    }

    /// The images on nodes.
    #[must_use]
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The registered topology keys; see [`Cluster::ensure_topology`].
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Makes sure that the domains of a topology key are known.
    pub fn ensure_topology(&mut self, key: Symbol) {
        self.topology.ensure(self.binder.nodes(), key);
    }

    /// The pods that have a node.
    #[must_use]
    pub fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Registers a query for the number of matching pods on each node. The answer is kept up to date.
    pub fn ask(&mut self, query: &PodQuery) -> QueryId {
        self.pod_counts.ask(&self.pods, query)
    }

    /// The answer to a query that was registered for this decision.
    #[must_use]
    pub fn answer(&self, query: QueryId) -> &NodeCounts {
        self.pod_counts.answer(query)
    }

    /// The affinity terms of running pods.
    #[must_use]
    pub fn running_terms(&self) -> &RunningTerms {
        &self.running_terms
    }

    /// The labels of a namespace; empty if it does not exist.
    #[must_use]
    pub fn namespace_labels(&self, namespace: Symbol) -> &Labels {
        static NONE: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);
        self.namespaces.get(&namespace).unwrap_or(&NONE)
    }

    /// The namespaces that have an object, with their labels.
    pub fn namespaces(&self) -> impl Iterator<Item = (Symbol, &Labels)> {
        self.namespaces.iter().map(|(name, labels)| (*name, labels))
    }

    /// The nodes that changed, or whose pods changed.
    pub(crate) fn touched(&self) -> &Journal<NodeId> {
        &self.touched
    }

    /// Keeps only the nodes with these names in a set.
    pub(crate) fn keep_named(&self, names: &[Symbol], mask: &mut NodeMask) {
        let mut named = NodeMask::none(self.nodes());
        for node in names.iter().filter_map(|name| self.nodes().id(*name)) {
            named.insert(node);
        }
        mask.intersect(&named);
    }

    /// Services and workloads.
    #[must_use]
    pub fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    /// How many pods may be evicted.
    #[must_use]
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Removes a running pod from its node temporarily, for a what-if.
    pub(crate) fn lift(&mut self, pod: PodId) -> Option<Lifted> {
        let node = self.pods.get(pod)?.node?;
        self.displace(pod);
        Some(Lifted { pod, node })
    }

    /// Returns a pod to its node.
    pub(crate) fn put_back(&mut self, lifted: Lifted) {
        self.place(lifted.pod, lifted.node);
    }

    /// Whether two clusters with the same order of input have the same nodes, pods and counts.
    ///
    /// Of the cached answers, only those of queries that both clusters have are compared.
    #[must_use]
    pub fn same_state(&self, other: &Self) -> bool {
        let (own, others) = (self.pod_counts.answers(), other.pod_counts.answers());
        let same_answers = own
            .iter()
            .all(|(query, counts)| others.get(query).is_none_or(|found| found == counts));
        same_answers
            && self.all_nodes == other.all_nodes
            && self.unschedulable == other.unschedulable
            && self.resources == other.resources
            && self.taints == other.taints
            && self.ports == other.ports
            && self.disks == other.disks
            && self.attached.same_counts(&other.attached)
            && self.images == other.images
            && self.pods == other.pods
            && self.running_terms.presences() == other.running_terms.presences()
            && self.namespaces == other.namespaces
            && self.budgets == other.budgets
    }
}
