//! For each combination of claims that pods use: which free volumes they would get on every node.
//!
//! An answer is computed once and then updated where a group of volumes or a node changed. The cost of a decision
//! therefore does not grow with the number of volumes, and a thousand similar pods cost little more than one. The
//! updated nodes are recorded too, for caches that depend on these answers.

use crate::assign::assign;
use crate::free::{FreeVolume, FreeVolumes};
use crate::journal::Journal;
use crate::model::{ClaimShape, VolumeId};
use crate::nodes::{NodeId, Nodes};
use crate::places::Places;
use crate::score::utilization;
use crate::slots::SlotId;
use crate::trace::{Marks, Trace};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::num::NonZero;
use std::sync::Arc;

/// Maximum total size of the match sets of a class. A set takes 16 bytes per node and claim, so this is room for 80
/// combinations of one claim on 50,000 nodes, and for some hundred combinations of three on 5,000.
const MAX_BYTES: usize = 64 << 20;

/// Number of updated nodes that a set records: ten times what usually changes between two uses of a set.
const MAX_MENDED: usize = 1024;

/// Maximum size of a set apart from its answers.
const BYTES_PER_SET: usize = 512 + 2 * MAX_MENDED * size_of::<NodeId>();

/// The recently used match sets of one class, by their claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct MatchSets {
    sets: FxHashMap<Box<[ClaimShape]>, Arc<MatchSet>>,
    uses: u64,
    built: u64,
    /// The use count at the last tidying.
    tidied: u64,
}

impl Trace for MatchSets {
    fn trace(&self, marks: &mut Marks) {
        self.sets.keys().for_each(|shapes| shapes.trace(marks));
    }
}

impl MatchSets {
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.sets.clear();
    }

    /// Drops the sets that were not used since the last call.
    pub(crate) fn tidy(&mut self) {
        self.sets.retain(|_, set| set.used > self.tidied);
        self.tidied = self.uses;
    }

    /// The shapes of the claims that have sets.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = &ClaimShape> {
        self.sets.keys().flatten()
    }

    /// The match set for claims of these shapes, up to date. The shapes must be sorted, so that the same claims always
    /// mean the same set. A set that is still held elsewhere is copied.
    pub(crate) fn prepare(&mut self, free: &FreeVolumes, places: Places<'_>, shapes: &[ClaimShape]) -> Arc<MatchSet> {
        self.uses += 1;
        if !self.sets.contains_key(shapes) {
            self.make_room(bytes(places.nodes, shapes.len()), places.nodes);
        }
        let set = match self.sets.get_mut(shapes) {
            Some(set) => set,
            None => self.sets.entry(shapes.into()).or_default(),
        };
        let mended = Arc::make_mut(set);
        mended.used = self.uses;
        if !mended.mend(free, places, shapes) {
            self.built += 1;
            mended.build(free, places, shapes, self.built);
        }
        Arc::clone(set)
    }

    /// Drops the least recently used sets until there is room for this many bytes.
    fn make_room(&mut self, wanted: usize, nodes: &Nodes) {
        let mut held: usize = self.sets.keys().map(|shapes| bytes(nodes, shapes.len())).sum();
        while held + wanted > MAX_BYTES {
            let oldest = self.sets.iter().min_by_key(|(_, set)| set.used);
            let Some(oldest) = oldest.map(|(shapes, _)| shapes.clone()) else {
                return;
            };
            held = held.saturating_sub(bytes(nodes, oldest.len()));
            self.sets.remove(&oldest);
        }
    }
}

fn bytes(nodes: &Nodes, width: usize) -> usize {
    BYTES_PER_SET + nodes.column_length() * (width * size_of::<Option<Match>>() + size_of::<u8>())
}

/// For claims of given shapes and one class: which free volumes they would get on each node.
#[derive(Clone, Debug)]
pub(crate) struct MatchSet {
    /// Number of claims.
    width: usize,
    /// By node and claim: the assigned volume.
    by_node: Vec<Option<Match>>,
    /// By node: the percentage of their volumes that the claims request, or [`NOT_ALL`]. Most decisions need no more than this
    /// about most nodes.
    percent: Vec<u8>,
    /// The number of the first unread change of free volumes.
    seen: u64,
    nodes_epoch: u64,
    /// The number of the first unread change of full nodes.
    full_seen: u64,
    used: u64,
    /// Unique for each recomputation; 0 for none.
    number: u64,
    mended: Journal<NodeId>,
}

impl Default for MatchSet {
    fn default() -> Self {
        Self {
            width: 0,
            by_node: Vec::new(),
            percent: Vec::new(),
            seen: 0,
            nodes_epoch: 0,
            full_seen: 0,
            used: 0,
            number: 0,
            mended: Journal::with_limit(MAX_MENDED),
        }
    }
}

/// Instead of a percentage: some claim finds no volume on the node.
const NOT_ALL: u8 = u8::MAX;

