//! The free volumes of each class, ordered by size, so that finding the smallest one that is large enough on a node is
//! a lookup and not a walk.
//!
//! Volumes that differ only in size form a group. Only labels that some claim has selected count: every volume may have
//! a unique label, and a group for each would be a walk again. Answers for a set of claims are cached for every node
//! ([`MatchSet`]) and updated where a group changed.

use crate::assign::MAX_TOGETHER;
use crate::journal::Journal;
use crate::label::{LabelRequirement, Labels};
use crate::matches::{MatchSet, MatchSets};
use crate::model::{AccessModes, ClaimShape, Volume, VolumeId, VolumeMode};
use crate::nodes::{NodeId, Nodes, SelectorId};
use crate::ordered::{self, Ordered};
use crate::places::Places;
use crate::shelf::Shelf;
use crate::slots::SlotId;
use crate::symbols::Symbol;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

/// Volumes that differ only in name and size, and in labels that no claim selects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct GroupKey {
    affinity: SelectorId,
    /// The nodes that zone labels allow.
    zones: SelectorId,
    /// The driver that attaches them; empty if none does.
    driver: Symbol,
    access_modes: AccessModes,
    volume_mode: VolumeMode,
    attributes_class: Symbol,
    labels: Labels,
}

crate::trace!(GroupKey { driver, attributes_class, labels; affinity, zones, access_modes, volume_mode });

impl GroupKey {
    fn of(volume: &Volume, asked: &[Symbol]) -> Self {
        Self {
            affinity: volume.affinity,
            zones: volume.zones,
            driver: volume.driver,
            access_modes: volume.access_modes,
            volume_mode: volume.volume_mode,
            attributes_class: volume.attributes_class,
            labels: volume.labels.only(asked),
        }
    }

    /// Whether the volumes of the group suit a claim if they are large enough. The labels that the claim selects must
    /// be registered.
    fn suits(&self, shape: &ClaimShape) -> bool {
        self.suits_but_for_labels(shape) && shape.selects(&self.labels)
    }

    fn suits_but_for_labels(&self, shape: &ClaimShape) -> bool {
        shape.suits(self.access_modes, self.volume_mode, self.attributes_class)
    }
}

/// What volumes of a group have in common, except where they can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeKind {
    access_modes: AccessModes,
    volume_mode: VolumeMode,
    attributes_class: Symbol,
    labels: Labels,
}

impl VolumeKind {
    /// Whether such volumes suit a claim if they are large enough.
    pub(crate) fn suits(&self, shape: &ClaimShape) -> bool {
        shape.suits(self.access_modes, self.volume_mode, self.attributes_class) && shape.selects(&self.labels)
    }
}

/// Free volumes, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) volumes: usize,
    /// The capacity of the largest.
    pub(crate) largest: Option<i64>,
    /// Those that are large enough.
    pub(crate) fitting: usize,
}

/// A free volume, ordered by size and then by name, so that the choice does not depend on the order in which volumes
/// were added.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FreeVolume {
    pub(crate) capacity: i64,
    pub(crate) name: Arc<str>,
    pub(crate) id: VolumeId,
}

#[derive(Clone, Debug)]
struct Group {
    key: GroupKey,
    volumes: Ordered<FreeVolume>,
    /// Unique for each group, unlike its slot.
    number: u64,
}

/// The volumes that successive claims took, in the order of the claims.
type InOrder<'a> = SmallVec<[Option<&'a FreeVolume>; 4]>;

/// Gives each claim the smallest remaining volume that is large enough, smallest request first.
fn take_in_order<'a>(cursors: &mut [Cursor<'a>], shapes: &[ClaimShape]) -> InOrder<'a> {
    let volumes = shapes.iter().map(|shape| {
        cursors.iter_mut().for_each(|cursor| cursor.skip_below(shape.request));
        let suiting = cursors
            .iter_mut()
            .filter(|cursor| cursor.next.is_some() && cursor.suits(shape));
        suiting.min_by_key(|cursor| cursor.next)?.take()
    });
    volumes.collect()
}

/// A position in the volumes of a group, from the smallest to the largest. It never moves back.
struct Cursor<'a> {
    group: &'a Group,
    suits_all: bool,
    next: Option<&'a FreeVolume>,
    rest: ordered::Iter<'a, FreeVolume>,
    /// Number of volumes examined.
    #[cfg(test)]
    looked_at: usize,
}

