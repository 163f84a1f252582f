//! Attached volumes of each driver by node, for attach limits.
//!
//! What a claim counts as depends on objects that change independently: the claim, its volume, its class, and the
//! node's CSINode. The count of a node is therefore computed from its pods when it is first needed, and again after a
//! change that affects it. A decision recomputes only the few nodes that changed since the last one.

use super::pods::Pods;
use crate::pod::{Footprint, PodVolume};
use crate::reason::Reason;
use berth_core::api;
use berth_core::binder::VolumeBinder;
use berth_core::migration::InTreePlugin;
use berth_core::model::{Claim, Disk, Volume};
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use berth_core::trace::{Marks, Trace};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A volume as drivers count it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VolumeKey {
    /// The driver.
    pub driver: Symbol,
    /// The driver's name for the volume.
    pub handle: Handle,
}

berth_core::trace!(VolumeKey { driver, handle });

/// What identifies volumes of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Handle {
    /// The driver's name for the volume.
    Disk(Box<str>),
    /// The claim, by namespace and name, of a volume that is not provisioned yet.
    Claim(Symbol, Box<str>),
}

impl Trace for Handle {
    fn trace(&self, marks: &mut Marks) {
        match self {
            Self::Disk(_) => {}
            Self::Claim(namespace, _) => namespace.trace(marks),
        }
    }
}

/// What a volume of a pod counts as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Counted {
    /// One volume of a driver.
    Volume(VolumeKey),
    /// One volume of a driver, but only on nodes that have a CSINode.
    Migrated(VolumeKey),
    /// Nothing.
    Nothing,
    /// The claim does not exist.
    Missing(Reason),
    /// Unknown.
    Broken(Reason),
    /// Unknown on nodes with a CSINode; nothing on others.
    MigratedBroken(Reason),
}

/// What a volume of a pod counts as.
#[must_use]
pub fn count_volume(binder: &VolumeBinder, pod: &Footprint, volume: &PodVolume) -> Counted {
    match volume {
        PodVolume::InTree { name, plugin, handle } => match handle {
            Ok(handle) => migrated(binder, *plugin, Handle::Disk(handle.clone())),
            Err(problem) => Counted::MigratedBroken(Reason::NotTranslatable {
                volume: name.as_ref().into(),
                problem: problem.to_string().into(),
            }),
        },
        PodVolume::Claim { name, ephemeral } => {
            let namespace = binder.symbols().text(pod.namespace);
            let Some(claim) = binder.claim_named(pod.namespace, name) else {
                return Counted::Missing(Reason::CountedClaimNotFound {
                    namespace: namespace.into(),
                    claim: name.as_ref().into(),
                });
            };
            if *ephemeral && (pod.uid.is_empty() || claim.controller_uid != pod.uid) {
                return Counted::Broken(Reason::CountedClaimNotOwned {
                    claim: format!("{namespace}/{name}").into(),
                    pod: format!("{namespace}/{}", pod.name).into(),
                });
            }
            count_claim(binder, claim)
        }
    }
}

/// A claim used by pods with a node: what it counts as, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedClaim {
    /// What it counts as.
    pub counted: Counted,
    /// The nodes of the pods that use it, once per use.
    pub nodes: SmallVec<[NodeId; 1]>,
}

fn count_claim(binder: &VolumeBinder, claim: &Claim) -> Counted {
    let volume = binder.volume_named(&claim.volume_name);
    if let Some(volume) = volume.filter(|_| !claim.volume_name.is_empty()) {
        return count_disk(binder, volume);
    }
    let Some(class) = claim.class.and_then(|class| binder.class(class)) else {
        return Counted::Nothing;
    };
    // A volume that is about to be bound already counts, if its class does not determine the driver.
    if let Some(volume) = binder.volume_held_for(claim).filter(|_| !class.provisions) {
        return count_disk(binder, volume);
    }
    let handle = Handle::Claim(claim.namespace, claim.name.clone());
    match InTreePlugin::from_name(binder.symbols().text(class.provisioner)) {
        Some(plugin) => migrated(binder, plugin, handle),
        None => counted(VolumeKey {
            driver: class.driver,
            handle,
        }),
    }
}

