//! The volume binder: answers a scheduler's questions about the volumes of a pod.
//!
//! ```text
//!   watched objects ──upsert──▶ VolumeBinder ◀──assume / revert── scheduler
//!                                  │
//!   PodVolumes ──claims──▶ PodClaims ──prepare──▶ PreparedPod ──on_node──▶ NodeVolumes or reasons
//!                                                      └──────score──────▶ 0..100
//! ```
//!
//! The binder holds the newest known state of nodes, volumes, claims, classes and drivers. A scheduler's assumptions
//! override watched objects until a newer watched object arrives or the assumption is reverted. The binder never does
//! I/O and never reads a clock: see [`VolumeBinder::set_now`].

mod alike;
mod assume;
mod attachable;
mod claims;
mod find;
mod given_back;
mod held;
mod objects;
mod progress;
mod promised;
mod provision;
mod rank;
mod survey;
mod tidy;

pub use alike::{AlikeClaims, ReadUpTo};
pub use assume::{AssumeError, Assumption};
pub use claims::{PodClaim, PodClaims, PodVolumes};
pub use find::{NodeVolumes, PreparedPod};
pub use given_back::Supposition;
pub use held::Attempt;
pub use objects::{Attachment, CsiNode};
pub use progress::{BindingError, Progress, VolumeWrite, WriteTarget};
pub use rank::{CapacityScore, ScoreGate, ScoresByPercent};
pub use survey::{ClaimSurvey, PoolSurvey};

use crate::api;
use crate::capacity::Pools;
use crate::free::FreeVolumes;
use crate::journal::Journal;
use crate::migration::InTreePlugin;
use crate::model::{Claim, ClaimId, Class, Volume, VolumeId};
use crate::node_selector::NodeSelector;
use crate::nodes::{NodeId, Nodes, SelectorId};
use crate::places::{FullNodes, Places};
use crate::slots::Slots;
use crate::symbols::{Symbol, Symbols};
use objects::{CapacityObject, Driver};
use promised::Promises;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// An object and, while an assumption overrides it, its watched state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlaid<T> {
    effective: T,
    watched: Option<Box<Overlay<T>>>,
}

/// The watched state under an assumption, and which assumption overrides it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Overlay<T> {
    watched: T,
    assumption: u64,
}

impl<T> Overlaid<T> {
    fn new(effective: T) -> Self {
        Self {
            effective,
            watched: None,
        }
    }

    fn watched(&self) -> &T {
        self.watched
            .as_ref()
            .map_or(&self.effective, |overlay| &overlay.watched)
    }
}

/// Feature gates about volumes. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeGates {
    /// `VolumeScheduling`. Off: no claim waits for its first consumer, whatever its class says.
    pub volume_scheduling: bool,
    /// `CSIStorageCapacity`. Off: published capacity is ignored.
    pub csi_storage_capacity: bool,
    /// `PersistentVolumeClaimUnusedSinceTime`. Off: claims have no condition that says whether a pod uses them.
    pub claim_unused_since_time: bool,
}

impl Default for VolumeGates {
    fn default() -> Self {
        Self {
            volume_scheduling: true,
            csi_storage_capacity: true,
            claim_unused_since_time: true,
        }
    }
}

/// Namespaced items, by namespace and name.
type ByNamespace<T> = FxHashMap<Symbol, FxHashMap<Box<str>, T>>;