impl<'a> Cursor<'a> {
    /// The first volume of a group that is large enough.
    fn new(group: &'a Group, suits_all: bool, request: i64) -> Self {
        let mut rest = group.volumes.starting_at(&least(request));
        Self {
            group,
            suits_all,
            next: rest.next(),
            rest,
            #[cfg(test)]
            looked_at: 1,
        }
    }

    fn suits(&self, shape: &ClaimShape) -> bool {
        self.suits_all || self.group.key.suits(shape)
    }

    /// Advances to the first volume that is large enough, by a lookup and not by a walk.
    fn skip_below(&mut self, request: i64) {
        if self.next.is_some_and(|next| next.capacity < request) {
            self.rest = self.group.volumes.starting_at(&least(request));
            self.advance();
        }
    }

    fn take(&mut self) -> Option<&'a FreeVolume> {
        let taken = self.next;
        self.advance();
        taken
    }

    fn advance(&mut self) {
        self.next = self.rest.next();
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
    }
}

/// The free volumes of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeVolumes {
    groups: Vec<Group>,
    /// Slots of groups that were dropped.
    unused: Vec<u32>,
    /// The number of groups so far.
    numbers: u64,
    group_ids: FxHashMap<GroupKey, u32>,
    by_affinity: FxHashMap<SelectorId, SmallVec<[u32; 1]>>,
    /// How many volumes each driver attaches.
    by_driver: FxHashMap<Symbol, usize>,
    /// The labels that claims have selected.
    asked: Vec<Symbol>,
    /// The selectors of groups that changed.
    changes: Journal<SelectorId>,
    shelf: Shelf,
    sets: MatchSets,
}

// Leftovers of dropped groups are never compared.
crate::trace!(FreeVolumes { group_ids, by_driver, asked, sets; groups, unused, numbers, by_affinity, changes, shelf });

impl FreeVolumes {
    pub(crate) fn insert(&mut self, id: VolumeId, volume: &Volume) {
        if self.is_empty() {
            self.start_anew();
        }
        self.enter(id, volume);
        *self.by_driver.entry(volume.driver).or_default() += 1;
        self.changed(volume.affinity);
    }

    /// The drivers that attach volumes of the class; an empty one for volumes that are not attached.
    pub(crate) fn drivers(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.by_driver.keys().copied()
    }

    /// Whether there are no free volumes.
    pub(crate) fn is_empty(&self) -> bool {
        self.group_ids.is_empty()
    }

    /// Drops all answers. Nodes with and without existing volumes are distinguished only while there are any, so adding the first
    /// one or removing the last one changes every node.
    fn start_anew(&mut self) {
        self.sets.clear();
        self.changes.forget();
    }

    fn enter(&mut self, id: VolumeId, volume: &Volume) {
        let group = self.group_of(GroupKey::of(volume, &self.asked));
        self.groups[group as usize].volumes.insert(free_volume(id, volume));
    }

