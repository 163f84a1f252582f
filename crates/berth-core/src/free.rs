//! The free volumes of each class, ordered by size, so that "the smallest that is large enough on
//! this node" costs a look-up and not a walk.
//!
//! Volumes that are alike but for their size form a group. Of their labels only those count that some claim has asked
//! for: volumes may each have a label of their own, and a group for each would be a walk again. Answers for a set of
//! claims are kept for every node ([`MatchSet`]) and mended where a group changed.

use crate::journal::Journal;
use crate::label::{LabelRequirement, Labels};
use crate::matches::{MatchSet, MatchSets};
use crate::model::{AccessModes, ClaimShape, Volume, VolumeId, VolumeMode};
use crate::nodes::{NodeId, Nodes, SelectorId};
use crate::slots::SlotId;
use crate::symbols::Symbol;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Volumes that differ only in name and size, and in labels that no claim asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    affinity: SelectorId,
    access_modes: AccessModes,
    volume_mode: VolumeMode,
    attributes_class: Symbol,
    labels: Labels,
}

impl GroupKey {
    fn of(volume: &Volume, asked: &[Symbol]) -> Self {
        Self {
            affinity: volume.affinity,
            access_modes: volume.access_modes,
            volume_mode: volume.volume_mode,
            attributes_class: volume.attributes_class,
            labels: volume.labels.only(asked),
        }
    }

    /// Whether the volumes of the group suit a claim, if they are large enough. The labels that the claim asks for must
    /// have been asked for before.
    fn suits(&self, shape: &ClaimShape) -> bool {
        self.suits_but_for_labels(shape)
            && shape
                .selector
                .as_ref()
                .is_none_or(|selector| selector.matches(&self.labels))
    }

    fn suits_but_for_labels(&self, shape: &ClaimShape) -> bool {
        self.access_modes.contains(shape.access_modes)
            && self.volume_mode == shape.volume_mode
            && self.attributes_class == shape.attributes_class
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
    /// The labels that claims have asked for.
    asked: Vec<Symbol>,
    /// The selectors of groups that changed.
    changes: Journal<SelectorId>,
    sets: MatchSets,
}

impl FreeVolumes {
    pub(crate) fn insert(&mut self, id: VolumeId, volume: &Volume) {
        self.enter(id, volume);
        self.changed(volume.affinity);
    }

    fn enter(&mut self, id: VolumeId, volume: &Volume) {
        let group = self.group_of(GroupKey::of(volume, &self.asked));
        self.groups[group as usize].volumes.insert(free_volume(id, volume));
    }

    pub(crate) fn remove(&mut self, id: VolumeId, volume: &Volume) {
        let key = GroupKey::of(volume, &self.asked);
        if let Some(group) = self.group_ids.get(&key).copied() {
            let volumes = &mut self.groups[group as usize].volumes;
            volumes.remove(&free_volume(id, volume));
            if volumes.is_empty() {
                self.drop_group(&key, group);
            }
            self.changed(volume.affinity);
        }
    }

    fn drop_group(&mut self, key: &GroupKey, group: u32) {
        self.group_ids.remove(key);
        self.unused.push(group);
        if let Some(groups) = self.by_affinity.get_mut(&key.affinity) {
            groups.retain(|found| *found != group);
            if groups.is_empty() {
                self.by_affinity.remove(&key.affinity);
            }
        }
    }

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

    fn changed(&mut self, affinity: SelectorId) {
        if self.sets.is_empty() {
            self.changes.forget();
        } else {
            self.changes.push(affinity);
        }
    }

    /// The selectors of the groups that changed.
    pub(crate) fn changes(&self) -> &Journal<SelectorId> {
        &self.changes
    }

    /// The nodes that can reach a group.
    pub(crate) fn affinity(&self, group: u32) -> SelectorId {
        self.groups[group as usize].key.affinity
    }

