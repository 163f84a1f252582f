//! Converts watched objects to binder state.

use super::{Overlaid, VolumeBinder};
use crate::api;
use crate::capacity::{Pool, PoolKey};
use crate::clean;
use crate::free::FreeVolumes;
use crate::label::LabelRequirement;
use crate::migration::{self, InTreePlugin, MigratedPlugins};
use crate::model::{self, Claim, ClaimId, Class, Disk, Volume, VolumeId};
use crate::names;
use crate::node_selector::{NodeRequirement, NodeSelector, NodeSelectorTerm};
use crate::nodes::{NodeId, SelectorId};
use crate::promises::Report;
use crate::quantity::Quantity;
use crate::symbols::Symbol;
use crate::time;
use crate::zone;
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the drivers on a node report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNode {
    /// The in-tree plugins that are migrated to CSI there.
    pub migrated: MigratedPlugins,
    /// Attach limits of the node, for the drivers that report one.
    pub limits: Box<[(Symbol, i64)]>,
    /// The drivers on the node.
    pub drivers: Box<[Symbol]>,
}

crate::trace!(CsiNode { limits, drivers; migrated });

/// A volume attached to a node, or about to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The driver.
    pub attacher: Symbol,
    /// The volume's name.
    pub volume: Box<str>,
}

crate::trace!(Attachment { attacher; volume });

/// The capacity settings of a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Driver {
    /// It publishes objects; claims must fit into them.
    pub(super) publishes_objects: bool,
    /// It publishes pools in its status; claims must fit into them.
    pub(super) publishes_status: bool,
    /// Pods with its volumes only run on nodes that have it.
    pub(super) must_be_installed: bool,
    /// The classes that its status lists, with or without pools.
    pub(super) entries: BTreeSet<Symbol>,
    pools: Vec<(PoolKey, Arc<str>, SelectorId)>,
}

crate::trace!(Driver { entries, pools; publishes_objects, publishes_status, must_be_installed });

/// The pool of a capacity object; `None` if no node can reach it.
pub(super) type CapacityObject = Option<(PoolKey, SelectorId)>;

/// If more nodes than this can reach a changed pool, all pools are reported as changed.
const MAX_POOL_NODES: u64 = 1024;

impl VolumeBinder {
    /// Adds or replaces a node.
    pub fn upsert_node(&mut self, node: &api::Node) -> NodeId {
        let name = &node.metadata.name;
        let id = self.nodes.upsert(&mut self.symbols, name, &node.metadata.labels);
        self.promises_may_have_home();
        self.mark_migrated(self.nodes.name(id));
        id
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) -> Option<NodeId> {
        let id = self.nodes.remove(&self.symbols, name)?;
        for nodes in &mut self.migrated {
            nodes.remove(id.0);
        }
        Some(id)
    }

    fn mark_migrated(&mut self, node: Symbol) {
        let Some(id) = self.nodes.id(node) else {
            return;
        };
        let migrated = self.csi_nodes.get(&node).map(|node| node.migrated).unwrap_or_default();
        for plugin in InTreePlugin::ALL {
            if migrated.contains(plugin) {
                self.migrated[plugin as usize].insert(id.0);
            } else {
                self.migrated[plugin as usize].remove(id.0);
            }
        }
    }

    /// Adds or replaces what the drivers on a node report.
    pub fn upsert_csi_node(&mut self, node: &api::CsiNode) {
        let name = self.symbols.intern(&node.metadata.name);
        let migrated = node.metadata.annotation(names::MIGRATED_PLUGINS).unwrap_or("");
        let limits = node.spec.drivers.iter().filter_map(|driver| {
            let count = driver.allocatable.as_ref()?.count?;
            Some((self.symbols.intern(&driver.name), i64::from(count)))
        });
        let limits = limits.collect();
        let drivers = node.spec.drivers.iter();
        let known = CsiNode {
            limits,
            drivers: drivers.map(|driver| self.symbols.intern(&driver.name)).collect(),
            migrated: MigratedPlugins::new(migrated),
        };
        self.csi_nodes.insert(name, known);
        self.mark_migrated(name);
    }

    /// Removes what the drivers on a node reported.
    pub fn remove_csi_node(&mut self, name: &str) {
        if let Some(name) = self.symbols.get(name) {
            self.csi_nodes.remove(&name);
            self.mark_migrated(name);
        }
    }