    pub(crate) fn remove(&mut self, id: VolumeId, volume: &Volume) {
        let key = GroupKey::of(volume, &self.asked);
        if let Some(group) = self.group_ids.get(&key).copied() {
            let volumes = &mut self.groups[group as usize].volumes;
            let removed = volumes.remove(&free_volume(id, volume));
            if removed && let Some(count) = self.by_driver.get_mut(&volume.driver) {
                *count -= 1;
                if *count == 0 {
                    self.by_driver.remove(&volume.driver);
                }
            }
            if volumes.is_empty() {
                self.drop_group(&key, group);
            }
            if self.is_empty() {
                self.start_anew();
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
        self.numbers += 1;
        let empty = Group {
            key,
            volumes: Ordered::default(),
            number: self.numbers,
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

    /// The selectors of all groups.
    pub(crate) fn affinities(&self) -> impl Iterator<Item = SelectorId> + '_ {
        self.by_affinity.keys().copied()
    }

    /// The numbers of the groups with a selector, which are unique.
    pub(crate) fn groups_with(&self, affinity: SelectorId) -> impl Iterator<Item = u64> + '_ {
        let groups = self.by_affinity.get(&affinity).into_iter().flatten();
        groups.map(|group| self.groups[*group as usize].number)
    }

    /// The nodes that can reach a group.
    pub(crate) fn affinity(&self, group: u32) -> SelectorId {
        self.groups[group as usize].key.affinity
    }

    /// A selector was dropped with the last volume of any of its groups. Its ID will be reused, so changes not applied
    /// yet can no longer be applied.
    pub(crate) fn drop_affinity(&mut self, affinity: SelectorId) {
        if self.changes.remembers(&affinity) {
            self.sets.clear();
            self.changes.forget();
        }
    }

    /// The groups that a node can reach and whose volumes can be used there.
    pub(crate) fn groups_of<'a>(&'a self, places: Places<'a>, node: NodeId) -> impl Iterator<Item = u32> + 'a {
        let usable = move |group: &u32| {
            let GroupKey { zones, driver, .. } = self.groups[*group as usize].key;
            (zones == SelectorId::ALL || places.nodes.matching(zones).contains(node.0))
                && !places.full.contains(driver, node)
        };
        self.reached(places.nodes, node).filter(usable)
    }

    /// The groups whose affinity a node satisfies.
    fn reached<'a>(&'a self, nodes: &'a Nodes, node: NodeId) -> impl Iterator<Item = u32> + 'a {
        nodes
            .selectors_of(node)
            .iter()
            .chain([&SelectorId::ALL])
            .filter_map(|selector| self.by_affinity.get(selector))
            .flatten()
            .copied()
    }

    /// How many volumes a node can reach but not use: because of their zone labels, and because of the attach limit.
    pub(crate) fn withheld(&self, places: Places<'_>, node: NodeId) -> (usize, usize) {
        let (mut elsewhere, mut full) = (0, 0);
        for group in self.reached(places.nodes, node) {
            let Group { key, volumes, .. } = &self.groups[group as usize];
            if !places.nodes.matching(key.zones).contains(node.0) {
                elsewhere += volumes.len();
            } else if places.full.contains(key.driver, node) {
                full += volumes.len();
            }
        }
        (elsewhere, full)
    }

    /// The stock of a node for claims of a shape, regardless of labels. Costs a lookup for each group of volumes, and not one for each
    /// volume: a pod with thousands of claims is explained in one go.
    pub(crate) fn stock(&self, places: Places<'_>, node: NodeId, shape: Option<&ClaimShape>) -> Stock {
        let mut stock = Stock::default();
        for group in self.groups_of(places, node).map(|group| &self.groups[group as usize]) {
            if shape.is_some_and(|shape| !group.key.suits_but_for_labels(shape)) {
                continue;
            }
            stock.volumes += group.volumes.len();
            stock.largest = stock.largest.max(group.volumes.last().map(|volume| volume.capacity));
            let request = shape.map_or(0, |shape| shape.request);
            stock.fitting += match group.volumes.first() {
                Some(smallest) if smallest.capacity < request => group.volumes.starting_at(&least(request)).count(),
                _ => group.volumes.len(),
            };
        }
        stock
    }

    /// The free volumes that a node can reach and that suit a claim, regardless of size and labels.
    pub(crate) fn reachable<'a>(
        &'a self,
        places: Places<'a>,
        node: NodeId,
        shape: Option<&'a ClaimShape>,
    ) -> impl Iterator<Item = &'a FreeVolume> + 'a {
        self.groups_of(places, node)
            .map(|group| &self.groups[group as usize])
            .filter(move |group| shape.is_none_or(|shape| group.key.suits_but_for_labels(shape)))
            .flat_map(|group| group.volumes.iter())
    }

    /// All free volumes of the class.
    pub(crate) fn all(&self) -> impl Iterator<Item = &FreeVolume> + '_ {
        self.groups.iter().flat_map(|group| group.volumes.iter())
    }

    /// For each of several claims of one pod, the smallest volumes of a group that are large enough: as many as there
    /// are claims, since other claims may take some.
    pub(crate) fn smallest_each(&self, group: u32, shapes: &[ClaimShape]) -> SmallVec<[SmallVec<[&FreeVolume; 1]>; 1]> {
        let group = &self.groups[group as usize];
        let of_shape = |shape: &ClaimShape| {
            if !group.key.suits(shape) {
                return SmallVec::new();
            }
            let large_enough = group.volumes.starting_at(&least(shape.request));
            large_enough.take(shapes.len()).collect()
        };
        shapes.iter().map(of_shape).collect()
    }