/// The cluster state that volume decisions read.
///
/// ```
/// use berth_core::{api, binder::{PodVolumes, VolumeBinder}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut binder = VolumeBinder::default();
/// for text in [
///     r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","labels":{"kubernetes.io/hostname":"n1"}}}"#,
///     r#"{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"local"},
///         "provisioner":"kubernetes.io/no-provisioner","volumeBindingMode":"WaitForFirstConsumer"}"#,
///     r#"{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"pv1"},
///         "spec":{"capacity":{"storage":"10Gi"},"accessModes":["ReadWriteOnce"],"storageClassName":"local",
///                 "nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[
///                     {"key":"kubernetes.io/hostname","operator":"In","values":["n1"]}]}]}}},
///         "status":{"phase":"Available"}}"#,
///     r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data"},
///         "spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"local",
///                 "resources":{"requests":{"storage":"5Gi"}}}}"#,
/// ] {
///     let object = api::Object::decode(&serde_json::from_str(text)?)?.expect("a kind that is read");
///     binder.upsert(&object);
/// }
/// let pod: api::Pod = serde_json::from_str(
///     r#"{"metadata":{"name":"db","namespace":"default"},
///         "spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"data"}}]}}"#,
/// )?;
/// let pod = PodVolumes::new(binder.symbols_mut(), &pod);
///
/// // Find: where could the pod run, and with which volumes?
/// let claims = binder.claims(&pod).expect("all claims can be considered");
/// let prepared = binder.prepare(&claims);
/// let node = binder.node("n1").expect("it was added");
/// let volumes = binder.on_node(&prepared, node).expect("the volume fits");
/// assert_eq!(binder.describe(&volumes), (vec![("data", "pv1")], vec![]));
///
/// // Assume: the next pod must not get the same volume.
/// let assumption = binder.assume(node, &volumes)?;
/// assert_eq!(binder.free_volumes().count(), 0);
///
/// // Revert: binding failed.
/// binder.revert(assumption);
/// assert_eq!(binder.free_volumes().count(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct VolumeBinder {
    symbols: Symbols,
    nodes: Nodes,
    volumes: Slots<Overlaid<Volume>>,
    volumes_by_name: FxHashMap<Arc<str>, VolumeId>,
    /// Volumes by the claim that they refer to.
    reserved: ByNamespace<SmallVec<[VolumeId; 1]>>,
    free: FxHashMap<Symbol, FreeVolumes>,
    claims: Slots<Overlaid<Claim>>,
    claims_by_name: ByNamespace<ClaimId>,
    classes: FxHashMap<Symbol, Class>,
    csi_nodes: FxHashMap<Symbol, CsiNode>,
    /// By in-tree plugin: the nodes on which it is migrated.
    migrated: [RoaringBitmap; InTreePlugin::ALL.len()],
    drivers: FxHashMap<Symbol, Driver>,
    capacities: FxHashMap<Box<str>, CapacityObject>,
    pools: Pools,
    promises: Promises,
    /// The nodes that can reach pools which changed.
    pool_changes: Journal<NodeId>,
    class_changes: u64,
    /// Where drivers have no attach slot left.
    full: FullNodes,
    attachments: FxHashMap<Symbol, FxHashMap<Box<str>, Attachment>>,
    attachment_nodes: FxHashMap<Box<str>, Symbol>,
    now: i64,
    assumptions: u64,
    gates: VolumeGates,
}

impl VolumeBinder {
    /// The interned strings.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The interned strings, mutable.
    pub fn symbols_mut(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The node with this name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.nodes.id(self.symbols.get(name)?)
    }

    /// Acquires a node selector, so that its node set is kept up to date.
    pub fn acquire_selector(&mut self, selector: &NodeSelector) -> SelectorId {
        self.nodes.acquire(&self.symbols, selector)
    }

    /// Adds a holder to a selector that is already held.
    pub fn hold_selector(&mut self, selector: SelectorId) {
        self.nodes.hold(selector);
    }

    /// Releases a node selector.
    pub fn release_selector(&mut self, selector: SelectorId) {
        if self.nodes.release(selector) {
            for free in self.free.values_mut() {
                free.drop_affinity(selector);
            }
        }
    }

    /// Sets the current time in seconds since 1970: expired pools do not count.
    pub fn set_now(&mut self, seconds: i64) {
        if self.now != seconds && self.pools.change_between(self.now, seconds) {
            self.pool_changes.forget();
        }
        self.now = seconds;
    }