/// A free volume for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// The slot of the volume's ID plus one, so that `None` takes no space.
    place: NonZero<u32>,
    generation: u32,
    pub(crate) capacity: i64,
}

impl Match {
    fn of(volume: &FreeVolume) -> Self {
        Self {
            place: NonZero::<u32>::MIN.saturating_add(volume.id.0.place),
            generation: volume.id.0.generation,
            capacity: volume.capacity,
        }
    }

    pub(crate) fn volume(self) -> VolumeId {
        VolumeId(SlotId {
            place: self.place.get() - 1,
            generation: self.generation,
        })
    }
}

/// The groups that a node can reach.
type Groups = SmallVec<[u32; 4]>;
/// The volumes for the claims on a node.
type Matches = SmallVec<[Option<Match>; 4]>;

/// What nodes share while a set is built or updated.
#[derive(Default)]
struct Shared<'a> {
    /// By group: the smallest volumes for each claim. Many nodes may share a group.
    smallest: FxHashMap<u32, SmallVec<[SmallVec<[&'a FreeVolume; 1]>; 1]>>,
    /// By groups: what several claims get from them. All nodes of a zone may reach the same groups.
    together: FxHashMap<Groups, Matches>,
}

impl MatchSet {
    /// Identifies this computation: answers with another number share nothing with it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The nodes on which the assignment changed.
    pub(crate) fn mended(&self) -> &Journal<NodeId> {
        &self.mended
    }

    /// The volumes for the claims on a node, in the order of the shapes.
    pub(crate) fn on_node(&self, node: NodeId) -> &[Option<Match>] {
        let first = node.index() * self.width;
        self.by_node.get(first..first + self.width).unwrap_or(&[])
    }

    /// The percentage of their volumes that the claims ask for on a node where each finds one.
    pub(crate) fn percent_on(&self, node: NodeId) -> Option<u8> {
        let percent = self.percent.get(node.index()).copied();
        percent.filter(|percent| *percent != NOT_ALL)
    }

    /// Recomputes everything.
    fn build(&mut self, free: &FreeVolumes, places: Places<'_>, shapes: &[ClaimShape], number: u64) {
        self.number = number;
        self.width = shapes.len();
        self.mended.forget();
        self.by_node.clear();
        self.percent.clear();
        self.make_room(places.nodes);
        let mut shared = Shared::default();
        for node in places.nodes.ids() {
            self.assign_on(free, places, shapes, node, &mut shared);
        }
        self.read_everything(free, places);
    }

    /// Recomputes what changed; returns false if that is unknown, or is nearly everything.
    fn mend(&mut self, free: &FreeVolumes, places: Places<'_>, shapes: &[ClaimShape]) -> bool {
        let nodes = places.nodes;
        let affinities = free.changes().since(self.seen).filter(|_| self.number != 0);
        let changed = nodes.changed_since(self.nodes_epoch);
        let filled = places.full.changes().since(self.full_seen);
        let Some(((affinities, changed), filled)) = affinities.zip(changed).zip(filled) else {
            return false;
        };
        if affinities.is_empty() && changed.is_empty() && filled.is_empty() {
            return true;
        }
        let mut affinities: SmallVec<[_; 8]> = affinities.into();
        affinities.sort_unstable();
        affinities.dedup();
        let mut stale: Vec<NodeId> = [changed, filled].concat();
        for affinity in affinities {
            stale.extend(nodes.matching(affinity).iter().map(NodeId));
        }
        stale.sort_unstable();
        stale.dedup();
        self.make_room(nodes);
        let mut shared = Shared::default();
        for node in stale {
            if self.assign_on(free, places, shapes, node, &mut shared) {
                self.mended.push(node);
            }
        }
        self.read_everything(free, places);
        true
    }

    fn make_room(&mut self, nodes: &Nodes) {
        self.by_node.resize(nodes.column_length() * self.width, None);
        self.percent.resize(nodes.column_length(), NOT_ALL);
    }

    /// Marks all changes so far as read.
    fn read_everything(&mut self, free: &FreeVolumes, places: Places<'_>) {
        self.seen = free.changes().next();
        self.nodes_epoch = places.nodes.epoch();
        self.full_seen = places.full.changes().next();
    }

    /// Assigns volumes to the claims on a node, and returns whether the assignment changed.
    fn assign_on<'a>(
        &mut self,
        free: &'a FreeVolumes,
        places: Places<'_>,
        shapes: &[ClaimShape],
        node: NodeId,
        shared: &mut Shared<'a>,
    ) -> bool {
        let groups: Groups = free.groups_of(places, node).collect();
        let assigned = shared.assign(free, places.nodes, shapes, groups);
        let first = node.index() * self.width;
        let Some(known) = self.by_node.get_mut(first..first + self.width) else {
            return false;
        };
        if *known == assigned[..] {
            return false;
        }
        known.copy_from_slice(&assigned);
        self.percent[node.index()] = percent(shapes, &assigned);
        true
    }
}