    /// The volumes of a group from the smallest to the largest, if they are few, and what they have in common.
    pub(crate) fn few_in(&self, group: u32) -> Option<(VolumeKind, &[FreeVolume])> {
        let Group { key, volumes, .. } = self.groups.get(group as usize)?;
        let kind = VolumeKind {
            access_modes: key.access_modes,
            volume_mode: key.volume_mode,
            attributes_class: key.attributes_class,
            labels: key.labels.clone(),
        };
        Some((kind, volumes.as_list()?))
    }

    /// The sizes of the volumes that nodes have to themselves.
    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The only group that a node can use, if it is still its own and suits all of these claims.
    pub(crate) fn own_group(&self, nodes: &Nodes, node: NodeId, shapes: &[ClaimShape]) -> Option<&[FreeVolume]> {
        let group = self.shelf.group(node)?;
        let key = &self.groups.get(group as usize)?.key;
        // The slot may have been given to another group since.
        nodes.matching(key.affinity).contains(node.0).then_some(())?;
        self.few_for_all(group, shapes)
    }

    /// The volumes of a group from the smallest to the largest, if they are few and suit all of these claims except for
    /// their size.
    pub(crate) fn few_for_all(&self, group: u32, shapes: &[ClaimShape]) -> Option<&[FreeVolume]> {
        let group = self.groups.get(group as usize)?;
        let list = group.volumes.as_list()?;
        shapes.iter().all(|shape| group.key.suits(shape)).then_some(list)
    }

    /// The volumes of groups for several claims of one pod, smallest request first, if each group suits either all of them except
    /// for its size, or none. Each claim then takes the smallest remaining volume that is large enough: later claims request no
    /// less. More claims than are [assigned together](MAX_TOGETHER) always take volumes in that order.
    pub(crate) fn in_order<'a>(&'a self, groups: &[u32], shapes: &[ClaimShape]) -> Option<InOrder<'a>> {
        self.cursors(groups, shapes)
            .map(|mut cursors| take_in_order(&mut cursors, shapes))
    }

    /// The smallest volumes of the groups that suit any of the claims; `None` if the claims must be assigned together.
    fn cursors<'a>(&'a self, groups: &[u32], shapes: &[ClaimShape]) -> Option<SmallVec<[Cursor<'a>; 2]>> {
        let mut cursors = SmallVec::new();
        let smallest = shapes.first().map_or(0, |shape| shape.request);
        for group in groups.iter().filter_map(|group| self.groups.get(*group as usize)) {
            let suited = shapes.iter().filter(|shape| group.key.suits(shape)).count();
            let suits_all = suited == shapes.len();
            if suited > 0 && !suits_all && shapes.len() <= MAX_TOGETHER {
                return None;
            }
            if suited > 0 {
                cursors.push(Cursor::new(group, suits_all, smallest));
            }
        }
        Some(cursors)
    }

    /// The match set for claims of these shapes, up to date. The shapes must be sorted.
    pub(crate) fn prepare<'a>(
        &mut self,
        places: Places<'_>,
        shapes: &[ClaimShape],
        volume: impl Fn(VolumeId) -> Option<&'a Volume>,
    ) -> Arc<MatchSet> {
        self.ask_for_labels(shapes, volume);
        let mut shelf = std::mem::take(&mut self.shelf);
        shelf.refresh(self, places);
        self.shelf = shelf;
        let mut sets = std::mem::take(&mut self.sets);
        let set = sets.prepare(self, places, shapes);
        self.sets = sets;
        set
    }
}