    /// Sets the feature gates.
    pub fn set_gates(&mut self, gates: VolumeGates) {
        self.gates = gates;
        // Any class and any pool may count differently.
        self.pool_changes.forget();
    }

    /// Whether the claims of a class wait for their first consumer.
    #[must_use]
    pub fn delays(&self, class: &Class) -> bool {
        class.delayed && self.gates.volume_scheduling
    }

    /// Sets how many more volumes of a driver a node can attach, if there is a limit. The binder chooses no more than that for the
    /// claims of a pod, if it can be served otherwise.
    pub fn set_attach_room(&mut self, driver: Symbol, node: NodeId, room: Option<i64>) {
        self.full.set(driver, node, room);
    }

    fn places(&self) -> Places<'_> {
        Places {
            nodes: &self.nodes,
            full: &self.full,
        }
    }

    /// A volume.
    #[must_use]
    pub fn volume(&self, id: VolumeId) -> Option<&Volume> {
        self.volumes.get(id.0).map(|volume| &volume.effective)
    }

    /// The volume held for a claim that is not bound yet.
    #[must_use]
    pub fn volume_held_for(&self, claim: &Claim) -> Option<&Volume> {
        let volumes = self.reserved.get(&claim.namespace)?.get(&claim.name)?;
        let held = |volume: &&Volume| {
            let reference = volume.claim_ref.as_ref();
            volume.is_for(claim) && reference.is_some_and(|reference| !reference.uid.is_empty())
        };
        volumes.iter().filter_map(|id| self.volume(*id)).find(held)
    }

    /// The volumes that refer to a claim, by name or by UID.
    pub fn volumes_reserved_for<'a>(&'a self, claim: &Claim) -> impl Iterator<Item = &'a Volume> {
        let by_name = self.reserved.get(&claim.namespace);
        let volumes = by_name
            .and_then(|by_name| by_name.get(&claim.name))
            .into_iter()
            .flatten();
        let volumes = volumes.filter_map(|id| self.volume(*id));
        volumes.filter(move |volume| volume.is_for(claim))
    }

    /// The volume with this name.
    #[must_use]
    pub fn volume_named(&self, name: &str) -> Option<&Volume> {
        self.volume(*self.volumes_by_name.get(name)?)
    }

    /// The ID of the volume with this name.
    #[must_use]
    pub fn volume_id(&self, name: &str) -> Option<VolumeId> {
        self.volumes_by_name.get(name).copied()
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, id: ClaimId) -> Option<&Claim> {
        self.claims.get(id.0).map(|claim| &claim.effective)
    }

    /// The claim with this name.
    #[must_use]
    pub fn claim_named(&self, namespace: Symbol, name: &str) -> Option<&Claim> {
        self.claim(self.claim_id(namespace, name)?)
    }

    /// The ID of the claim with this name.
    #[must_use]
    pub fn claim_id(&self, namespace: Symbol, name: &str) -> Option<ClaimId> {
        self.claims_by_name.get(&namespace)?.get(name).copied()
    }

    /// The class with this name.
    #[must_use]
    pub fn class(&self, name: Symbol) -> Option<&Class> {
        self.classes.get(&name)
    }

    /// What the drivers on a node report.
    #[must_use]
    pub fn csi_node(&self, node: Symbol) -> Option<&CsiNode> {
        self.csi_nodes.get(&node)
    }

    /// Whether pods with volumes of a driver only run on nodes that have it.
    #[must_use]
    pub fn must_be_installed(&self, driver: Symbol) -> bool {
        self.drivers.get(&driver).is_some_and(|driver| driver.must_be_installed)
    }

    /// The volumes that are attached to a node, or about to be.
    pub fn attachments(&self, node: Symbol) -> impl Iterator<Item = &Attachment> + '_ {
        self.attachments.get(&node).into_iter().flat_map(FxHashMap::values)
    }

    /// The node that an attachment is for.
    #[must_use]
    pub fn attachment_node(&self, attachment: &str) -> Option<NodeId> {
        self.nodes.id(*self.attachment_nodes.get(attachment)?)
    }

    /// The free space and the largest volume that a capacity object (`namespace/name`) reports.
    #[must_use]
    pub fn published_capacity(&self, object: &str) -> Option<(Option<i64>, Option<i64>)> {
        let (key, nodes) = self.capacities.get(object)?.as_ref()?;
        let pool = self.pools.get(*key, *nodes, object)?;
        Some((pool.capacity, pool.maximum_volume_size))
    }

    /// The names of all volumes that an unbound claim may use.
    pub fn free_volumes(&self) -> impl Iterator<Item = &str> + '_ {
        self.free
            .values()
            .flat_map(FreeVolumes::all)
            .map(|volume| &*volume.name)
    }

    /// The capacities of a class's volumes that an unbound claim may use.
    pub fn free_capacities(&self, class: Symbol) -> impl Iterator<Item = i64> + '_ {
        let volumes = self.free.get(&class).into_iter().flat_map(FreeVolumes::all);
        volumes.map(|volume| volume.capacity)
    }

    /// A class's volumes that an unbound claim may use.
    pub fn free_of_class(&self, class: Symbol) -> impl Iterator<Item = &Volume> + '_ {
        let volumes = self.free.get(&class).into_iter().flat_map(FreeVolumes::all);
        volumes.filter_map(|volume| self.volume(volume.id))
    }

    /// The drivers that attach the free volumes of a class; an empty one for volumes that are not attached.
    pub fn free_drivers(&self, class: Symbol) -> impl Iterator<Item = Symbol> + '_ {
        self.free.get(&class).into_iter().flat_map(FreeVolumes::drivers)
    }

    /// Number of known volumes.
    #[must_use]
    pub fn volume_count(&self) -> usize {
        self.volumes.len()
    }

    /// Adds or replaces an object. Kinds that are irrelevant to volumes are ignored.
    pub fn upsert(&mut self, object: &api::Object) {
        match object {
            api::Object::Node(node) => {
                self.upsert_node(node);
            }
            api::Object::PersistentVolume(volume) => self.upsert_volume(volume),
            api::Object::PersistentVolumeClaim(claim) => self.upsert_claim(claim),
            api::Object::StorageClass(class) => self.upsert_class(class),
            api::Object::CsiNode(node) => self.upsert_csi_node(node),
            api::Object::CsiDriver(driver) => self.upsert_driver(driver),
            api::Object::CsiStorageCapacity(capacity) => self.upsert_capacity(capacity),
            api::Object::VolumeAttachment(attachment) => self.upsert_attachment(attachment),
            api::Object::Pod(_)
            | api::Object::Namespace(_)
            | api::Object::PriorityClass(_)
            | api::Object::Service(_)
            | api::Object::ReplicationController(_)
            | api::Object::ReplicaSet(_)
            | api::Object::StatefulSet(_)
            | api::Object::PodDisruptionBudget(_) => {}
        }
    }

    /// Removes an object. An unknown object is ignored.
    pub fn remove(&mut self, kind: api::Kind, namespace: &str, name: &str) {
        match kind {
            api::Kind::Node => {
                self.remove_node(name);
            }
            api::Kind::PersistentVolume => self.remove_volume(name),
            api::Kind::PersistentVolumeClaim => self.remove_claim(namespace, name),
            api::Kind::StorageClass => self.remove_class(name),
            api::Kind::CsiNode => self.remove_csi_node(name),
            api::Kind::CsiDriver => self.remove_driver(name),
            api::Kind::CsiStorageCapacity => self.remove_capacity(namespace, name),
            api::Kind::VolumeAttachment => self.remove_attachment(name),
            api::Kind::Pod
            | api::Kind::Namespace
            | api::Kind::PriorityClass
            | api::Kind::Service
            | api::Kind::ReplicationController
            | api::Kind::ReplicaSet
            | api::Kind::StatefulSet
            | api::Kind::PodDisruptionBudget => {}
        }
    }
}
