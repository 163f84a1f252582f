//! The free volumes of each class, ordered by size, so that "the smallest that is large enough on
//! this node" costs a look-up and not a walk.
//!
//! Volumes that are alike but for their size form a group. Answers for a set of claims are kept for
//! every node ([`MatchSet`]) and mended where a group changed, so the cost of a decision does not grow
//! with the number of volumes, and a thousand alike pods cost little more than one.

use crate::assign::assign;
use crate::label::Labels;
use crate::model::{AccessModes, ClaimShape, Volume, VolumeId, VolumeMode};
use crate::nodes::{NodeId, Nodes, SelectorId};
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

/// How many changes of groups are remembered. A match set that is further behind is worked out anew,
/// which costs one look-up a node; 4,096 placements lie between two uses of such a set.
const MAX_CHANGES: usize = 4096;

/// How many match sets a class keeps. Claims of one class come in a handful of shapes; each set costs
/// some 40 bytes a node and claim.
const MAX_MATCH_SETS: usize = 32;

/// The free volumes of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeVolumes {
    groups: Vec<Group>,
    /// Slots of groups that were dropped.
    unused: Vec<u32>,
    group_ids: FxHashMap<GroupKey, u32>,
    by_affinity: FxHashMap<SelectorId, SmallVec<[u32; 1]>>,
    /// Groups that changed, in order; the first one has the number `changes_before`.
    changes: Vec<u32>,
    changes_before: u64,
    match_sets: Vec<Arc<MatchSet>>,
    uses: u64,
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
        if self.match_sets.is_empty() {
            self.changes_before += 1;
            return;
        }
        if self.changes.len() == MAX_CHANGES {
            self.changes_before += MAX_CHANGES as u64;
            self.changes.clear();
        }
        self.changes.push(group);
    }

    /// Drops the groups of a selector that was dropped with its last volume.
    pub(crate) fn drop_affinity(&mut self, affinity: SelectorId) {
        for group in self.by_affinity.remove(&affinity).unwrap_or_default() {
            self.group_ids.remove(&self.groups[group as usize].key);
            self.unused.push(group);
            // Both the selector's id and the group's will stand for others.
            self.match_sets.clear();
            self.changes_before += self.changes.len() as u64;
            self.changes.clear();
        }
    }

    /// The groups that a node can reach.
    fn groups_of<'a>(&'a self, nodes: &'a Nodes, node: NodeId) -> impl Iterator<Item = u32> + 'a {
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

    /// The smallest volumes of a group that are large enough for a claim, at most `count`.
    fn smallest(&self, group: u32, shape: &ClaimShape, count: usize) -> SmallVec<[FreeVolume; 1]> {
        let group = &self.groups[group as usize];
        if !group.key.suits(shape) {
            return SmallVec::new();
        }
        let least = FreeVolume {
            capacity: shape.request,
            name: Arc::default(),
            id: VolumeId(0),
        };
        group.volumes.range(least..).take(count).cloned().collect()
    }

    /// The match set for claims of these shapes, up to date. The shapes must be in order, so that the
    /// same claims always mean the same set. A set that is still held elsewhere is copied.
    pub(crate) fn prepare(&mut self, nodes: &Nodes, shapes: &[ClaimShape]) -> Arc<MatchSet> {
        self.uses += 1;
        let found = self.match_sets.iter().position(|set| set.shapes == shapes);
        let index = found.unwrap_or_else(|| {
            if self.match_sets.len() == MAX_MATCH_SETS {
                let oldest = (0..self.match_sets.len()).min_by_key(|index| self.match_sets[*index].used);
                self.match_sets.swap_remove(oldest.unwrap_or(0));
            }
            self.match_sets.push(Arc::new(MatchSet::new(shapes)));
            self.match_sets.len() - 1
        });
        let mut set = self.match_sets.swap_remove(index);
        let mended = Arc::make_mut(&mut set);
        mended.used = self.uses;
        mended.refresh(self, nodes);
        self.match_sets.push(Arc::clone(&set));
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

/// For claims of given shapes and one class: which free volumes they would get on each node.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchSet {
    shapes: Vec<ClaimShape>,
    /// By group and shape: the smallest volumes that are large enough.
    by_group: Vec<SmallVec<[FreeVolume; 1]>>,
    /// By node and shape: the volume assigned.
    by_node: Vec<Option<Match>>,
    /// The number of the first change that is not yet seen.
    seen: u64,
    nodes_epoch: Option<u64>,
    used: u64,
}

/// A free volume for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) volume: VolumeId,
    pub(crate) capacity: i64,
}

