//! The free volumes of each class, ordered by size, so that "the smallest that is large enough on
//! this node" costs a look-up and not a walk.
//!
//! Volumes that are alike but for their size form a group. Answers for a set of claims are kept for
//! every node ([`MatchSet`]) and mended where a group changed.

use crate::journal::Journal;
use crate::label::Labels;
use crate::matches::{MatchSet, MatchSets};
use crate::model::{AccessModes, ClaimShape, Volume, VolumeId, VolumeMode};
use crate::nodes::{NodeId, Nodes, SelectorId};
use crate::slots::SlotId;
use crate::symbols::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Volumes that differ only in name and size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    affinity: SelectorId,
    access_modes: AccessModes,
    volume_mode: VolumeMode,
    attributes_class: Symbol,
    labels: Labels,
}

impl GroupKey {
    fn of(volume: &Volume) -> Self {
        Self {
            affinity: volume.affinity,
            access_modes: volume.access_modes,
            volume_mode: volume.volume_mode,
            attributes_class: volume.attributes_class,
            labels: volume.labels.clone(),
        }
    }

    /// Whether the volumes of the group suit a claim, if they are large enough.
    fn suits(&self, shape: &ClaimShape) -> bool {
        self.access_modes.contains(shape.access_modes)
            && self.volume_mode == shape.volume_mode
            && self.attributes_class == shape.attributes_class
            && shape
                .selector
                .as_ref()
                .is_none_or(|selector| selector.matches(&self.labels))
    }
}

/// A free volume, ordered by size and then by name, so that the choice does not depend on the order
/// in which volumes became known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeVolume {
    pub(crate) capacity: i64,
    pub(crate) name: Arc<str>,
    pub(crate) id: VolumeId,
}

#[derive(Clone, Debug)]
struct Group {
    key: GroupKey,
    volumes: BTreeSet<FreeVolume>,
}

/// The free volumes of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeVolumes {
    groups: Vec<Group>,
    /// Slots of groups that were dropped.
    unused: Vec<u32>,
    group_ids: FxHashMap<GroupKey, u32>,
    by_affinity: FxHashMap<SelectorId, SmallVec<[u32; 1]>>,
    /// Groups that changed.
    changes: Journal<u32>,
    sets: MatchSets,
}

impl FreeVolumes {
    pub(crate) fn insert(&mut self, id: VolumeId, volume: &Volume) {
        let group = self.group_of(GroupKey::of(volume));
        self.groups[group as usize].volumes.insert(free_volume(id, volume));
        self.changed(group);
    }

    pub(crate) fn remove(&mut self, id: VolumeId, volume: &Volume) {
        if let Some(group) = self.group_ids.get(&GroupKey::of(volume)).copied() {
            self.groups[group as usize].volumes.remove(&free_volume(id, volume));
            self.changed(group);
        }
    }

    /// Groups are few (one a node for local disks) and stay while their selector has holders, also when
    /// they are empty: their volumes come back.
    fn group_of(&mut self, key: GroupKey) -> u32 {
        if let Some(group) = self.group_ids.get(&key) {
            return *group;
        }
        let group = self.unused.pop().unwrap_or(self.groups.len() as u32);
        self.by_affinity.entry(key.affinity).or_default().push(group);
        self.group_ids.insert(key.clone(), group);
        let empty = Group {
            key,
            volumes: BTreeSet::new(),
        };
        match self.groups.get_mut(group as usize) {
            Some(slot) => *slot = empty,
            None => self.groups.push(empty),
        }
        group
    }

    fn changed(&mut self, group: u32) {
        if self.sets.is_empty() {
            self.changes.forget();
        } else {
            self.changes.push(group);
        }
    }

    /// The groups that changed.
    pub(crate) fn changes(&self) -> &Journal<u32> {
        &self.changes
    }

    /// The nodes that can reach a group.
    pub(crate) fn affinity(&self, group: u32) -> SelectorId {
        self.groups[group as usize].key.affinity
    }

    /// Drops the groups of a selector that was dropped with its last volume.
    pub(crate) fn drop_affinity(&mut self, affinity: SelectorId) {
        for group in self.by_affinity.remove(&affinity).unwrap_or_default() {
            self.group_ids.remove(&self.groups[group as usize].key);
            self.unused.push(group);
            // Both the selector's id and the group's will stand for others.
            self.sets.clear();
            self.changes.forget();
        }
    }

    /// The groups that a node can reach.
    pub(crate) fn groups_of<'a>(&'a self, nodes: &'a Nodes, node: NodeId) -> impl Iterator<Item = u32> + 'a {
        nodes
            .selectors_of(node)
            .iter()
            .chain([&SelectorId::ALL])
            .filter_map(|selector| self.by_affinity.get(selector))
            .flatten()
            .copied()
    }

    /// The free volumes that a node can reach and that suit a claim, whatever their size.
    pub(crate) fn reachable<'a>(
        &'a self,
        nodes: &'a Nodes,
        node: NodeId,
        shape: Option<&'a ClaimShape>,
    ) -> impl Iterator<Item = &'a FreeVolume> + 'a {
        self.groups_of(nodes, node)
            .map(|group| &self.groups[group as usize])
            .filter(move |group| shape.is_none_or(|shape| group.key.suits(shape)))
            .flat_map(|group| &group.volumes)
    }

    /// All free volumes of the class.
    pub(crate) fn all(&self) -> impl Iterator<Item = &FreeVolume> + '_ {
        self.groups.iter().flat_map(|group| &group.volumes)
    }

    /// For each of several claims of one pod, the smallest volumes of a group that are large enough: as many as
    /// there are claims, since the others may take some.
    pub(crate) fn smallest_each(&self, group: u32, shapes: &[ClaimShape]) -> SmallVec<[SmallVec<[&FreeVolume; 1]>; 1]> {
        let group = &self.groups[group as usize];
        let of_shape = |shape: &ClaimShape| {
            if !group.key.suits(shape) {
                return SmallVec::new();
            }
            let least = FreeVolume {
                capacity: shape.request,
                name: Arc::default(),
                id: VolumeId(SlotId::LEAST),
            };
            group.volumes.range(least..).take(shapes.len()).collect()
        };
        shapes.iter().map(of_shape).collect()
    }

    /// The match set for claims of these shapes, up to date. The shapes must be in order.
    pub(crate) fn prepare(&mut self, nodes: &Nodes, shapes: &[ClaimShape]) -> Arc<MatchSet> {
        let mut sets = std::mem::take(&mut self.sets);
        let set = sets.prepare(self, nodes, shapes);
        self.sets = sets;
        set
    }
}

fn free_volume(id: VolumeId, volume: &Volume) -> FreeVolume {
    FreeVolume {
        capacity: volume.capacity,
        name: Arc::clone(&volume.name),
        id,
    }
}