    /// Adds or replaces a volume. An assumption about it ends, unless the object is no newer than the one that the
    /// assumption was based on.
    pub fn upsert_volume(&mut self, volume: &api::PersistentVolume) {
        if let Some(id) = self.volumes_by_name.get(volume.metadata.name.as_str()).copied() {
            let version = model::version_of(&volume.metadata);
            let Some(known) = self.volumes.get(id.0) else {
                return;
            };
            if known.watched.is_some() && version != 0 && version <= known.watched().version {
                return;
            }
            self.unindex_volume(id);
            let affinities = affinities_of(known_watched(self, id));
            let new = self.model_volume(volume);
            // Acquires the new selectors before releasing the old ones, so that shared ones are kept.
            for affinity in affinities {
                self.release_selector(affinity);
            }
            if let Some(slot) = self.volumes.get_mut(id.0) {
                *slot = Overlaid::new(new);
            }
            self.index_volume(id);
            self.promise_of_volume_changed(id);
        } else {
            let new = self.model_volume(volume);
            let name = Arc::clone(&new.name);
            let id = VolumeId(self.volumes.insert(Overlaid::new(new)));
            self.volumes_by_name.insert(name, id);
            self.index_volume(id);
            self.promise_of_volume_changed(id);
        }
    }

    /// Removes a volume.
    pub fn remove_volume(&mut self, name: &str) {
        let Some(id) = self.volumes_by_name.remove(name) else {
            return;
        };
        self.promise_of_volume_ended(id);
        self.unindex_volume(id);
        if let Some(removed) = self.volumes.remove(id.0) {
            for affinity in affinities_of(Some(removed.watched())) {
                self.release_selector(affinity);
            }
        }
    }

    fn model_volume(&mut self, volume: &api::PersistentVolume) -> Volume {
        let mut new = model::volume_without_selectors(&mut self.symbols, volume);
        let required = volume.spec.node_affinity.as_ref().and_then(|a| a.required.as_ref());
        new.affinity = self.acquire_optional(required);
        if let Some(zones) = zone::allowed_nodes(&mut self.symbols, &volume.metadata.labels) {
            new.zones = self.acquire_selector(&zones);
        }
        let source = volume.spec.source();
        new.disk = match (source, InTreePlugin::of(source)) {
            (api::VolumeSource::Csi(csi), _) => Some(Box::new(Disk::Csi {
                driver: self.symbols.intern(&csi.driver),
                handle: csi.volume_handle.as_str().into(),
            })),
            (_, Some(plugin)) => {
                let handle = migration::csi_handle(source, Some(&volume.metadata.labels));
                let migrated = migration::migrated_affinity(plugin, volume);
                handle.map(|handle| {
                    Box::new(Disk::InTree {
                        plugin,
                        handle,
                        migrated_affinity: self.acquire_optional(migrated.as_ref()),
                    })
                })
            }
            _ => None,
        };
        new.driver = match new.disk.as_deref() {
            Some(Disk::Csi { driver, .. }) => *driver,
            Some(Disk::InTree { plugin, .. }) => self.symbols.intern(plugin.driver()),
            None => Symbol::EMPTY,
        };
        new
    }

    fn acquire_optional(&mut self, selector: Option<&api::NodeSelector>) -> SelectorId {
        selector.map_or(SelectorId::ALL, |selector| {
            let selector = NodeSelector::new(&mut self.symbols, selector);
            self.acquire_selector(&selector)
        })
    }

    /// Adds a volume to the indexes by its effective state.
    pub(super) fn index_volume(&mut self, id: VolumeId) {
        let Some(volume) = self.volumes.get(id.0).map(|volume| &volume.effective) else {
            return;
        };
        if volume.is_free() {
            self.free.entry(volume.class).or_default().insert(id, volume);
        }
        if let Some(reference) = &volume.claim_ref {
            let volumes = self
                .reserved
                .entry(reference.namespace)
                .or_default()
                .entry(reference.name.clone())
                .or_default();
            volumes.push(id);
            volumes.sort_unstable();
        }
    }