impl MatchSet {
    fn new(shapes: &[ClaimShape]) -> Self {
        Self {
            shapes: shapes.to_vec(),
            ..Self::default()
        }
    }

    /// The volumes for the claims on a node, in the order of the shapes.
    pub(crate) fn on_node(&self, node: NodeId) -> &[Option<Match>] {
        let width = self.shapes.len();
        self.by_node
            .get(node.index() * width..(node.index() + 1) * width)
            .unwrap_or(&[])
    }

    fn refresh(&mut self, free: &FreeVolumes, nodes: &Nodes) {
        let next = free.changes_before + free.changes.len() as u64;
        let is_new = self.nodes_epoch.is_none() || self.seen < free.changes_before;
        let first_unseen = self.seen.saturating_sub(free.changes_before) as usize;
        let changed: BTreeSet<u32> = if is_new {
            (0..free.groups.len() as u32).collect()
        } else {
            free.changes[first_unseen..].iter().copied().collect()
        };
        self.by_group
            .resize(free.groups.len() * self.shapes.len(), SmallVec::new());
        for group in &changed {
            for (index, shape) in self.shapes.iter().enumerate() {
                self.by_group[*group as usize * self.shapes.len() + index] =
                    free.smallest(*group, shape, self.shapes.len());
            }
        }
        if is_new || self.nodes_epoch != Some(nodes.epoch()) {
            self.by_node.clear();
            self.by_node.resize(nodes.column_length() * self.shapes.len(), None);
            for node in nodes.ids() {
                self.refresh_node(free, nodes, node);
            }
        } else {
            let affinities: BTreeSet<_> = changed
                .iter()
                .map(|group| free.groups[*group as usize].key.affinity)
                .collect();
            for node in affinities.iter().flat_map(|affinity| nodes.matching(*affinity)) {
                self.refresh_node(free, nodes, NodeId(node));
            }
        }
        self.seen = next;
        self.nodes_epoch = Some(nodes.epoch());
    }

    /// The smallest volumes that are large enough for the claim at an index and that a node can reach.
    fn smallest_on<'a>(
        &'a self,
        free: &'a FreeVolumes,
        nodes: &'a Nodes,
        node: NodeId,
        index: usize,
    ) -> impl Iterator<Item = &'a FreeVolume> + 'a {
        let width = self.shapes.len();
        free.groups_of(nodes, node)
            .flat_map(move |group| &self.by_group[group as usize * width + index])
    }

    fn refresh_node(&mut self, free: &FreeVolumes, nodes: &Nodes, node: NodeId) {
        let width = self.shapes.len();
        let start = node.index() * width;
        if width == 1 {
            self.by_node[start] = self.smallest_on(free, nodes, node, 0).min().map(Match::of);
            return;
        }
        let mut volumes: Vec<&FreeVolume> = (0..width)
            .flat_map(|index| self.smallest_on(free, nodes, node, index))
            .collect();
        volumes.sort_unstable();
        volumes.dedup();
        let position = |volume: &FreeVolume| volumes.binary_search(&volume).ok();
        let candidates: Vec<Vec<usize>> = (0..width)
            .map(|index| {
                self.smallest_on(free, nodes, node, index)
                    .filter_map(position)
                    .collect()
            })
            .collect();
        let assigned: Vec<_> = assign(volumes.len(), &candidates)
            .into_iter()
            .map(|volume| volume.map(|volume| Match::of(volumes[volume])))
            .collect();
        self.by_node[start..start + width].copy_from_slice(&assigned);
    }
}

impl Match {
    fn of(volume: &FreeVolume) -> Self {
        Self {
            volume: volume.id,
            capacity: volume.capacity,
        }
    }
}