impl FreeVolumes {
    /// Distinguishes volumes by the labels that these claims select. Claims of a class select few labels in total.
    fn ask_for_labels<'a>(&mut self, shapes: &[ClaimShape], volume: impl Fn(VolumeId) -> Option<&'a Volume>) {
        let before = self.asked.len();
        for key in asked_by(shapes) {
            if !self.asked.contains(&key) {
                self.asked.push(key);
            }
        }
        if self.asked.len() > before {
            self.group_anew(volume);
        }
    }

    /// Drops answers that were not used since the last call, and stops distinguishing volumes by labels that no claim
    /// selects.
    pub(crate) fn tidy<'a>(&mut self, volume: impl Fn(VolumeId) -> Option<&'a Volume>) {
        self.sets.tidy();
        let used: FxHashSet<Symbol> = asked_by(self.sets.shapes()).collect();
        let before = self.asked.len();
        self.asked.retain(|key| used.contains(key));
        if self.asked.len() < before {
            self.group_anew(volume);
        }
    }

    fn group_anew<'a>(&mut self, volume: impl Fn(VolumeId) -> Option<&'a Volume>) {
        let ids: Vec<VolumeId> = self.all().map(|volume| volume.id).collect();
        self.shelf.forget();
        self.groups.clear();
        self.unused.clear();
        self.group_ids.clear();
        self.by_affinity.clear();
        // Answers remain valid: claims that select other labels get the same volumes from more or fewer groups.
        for id in ids {
            if let Some(volume) = volume(id) {
                self.enter(id, volume);
            }
        }
    }
}

/// The labels that claims select.
fn asked_by<'a>(shapes: impl IntoIterator<Item = &'a ClaimShape>) -> impl Iterator<Item = Symbol> {
    let selectors = shapes.into_iter().filter_map(|shape| shape.selector.as_ref());
    let requirements = selectors.flat_map(|selector| selector.requirements());
    requirements.map(LabelRequirement::key)
}

/// Sorts before all volumes of a size.
fn least(capacity: i64) -> FreeVolume {
    FreeVolume {
        capacity,
        name: Arc::default(),
        id: VolumeId(SlotId::LEAST),
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
    use crate::places::FullNodes;
    use crate::slots::Slots;
    use crate::symbols::Symbols;
    use serde_json::json;

    /// A class whose volumes each have a unique label, and a claim that may select one.
    struct World {
        symbols: Symbols,
        nodes: Nodes,
        full: FullNodes,
        volumes: Slots<Volume>,
        free: FreeVolumes,
    }

    impl World {
        fn of(count: usize) -> Self {
            let mut world = Self {
                symbols: Symbols::default(),
                nodes: Nodes::default(),
                full: FullNodes::default(),
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

        fn shape(&mut self, selector: &serde_json::Value, mode: &str, gi: usize) -> ClaimShape {
            let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": [mode],
                "selector": selector, "resources": {"requests": {"storage": format!("{gi}Gi")}}}});
            let claim: api::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
            Claim::new(&mut self.symbols, &claim).shape
        }

        /// How many successive claims find a volume, and how many volumes are examined for that.
        fn taken(&self, shapes: &[ClaimShape]) -> Option<(usize, usize)> {
            let groups: Vec<u32> = self.free.group_ids.values().copied().collect();
            let mut cursors = self.free.cursors(&groups, shapes)?;
            let found = take_in_order(&mut cursors, shapes).iter().flatten().count();
            Some((found, cursors.iter().map(|cursor| cursor.looked_at).sum()))
        }

        fn found(&mut self, selector: &serde_json::Value) -> Option<&str> {
            let shape = self.shape(selector, "ReadWriteOnce", 1);
            let volume = |id: VolumeId| self.volumes.get(id.0);
            let places = Places {
                nodes: &self.nodes,
                full: &self.full,
            };
            let shapes = [shape];
            let set = self.free.prepare(places, &shapes, volume);
            let found = set.on_node(&self.free, places, NodeId(0), &shapes)[0]?.volume();
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
    fn thousands_of_claims_look_at_one_volume_each() {
        let mut world = World::of(5000);
        let shape = world.shape(&json!(null), "ReadWriteOnce", 1);
        for count in [500, 4000] {
            assert_eq!(world.taken(&vec![shape.clone(); count]), Some((count, count + 1)));
        }
        let large = world.shape(&json!(null), "ReadWriteOnce", 2);
        let small = world.taken(&vec![large.clone(); 4000]);
        assert_eq!(small, Some((0, 1)), "small ones are not walked over");
        assert_eq!(world.taken(&[shape.clone(), large]), Some((1, 3)));
        // Few claims of several shapes are assigned together; many take volumes as in kube-scheduler.
        let other = world.shape(&json!(null), "ReadWriteMany", 1);
        let mixed = |of_each: usize| [vec![shape.clone(); of_each], vec![other.clone(); of_each]].concat();
        assert_eq!(world.taken(&mixed(MAX_TOGETHER / 2)), None);
        assert_eq!(world.taken(&mixed(2000)), Some((2000, 2001)));
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