    /// Removes a volume from the indexes.
    pub(super) fn unindex_volume(&mut self, id: VolumeId) {
        let Some(volume) = self.volumes.get(id.0).map(|volume| &volume.effective) else {
            return;
        };
        if volume.is_free()
            && let Some(free) = self.free.get_mut(&volume.class)
        {
            FreeVolumes::remove(free, id, volume);
        }
        if let Some(reference) = &volume.claim_ref
            && let Some(by_name) = self.reserved.get_mut(&reference.namespace)
            && let Some(volumes) = by_name.get_mut(&reference.name)
        {
            volumes.retain(|volume| *volume != id);
            if volumes.is_empty() {
                by_name.remove(&reference.name);
            }
        }
    }

    /// Adds or replaces a claim; see [`Self::upsert_volume`] about assumptions.
    pub fn upsert_claim(&mut self, claim: &api::PersistentVolumeClaim) {
        let new = Claim::new(&mut self.symbols, claim);
        let known = self.claim_id(new.namespace, &new.name);
        let is_another = known.and_then(|id| self.claims.get(id.0)).is_some_and(|known| {
            let uid = &known.watched().uid;
            !uid.is_empty() && !new.uid.is_empty() && *uid != new.uid
        });
        if is_another {
            // The claim was deleted and recreated under the same name: no decision about the old one applies.
            self.remove_claim(&claim.metadata.namespace, &claim.metadata.name);
        }
        match known.filter(|_| !is_another) {
            Some(id) => {
                if let Some(known) = self.claims.get_mut(id.0) {
                    let stale = known.watched.is_some() && new.version != 0 && new.version <= known.watched().version;
                    if !stale {
                        *known = Overlaid::new(new);
                    }
                }
                self.promise_changed(id);
            }
            None => {
                let (namespace, name) = (new.namespace, new.name.clone());
                let id = ClaimId(self.claims.insert(Overlaid::new(new)));
                self.claims_by_name.entry(namespace).or_default().insert(name, id);
                self.promise_changed(id);
            }
        }
    }