impl<'a> Shared<'a> {
    /// The volumes that claims get from some groups.
    fn assign(&mut self, free: &'a FreeVolumes, nodes: &Nodes, shapes: &[ClaimShape], groups: Groups) -> Matches {
        // A node with its own group, such as one with local disks, shares it with no other node.
        let in_common = |group: &u32| nodes.matching(free.affinity(*group)).len() > 1;
        let own = match groups.as_slice() {
            [group] if !in_common(group) => Some(*group),
            _ => None,
        };
        if let Some(volumes) = own.and_then(|group| free.few_for_all(group, shapes)) {
            return take_in_turn(volumes, shapes);
        }
        let is_own = own.is_some();
        let is_shared = shapes.len() > 1 && groups.iter().all(in_common);
        if is_shared && let Some(known) = self.together.get(&groups) {
            return known.clone();
        }
        if (is_own || shapes.len() > 1)
            && let Some(in_order) = free.in_order(&groups, shapes)
        {
            let assigned: Matches = in_order.iter().map(|volume| volume.map(Match::of)).collect();
            if is_shared {
                self.together.insert(groups, assigned.clone());
            }
            return assigned;
        }
        for group in &groups {
            let entry = self.smallest.entry(*group);
            entry.or_insert_with(|| free.smallest_each(*group, shapes));
        }
        let smallest = &self.smallest;
        let of_claim = |claim: usize| groups.iter().flat_map(move |group| &smallest[group][claim]).copied();
        if let [_] = shapes {
            return [of_claim(0).min().map(Match::of)].into_iter().collect();
        }
        let assigned = assign_together(shapes.len(), of_claim);
        if is_shared {
            self.together.insert(groups, assigned.clone());
        }
        assigned
    }
}

/// Gives each claim the first volume that is large enough. Both are sorted by size: a volume too small for one claim is too small for the
/// following ones.
fn take_in_turn(volumes: &[FreeVolume], shapes: &[ClaimShape]) -> Matches {
    let mut left = volumes.iter();
    let taken = shapes
        .iter()
        .map(|shape| left.find(|volume| volume.capacity >= shape.request).map(Match::of));
    taken.collect()
}

/// The percentage of their volumes that claims request, or [`NOT_ALL`].
fn percent(shapes: &[ClaimShape], assigned: &[Option<Match>]) -> u8 {
    let mut sums = (0_i64, 0_i64);
    for (shape, found) in shapes.iter().zip(assigned) {
        let Some(found) = found else {
            return NOT_ALL;
        };
        sums.0 = sums.0.saturating_add(shape.request);
        sums.1 = sums.1.saturating_add(found.capacity);
    }
    utilization(sums.0, sums.1)
}

/// Assigns volumes to several claims, each of which could use some.
fn assign_together<'a, V: Iterator<Item = &'a FreeVolume>>(width: usize, of_claim: impl Fn(usize) -> V) -> Matches {
    let mut volumes: SmallVec<[&FreeVolume; 8]> = (0..width).flat_map(&of_claim).collect();
    if volumes.is_empty() {
        return std::iter::repeat_n(None, width).collect();
    }
    volumes.sort_unstable();
    volumes.dedup();
    let position = |volume: &'a FreeVolume| volumes.binary_search(&volume).ok();
    let candidates: Vec<Vec<usize>> = (0..width)
        .map(|claim| of_claim(claim).filter_map(position).collect())
        .collect();
    assign(volumes.len(), &candidates)
        .into_iter()
        .map(|volume| volume.map(|volume| Match::of(volumes[volume])))
        .collect()
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

    #[test]
    fn nodes_with_the_same_groups_are_assigned_to_once() {
        let (mut symbols, mut nodes, mut slots) = (Symbols::default(), Nodes::default(), Slots::default());
        let mut free = FreeVolumes::default();
        for number in 0..30 {
            nodes.upsert(&mut symbols, &format!("n{number}"), &api::StringMap::default());
        }
        for number in 0..5 {
            let object = json!({"metadata": {"name": format!("pv{number}")}, "status": {"phase": "Available"},
                "spec": {"capacity": {"storage": format!("{}Gi", number + 1)}, "accessModes": ["ReadWriteMany"]}});
            let object: api::PersistentVolume = serde_json::from_value(object).unwrap();
            let volume = volume_without_selectors(&mut symbols, &object);
            free.insert(VolumeId(slots.insert(())), &volume);
        }
        let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "2Gi"}}}});
        let claim: api::PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        let shape = Claim::new(&mut symbols, &claim).shape;
        let full = FullNodes::default();
        let places = Places {
            nodes: &nodes,
            full: &full,
        };
        let mut shared = Shared::default();
        for node in nodes.ids() {
            let groups = free.groups_of(places, node).collect();
            let shapes = [shape.clone(), shape.clone()];
            let matches = shared.assign(&free, &nodes, &shapes, groups);
            let places: Vec<_> = matches.iter().flatten().map(|found| found.volume().0.place).collect();
            assert_eq!(places, [1, 2]);
        }
        assert_eq!(shared.together.len(), 1);
    }
}