/// What a volume counts as.
#[must_use]
pub fn count_disk(binder: &VolumeBinder, volume: &Volume) -> Counted {
    match volume.disk.as_deref() {
        Some(Disk::Csi { driver, handle }) => counted(VolumeKey {
            driver: *driver,
            handle: Handle::Disk(handle.clone()),
        }),
        Some(Disk::InTree {
            plugin,
            handle: Ok(handle),
            ..
        }) => migrated(binder, *plugin, Handle::Disk(handle.clone())),
        Some(Disk::InTree { handle: Err(_), .. }) | None => Counted::Nothing,
    }
}

fn counted(key: VolumeKey) -> Counted {
    let named = key.handle != Handle::Disk(Box::default());
    if key.driver.is_empty() || !named {
        return Counted::Nothing;
    }
    Counted::Volume(key)
}

/// A driver that no CSINode and no volume refers to has no limit: its volumes need not be counted.
fn migrated(binder: &VolumeBinder, plugin: InTreePlugin, handle: Handle) -> Counted {
    let driver = binder.symbols().get(plugin.driver());
    match driver.map(|driver| counted(VolumeKey { driver, handle })) {
        Some(Counted::Volume(key)) => Counted::Migrated(key),
        _ => Counted::Nothing,
    }
}

/// One driver on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverColumn {
    /// The attach limit of the driver on each node; the maximum number if there is none.
    pub limit: Vec<i64>,
    /// Number of attached volumes.
    pub attached: Vec<i64>,
}

berth_core::trace!(DriverColumn { ; limit, attached });

/// The state of one node.
#[derive(Clone, Debug, Default)]
struct NodeAttached {
    /// Volumes of running pods.
    in_use: FxHashSet<VolumeKey>,
    /// Drivers whose columns have an entry for the node.
    drivers: SmallVec<[Symbol; 2]>,
}

berth_core::trace!(NodeAttached { in_use, drivers });

/// The attached volumes of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    nodes: Vec<NodeAttached>,
    columns: FxHashMap<Symbol, DriverColumn>,
    /// The nodes on which running pods use a volume.
    holders: FxHashMap<VolumeKey, SmallVec<[NodeId; 1]>>,
    /// Nodes on which a running pod has a volume that cannot be counted.
    broken: FxHashMap<NodeId, Reason>,
    changed: FxHashSet<NodeId>,
    all_changed: bool,
    /// VolumeAttachments by name: the volume and the node.
    attachments: FxHashMap<Box<str>, (Box<str>, Symbol)>,
    /// By volume: its VolumeAttachments.
    volume_attachments: FxHashMap<Box<str>, FxHashSet<Box<str>>>,
    /// By claim: the nodes of the pods that use it, once per use.
    claim_nodes: FxHashMap<(Symbol, Box<str>), SmallVec<[NodeId; 1]>>,
    /// By volume: the claims in use that referred to it when last observed.
    volume_claims: FxHashMap<Box<str>, FxHashSet<(Symbol, Box<str>)>>,
}

berth_core::trace!(Attached {
    nodes, columns, holders, attachments, claim_nodes, volume_claims;
    broken, changed, all_changed, volume_attachments
});

impl Attached {
    /// Forgets drivers that no node limits any more, and claims that no pod uses.
    pub(super) fn tidy(&mut self) {
        let limited: FxHashSet<Symbol> = self
            .nodes
            .iter()
            .flat_map(|node| node.drivers.iter().copied())
            .collect();
        self.columns.retain(|driver, _| limited.contains(driver));
        self.volume_claims.retain(|_, claims| {
            claims.retain(|key| self.claim_nodes.contains_key(key));
            !claims.is_empty()
        });
    }

    pub(super) fn node_changed(&mut self, node: NodeId) {
        self.changed.insert(node);
    }

    /// Any node's count may have changed.
    pub(super) fn all_changed(&mut self) {
        self.all_changed = true;
    }

    pub(super) fn add(&mut self, binder: &VolumeBinder, pod: &Footprint, node: NodeId) {
        if pod.volumes.is_empty() {
            return;
        }
        self.changed.insert(node);
        for key in claim_keys(pod) {
            self.claim_nodes.entry(key.clone()).or_default().push(node);
            self.claim_names_volume(binder, key);
        }
    }

    pub(super) fn remove(&mut self, pod: &Footprint, node: NodeId) {
        if pod.volumes.is_empty() {
            return;
        }
        self.changed.insert(node);
        for key in claim_keys(pod) {
            if let Some(nodes) = self.claim_nodes.get_mut(&key) {
                if let Some(position) = nodes.iter().position(|found| *found == node) {
                    nodes.swap_remove(position);
                }
                if nodes.is_empty() {
                    self.claim_nodes.remove(&key);
                }
            }
        }
    }