    /// Removes a claim.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        let removed = self
            .symbols
            .get(namespace)
            .and_then(|namespace| self.claims_by_name.get_mut(&namespace))
            .and_then(|by_name| by_name.remove(name));
        if let Some(id) = removed {
            self.claims.remove(id.0);
            self.promise_changed(id);
        }
    }

    /// Adds or replaces a class.
    pub fn upsert_class(&mut self, class: &api::StorageClass) {
        let name = self.symbols.intern(&class.metadata.name);
        // A class that sets zones in two ways gets no volume, so the topology does not matter.
        let topologies = migration::allowed_topologies(class).unwrap_or(Cow::Borrowed(&class.allowed_topologies));
        let allowed_topologies = if topologies.is_empty() {
            SelectorId::ALL
        } else {
            let selector = NodeSelector::with_topologies(&mut self.symbols, &topologies);
            self.acquire_selector(&selector)
        };
        let known = self.classes.get(&name).map_or(0, |known| known.number);
        let mut new = Class {
            provisioner: self.symbols.intern(&class.provisioner),
            driver: self.symbols.intern(&names::driver_object(&class.provisioner)),
            provisions: !class.provisioner.is_empty() && class.provisioner != names::NO_PROVISIONER,
            delayed: class.is_delayed(),
            allowed_topologies,
            // An invalid weight counts as none: the error is reported when files are read.
            weight: class.weight().unwrap_or_default(),
            rollback: clean::choice(&class.metadata).unwrap_or(false),
            number: known,
        };
        if self.classes.get(&name) != Some(&new) {
            self.class_changes += 1;
            new.number = self.class_changes;
        }
        if let Some(old) = self.classes.insert(name, new) {
            self.release_selector(old.allowed_topologies);
        }
    }

    /// Removes a class.
    pub fn remove_class(&mut self, name: &str) {
        let removed = self.symbols.get(name).and_then(|name| self.classes.remove(&name));
        if let Some(class) = removed {
            self.release_selector(class.allowed_topologies);
        }
    }

    /// Adds or replaces a driver. A report with few changes invalidates few answers: only nodes that can reach a new,
    /// removed or changed pool are reported.
    pub fn upsert_driver(&mut self, driver: &api::CsiDriver) {
        let name = self.symbols.intern(&driver.metadata.name);
        let mut new = Driver {
            publishes_objects: driver.spec.storage_capacity == Some(true),
            publishes_status: driver.spec.capacity_tracking == Some(true),
            must_be_installed: driver.spec.prevent_pod_scheduling_if_missing == Some(true),
            entries: BTreeSet::new(),
            pools: Vec::new(),
        };
        let old = self.drivers.remove(&name);
        // Old and new reports are both held for a moment, so that no shared selector is dropped in between.
        let mut reported = Vec::new();
        for storage in &driver.status.storage {
            let class = self.symbols.intern(&storage.storage_class_name);
            let key = PoolKey::DriverClass { driver: name, class };
            new.entries.insert(class);
            for pool in &storage.pools {
                let pool = Pool {
                    name: pool.name.as_str().into(),
                    nodes: self.pool_nodes(pool),
                    // KEP-1472 (storage capacity), first form: the largest volume that can be created, not the free
                    // space.
                    capacity: None,
                    maximum_volume_size: pool.capacity.map(Quantity::value),
                    expires: pool.expiry_time.as_deref().map(expiry),
                    promised: 0,
                };
                new.pools.push((key, Arc::clone(&pool.name), pool.nodes));
                reported.push((key, pool));
            }
        }
        // Claims of a class that gained or lost its own entry are now served by different pools.
        let serves_the_same = old.as_ref().is_some_and(|old| {
            let served = |driver: &Driver| {
                (
                    driver.publishes_objects,
                    driver.publishes_status,
                    driver.entries.clone(),
                )
            };
            served(old) == served(&new)
        });
        let old_pools = old.map(|old| old.pools).unwrap_or_default();
        if serves_the_same {
            self.tell_changed_pools(&old_pools, &reported);
        } else {
            self.pool_changes.forget();
        }
        for (key, name, nodes) in &old_pools {
            self.pools.remove(*key, name, *nodes);
        }
        for (key, pool) in reported {
            self.pools.insert(key, pool);
        }
        for (_, _, nodes) in old_pools {
            self.release_selector(nodes);
        }
        self.drivers.insert(name, new);
    }

    /// Records which nodes can reach changed pools.
    fn tell_changed_pools(&mut self, old: &[(PoolKey, Arc<str>, SelectorId)], reported: &[(PoolKey, Pool)]) {
        let mut changed = BTreeSet::new();
        let stays: FxHashSet<_> = reported
            .iter()
            .map(|(key, pool)| (*key, &*pool.name, pool.nodes))
            .collect();
        for (key, name, nodes) in old {
            if !stays.contains(&(*key, &**name, *nodes)) {
                changed.insert(*nodes);
            }
        }
        for (key, pool) in reported {
            let known = self.pools.get(*key, pool.nodes, &pool.name);
            if !known.is_some_and(|known| known.says_the_same(pool, self.now)) {
                changed.insert(pool.nodes);
            }
        }
        for nodes in changed {
            self.pool_changed(nodes);
        }
    }

    /// Removes a driver and its pools.
    pub fn remove_driver(&mut self, name: &str) {
        let removed = self.symbols.get(name).and_then(|name| self.drivers.remove(&name));
        if removed.is_some() {
            // Claims of its classes can now be provisioned anywhere, or nowhere.
            self.pool_changes.forget();
        }
        for (key, name, nodes) in removed.into_iter().flat_map(|driver| driver.pools) {
            self.pools.remove(key, &name, nodes);
            self.release_selector(nodes);
        }
    }

    fn pool_nodes(&mut self, pool: &api::CsiStoragePool) -> SelectorId {
        if pool.node_list.is_empty() {
            return self.acquire_optional(pool.node_topology.as_ref());
        }
        let names = crate::label::value_set(&mut self.symbols, &pool.node_list);
        let by_name = NodeSelectorTerm::of([NodeRequirement::NameIn(names)]);
        self.acquire_selector(&NodeSelector::of(vec![by_name]))
    }

    /// Adds or replaces published capacity.
    pub fn upsert_capacity(&mut self, capacity: &api::CsiStorageCapacity) {
        let full_name = capacity.metadata.full_name();
        // Volumes created before the report must be accounted for first.
        self.settle_changed();
        self.take_out_capacity(&full_name);
        let class = self.symbols.intern(&capacity.storage_class_name);
        let key = PoolKey::Class(class);
        if capacity.node_topology.is_none() {
            self.close_account(&full_name);
        }
        let known = capacity.node_topology.as_ref().map(|topology| {
            let nodes = self.acquire_labels(topology);
            self.pool_changed(nodes);
            let left = capacity.capacity.map(Quantity::value);
            let report = left.map(|left| Report {
                capacity: left,
                version: model::version_of(&capacity.metadata),
                written: capacity.written.as_deref().and_then(time::since_1970),
            });
            let promised = self.take_report(&full_name, class, report);
            self.pools.insert(
                key,
                Pool {
                    name: full_name.as_str().into(),
                    nodes,
                    capacity: left,
                    maximum_volume_size: capacity.maximum_volume_size.map(Quantity::value),
                    expires: None,
                    promised,
                },
            );
            (key, nodes)
        });
        self.capacities.insert(full_name.into(), known);
    }

    /// Removes published capacity.
    pub fn remove_capacity(&mut self, namespace: &str, name: &str) {
        let full_name = format!("{namespace}/{name}");
        self.take_out_capacity(&full_name);
        self.close_account(&full_name);
    }

    fn take_out_capacity(&mut self, full_name: &str) {
        if let Some(Some((key, nodes))) = self.capacities.remove(full_name) {
            self.pool_changed(nodes);
            self.pools.remove(key, full_name, nodes);
            self.release_selector(nodes);
        }
    }

    /// Records a change of a pool that these nodes can reach.
    pub(super) fn pool_changed(&mut self, nodes: SelectorId) {
        let nodes = self.nodes.matching(nodes);
        // Beyond this, recording single nodes does not pay off.
        if nodes.len() > MAX_POOL_NODES {
            self.pool_changes.forget();
        } else {
            nodes.iter().for_each(|node| self.pool_changes.push(NodeId(node)));
        }
    }

    /// Acquires the node selector that is equivalent to a label selector.
    fn acquire_labels(&mut self, selector: &api::LabelSelector) -> SelectorId {
        let selector = crate::label::LabelSelector::new(&mut self.symbols, Some(selector));
        let requirements: &[LabelRequirement] = selector.requirements();
        if requirements.is_empty() {
            return SelectorId::ALL;
        }
        let term = NodeSelectorTerm::of(requirements.iter().cloned().map(NodeRequirement::Label));
        self.acquire_selector(&NodeSelector::of(vec![term]))
    }

    /// Adds or replaces the attachment of a volume by name.
    pub fn upsert_attachment(&mut self, attachment: &api::VolumeAttachment) {
        self.remove_attachment(&attachment.metadata.name);
        let Some(volume) = attachment.spec.source.persistent_volume_name.as_deref() else {
            return;
        };
        let node = self.symbols.intern(&attachment.spec.node_name);
        let name: Box<str> = attachment.metadata.name.as_str().into();
        let known = Attachment {
            attacher: self.symbols.intern(&attachment.spec.attacher),
            volume: volume.into(),
        };
        self.attachment_nodes.insert(name.clone(), node);
        self.attachments.entry(node).or_default().insert(name, known);
    }

    /// Removes an attachment.
    pub fn remove_attachment(&mut self, name: &str) {
        if let Some(node) = self.attachment_nodes.remove(name)
            && let Some(by_name) = self.attachments.get_mut(&node)
        {
            by_name.remove(name);
        }
    }
}

fn known_watched(binder: &VolumeBinder, id: VolumeId) -> Option<&Volume> {
    binder.volumes.get(id.0).map(Overlaid::watched)
}

/// The selectors that a volume holds.
fn affinities_of(volume: Option<&Volume>) -> Vec<SelectorId> {
    let Some(volume) = volume else {
        return Vec::new();
    };
    let mut affinities = vec![volume.affinity, volume.zones];
    if let Some(Disk::InTree { migrated_affinity, .. }) = volume.disk.as_deref() {
        affinities.push(*migrated_affinity);
    }
    affinities
}

/// When a report expires, in seconds since 1970. An invalid time counts as long past: unverified capacity must not count.
fn expiry(text: &str) -> i64 {
    time::since_1970(text).unwrap_or(i64::MIN)
}