    /// A selector was dropped with the last volume that any group of it had: its id will stand for another one, and what
    /// is not mended yet cannot be.
    pub(crate) fn drop_affinity(&mut self, affinity: SelectorId) {
        if self.changes.remembers(&affinity) {
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

    /// The free volumes that a node can reach and that suit a claim, whatever their size and labels.
    pub(crate) fn reachable<'a>(
        &'a self,
        nodes: &'a Nodes,
        node: NodeId,
        shape: Option<&'a ClaimShape>,
    ) -> impl Iterator<Item = &'a FreeVolume> + 'a {
        self.groups_of(nodes, node)
            .map(|group| &self.groups[group as usize])
            .filter(move |group| shape.is_none_or(|shape| group.key.suits_but_for_labels(shape)))
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
    pub(crate) fn prepare<'a>(
        &mut self,
        nodes: &Nodes,
        shapes: &[ClaimShape],
        volume: impl Fn(VolumeId) -> Option<&'a Volume>,
    ) -> Arc<MatchSet> {
        self.ask_for_labels(shapes, volume);
        let mut sets = std::mem::take(&mut self.sets);
        let set = sets.prepare(self, nodes, shapes);
        self.sets = sets;
        set
    }
}

impl FreeVolumes {
    /// Tells volumes apart by the labels that these claims ask for. Claims of a class ask for few labels all in all.
    fn ask_for_labels<'a>(&mut self, shapes: &[ClaimShape], volume: impl Fn(VolumeId) -> Option<&'a Volume>) {
        let selectors = shapes.iter().filter_map(|shape| shape.selector.as_ref());
        let keys = selectors
            .flat_map(|selector| selector.requirements())
            .map(LabelRequirement::key);
        let before = self.asked.len();
        for key in keys {
            if !self.asked.contains(&key) {
                self.asked.push(key);
            }
        }
        if self.asked.len() == before {
            return;
        }
        let ids: Vec<VolumeId> = self.all().map(|volume| volume.id).collect();
        self.groups.clear();
        self.unused.clear();
        self.group_ids.clear();
        self.by_affinity.clear();
        // Answers stay true: claims that asked for other labels get the same volumes from more groups.
        for id in ids {
            if let Some(volume) = volume(id) {
                self.enter(id, volume);
            }
        }
    }
}

fn free_volume(id: VolumeId, volume: &Volume) -> FreeVolume {
    FreeVolume {
        capacity: volume.capacity,
        name: Arc::clone(&volume.name),
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;
    use crate::model::{Claim, volume_without_selectors};
    use crate::slots::Slots;
    use crate::symbols::Symbols;
    use serde_json::json;

    /// A class whose volumes each have a label of their own, and a claim that may ask for one.
    struct World {
        symbols: Symbols,
        nodes: Nodes,
        volumes: Slots<Volume>,
        free: FreeVolumes,
    }

    impl World {
        fn of(count: usize) -> Self {
            let mut world = Self {
                symbols: Symbols::default(),
                nodes: Nodes::default(),
                volumes: Slots::default(),
                free: FreeVolumes::default(),
            };
            world.nodes.upsert(&mut world.symbols, "n1", &api::StringMap::default());
            for number in 0..count {
                let name = format!("pv{number}");
                let object = json!({"metadata": {"name": name, "labels": {"id": name}}, "status": {"phase": "Available"},
                    "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
                let object: api::PersistentVolume = serde_json::from_value(object).unwrap();
                let volume = volume_without_selectors(&mut world.symbols, &object);
                let id = VolumeId(world.volumes.insert(volume.clone()));
                world.free.insert(id, &volume);
            }
            world
        }

        fn found(&mut self, selector: &serde_json::Value) -> Option<&str> {
            let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "selector": selector, "resources": {"requests": {"storage": "1Gi"}}}});
            let claim: api::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
            let shape = Claim::new(&mut self.symbols, &claim).shape;
            let volume = |id: VolumeId| self.volumes.get(id.0);
            let set = self.free.prepare(&self.nodes, &[shape], volume);
            let found = set.on_node(NodeId(0))[0]?.volume();
            self.volumes.get(found.0).map(|volume| &*volume.name)
        }
    }

    #[test]
    fn labels_that_no_claim_asks_for_make_no_groups() {
        let mut world = World::of(50);
        assert_eq!(world.found(&json!(null)), Some("pv0"));
        assert_eq!(world.free.group_ids.len(), 1);
        assert_eq!(world.found(&json!({"matchLabels": {"id": "pv7"}})), Some("pv7"));
        assert_eq!(world.found(&json!({"matchLabels": {"id": "pv9"}})), Some("pv9"));
        assert_eq!(world.found(&json!({"matchLabels": {"tier": "gold"}})), None);
        assert_eq!(
            world.found(&json!(null)),
            Some("pv0"),
            "the answer from before still holds"
        );
        assert_eq!(world.free.group_ids.len(), 50);
    }

    #[test]
    fn groups_go_with_their_last_volume() {
        let mut world = World::of(50);
        world.found(&json!({"matchLabels": {"id": "pv7"}}));
        let ids: Vec<VolumeId> = world.free.all().map(|volume| volume.id).collect();
        for id in ids {
            let volume = world.volumes.remove(id.0).unwrap();
            world.free.remove(id, &volume);
        }
        assert_eq!((world.free.group_ids.len(), world.free.by_affinity.len()), (0, 0));
        assert_eq!(world.found(&json!(null)), None);
    }
}