    fn claim_names_volume(&mut self, binder: &VolumeBinder, key: (Symbol, Box<str>)) {
        if let Some(claim) = binder.claim_named(key.0, &key.1)
            && !claim.volume_name.is_empty()
        {
            let claims = self.volume_claims.entry(claim.volume_name.clone()).or_default();
            claims.insert(key);
        }
    }

    /// A claim was added, changed or deleted.
    pub(super) fn claim_changed(&mut self, binder: &VolumeBinder, namespace: Symbol, name: &str) {
        let key = (namespace, name.into());
        if let Some(nodes) = self.claim_nodes.get(&key) {
            self.changed.extend(nodes.iter().copied());
            self.claim_names_volume(binder, key);
        }
    }

    /// What a claim counts as on the nodes of the pods that use it. `None` if no pod with a node does.
    pub(super) fn counted_claim(&self, binder: &VolumeBinder, namespace: Symbol, name: &str) -> Option<CountedClaim> {
        let nodes = self.claim_nodes.get(&(namespace, name.into()))?;
        let claim = binder.claim_named(namespace, name);
        Some(CountedClaim {
            counted: claim.map_or(Counted::Nothing, |claim| count_claim(binder, claim)),
            nodes: nodes.clone(),
        })
    }

    /// A VolumeAttachment was added, changed or deleted.
    pub(super) fn attachment_changed(
        &mut self,
        binder: &mut VolumeBinder,
        name: &str,
        new: Option<&api::VolumeAttachment>,
    ) {
        if let Some((volume, node)) = self.attachments.remove(name) {
            self.changed.extend(binder.nodes().id(node));
            if let Some(names) = self.volume_attachments.get_mut(&volume) {
                names.remove(name);
                if names.is_empty() {
                    self.volume_attachments.remove(&volume);
                }
            }
        }
        let Some(new) = new else {
            return;
        };
        let node = binder.symbols_mut().intern(&new.spec.node_name);
        self.changed.extend(binder.nodes().id(node));
        if let Some(volume) = new.spec.source.persistent_volume_name.as_deref() {
            let names = self.volume_attachments.entry(volume.into()).or_default();
            names.insert(name.into());
            self.attachments.insert(name.into(), (volume.into(), node));
        }
    }

    /// A volume was added, changed or deleted.
    pub(super) fn volume_changed(&mut self, binder: &VolumeBinder, name: &str) {
        let attachments = self.volume_attachments.get(name).into_iter().flatten();
        let nodes = attachments.filter_map(|attachment| self.attachments.get(attachment));
        self.changed
            .extend(nodes.filter_map(|(_, node)| binder.nodes().id(*node)));
        let Some(claims) = self.volume_claims.get_mut(name) else {
            return;
        };
        claims.retain(|key| self.claim_nodes.contains_key(key));
        for nodes in claims.iter().filter_map(|key| self.claim_nodes.get(key)) {
            self.changed.extend(nodes.iter().copied());
        }
        if claims.is_empty() {
            self.volume_claims.remove(name);
        }
    }

    /// Recomputes the changed nodes, and updates the binder's attach limits.
    pub(super) fn refresh(&mut self, binder: &mut VolumeBinder, pods: &Pods) {
        let length = binder.nodes().column_length();
        if self.nodes.len() < length {
            self.nodes.resize_with(length, NodeAttached::default);
        }
        if std::mem::take(&mut self.all_changed) {
            self.changed.extend((0..length as u32).map(NodeId));
        }
        for node in std::mem::take(&mut self.changed) {
            let before = self.nodes[node.index()].drivers.clone();
            self.refresh_node(binder, pods, node, length);
            let after = &self.nodes[node.index()].drivers;
            for driver in before.iter().filter(|driver| !after.contains(driver)) {
                binder.set_attach_room(*driver, node, None);
            }
            for driver in after {
                binder.set_attach_room(*driver, node, self.room(*driver, node));
            }
        }
    }

    /// How many more volumes of a driver a node can attach, if there is a limit.
    fn room(&self, driver: Symbol, node: NodeId) -> Option<i64> {
        let column = self.column(driver)?;
        let limit = column.limit.get(node.index()).filter(|limit| **limit < i64::MAX)?;
        Some(limit - column.attached.get(node.index())?)
    }

    fn refresh_node(&mut self, binder: &VolumeBinder, pods: &Pods, node: NodeId, length: usize) {
        let old = std::mem::take(&mut self.nodes[node.index()]);
        for key in &old.in_use {
            if let Some(nodes) = self.holders.get_mut(key) {
                nodes.retain(|found| *found != node);
                if nodes.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
        for driver in &old.drivers {
            if let Some(column) = self.columns.get_mut(driver) {
                column.limit[node.index()] = i64::MAX;
                column.attached[node.index()] = 0;
            }
        }
        self.broken.remove(&node);
        let name = binder.nodes().name(node);
        let Some(csi_node) = binder.csi_node(name).filter(|_| !name.is_empty()) else {
            return;
        };
        if csi_node.limits.is_empty() {
            return;
        }
        let (in_use, broken) = volumes_in_use(binder, pods, name);
        let mut new = NodeAttached {
            in_use,
            ..NodeAttached::default()
        };
        self.broken.extend(broken.map(|reason| (node, reason)));
        let mut attached: FxHashSet<_> = attachments(binder, name).collect();
        attached.extend(new.in_use.iter().cloned());
        for (driver, limit) in &csi_node.limits {
            let column = self.columns.entry(*driver).or_default();
            column.limit.resize(length.max(column.limit.len()), i64::MAX);
            column.attached.resize(length.max(column.attached.len()), 0);
            column.limit[node.index()] = *limit;
            let of_driver = attached.iter().filter(|key| key.driver == *driver);
            column.attached[node.index()] = of_driver.count() as i64;
            new.drivers.push(*driver);
        }
        for key in &new.in_use {
            self.holders.entry(key.clone()).or_default().push(node);
        }
        self.nodes[node.index()] = new;
    }

    /// The column of a driver with a limit on some node.
    #[must_use]
    pub fn column(&self, driver: Symbol) -> Option<&DriverColumn> {
        self.columns.get(&driver)
    }

    /// The nodes with limits on which running pods use a volume.
    #[must_use]
    pub fn holders(&self, key: &VolumeKey) -> &[NodeId] {
        self.holders.get(key).map_or(&[], |nodes| nodes)
    }

    /// The nodes whose volumes cannot be counted, and why.
    #[must_use]
    pub fn broken(&self) -> &FxHashMap<NodeId, Reason> {
        &self.broken
    }

    /// Whether two refreshed counts agree.
    pub(super) fn same_counts(&self, other: &Self) -> bool {
        let in_use = |attached: &Self| -> Vec<_> { attached.nodes.iter().map(|node| node.in_use.clone()).collect() };
        self.columns == other.columns && self.broken == other.broken && in_use(self) == in_use(other)
    }
}

/// The volumes used by the pods on a node, and the first one that cannot be counted. Missing claims count as nothing.
fn volumes_in_use(binder: &VolumeBinder, pods: &Pods, node_name: Symbol) -> (FxHashSet<VolumeKey>, Option<Reason>) {
    let (mut in_use, mut broken) = (FxHashSet::default(), None);
    let on_node = pods.on_node(node_name).iter().filter_map(|pod| pods.get(*pod));
    // A pod that a what-if removed from its node is still listed under the node's name.
    for running in on_node.filter(|running| running.node.is_some()) {
        for volume in &running.footprint.volumes {
            match count_volume(binder, &running.footprint, volume) {
                Counted::Volume(key) | Counted::Migrated(key) => {
                    in_use.insert(key);
                }
                Counted::Broken(reason) | Counted::MigratedBroken(reason) => {
                    broken.get_or_insert(reason);
                }
                Counted::Nothing | Counted::Missing(_) => {}
            }
        }
    }
    (in_use, broken)
}

/// The CSI volumes that are attached to a node, regardless of their users.
fn attachments(binder: &VolumeBinder, node_name: Symbol) -> impl Iterator<Item = VolumeKey> {
    binder.attachments(node_name).filter_map(|attachment| {
        let volume = binder.volume_named(&attachment.volume)?;
        match volume.disk.as_deref()? {
            Disk::Csi { handle, .. } if !attachment.attacher.is_empty() => Some(VolumeKey {
                driver: attachment.attacher,
                handle: Handle::Disk(handle.clone()),
            }),
            Disk::Csi { .. } | Disk::InTree { .. } => None,
        }
    })
}

fn claim_keys(pod: &Footprint) -> impl Iterator<Item = (Symbol, Box<str>)> {
    pod.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Claim { name, .. } => Some((pod.namespace, name.clone())),
        PodVolume::InTree { .. } => None,
    })
}
