//! For each combination of claims that pods use: how well free volumes would fit on every node, and which ones they would get.
//!
//! On nodes that have volumes to themselves, only how well they fit is cached ([`Shelf`](crate::shelf::Shelf)). An answer is
//! computed once and then updated where a group of volumes or a node changed. The cost of a decision
//! therefore does not grow with the number of volumes, and a thousand similar pods cost little more than one. The
//! updated nodes are recorded too, for caches that depend on these answers.

use crate::assign::assign;
use crate::free::{FreeVolume, FreeVolumes};
use crate::journal::Journal;
use crate::mask::NodeMask;
use crate::model::{ClaimShape, VolumeId};
use crate::nodes::{NodeId, Nodes};
use crate::places::Places;
use crate::score::utilization;
use crate::shelf::{Groups, NOT_ALL, take_in_turn};
use crate::slots::SlotId;
use crate::trace::{Marks, Trace};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::num::NonZero;
use std::sync::Arc;

/// Maximum total size of the match sets of a class. A set takes one byte per node and, if nodes share volumes, 16 bytes per node
/// and claim: this is room for 80 combinations of one claim on 50,000 nodes, and for some hundred combinations of three on 5,000.
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
            let width = if free.shelf().is_incomplete() { shapes.len() } else { 0 };
            self.make_room(bytes(places.nodes.column_length(), width));
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
    fn make_room(&mut self, wanted: usize) {
        let mut held: usize = self.sets.values().map(|set| set.bytes()).sum();
        while held + wanted > MAX_BYTES {
            let oldest = self.sets.iter().min_by_key(|(_, set)| set.used);
            let Some((shapes, bytes)) = oldest.map(|(shapes, set)| (shapes.clone(), set.bytes())) else {
                return;
            };
            held = held.saturating_sub(bytes);
            self.sets.remove(&shapes);
        }
    }
}

/// The size of a set for some nodes, with the volumes of so many claims on each.
fn bytes(nodes: usize, width: usize) -> usize {
    BYTES_PER_SET + nodes * (width * size_of::<Option<Match>>() + size_of::<u8>())
}

/// For claims of given shapes and one class: which free volumes they would get on each node.
#[derive(Clone, Debug)]
pub(crate) struct MatchSet {
    /// Number of claims.
    width: usize,
    /// By node and claim: the assigned volume, on nodes that are [noted](Self::noted). Empty if none is.
    by_node: Vec<Option<Match>>,
    /// The nodes whose assignments are cached. Those of others are looked up.
    noted: NodeMask,
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
            noted: NodeMask::default(),
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

/// The volumes for the claims on a node.
pub(crate) type Matches = SmallVec<[Option<Match>; 4]>;

/// What nodes share while a set is built or updated.
#[derive(Default)]
struct Shared<'a> {
    /// By group: the smallest volumes for each claim. Many nodes may share a group.
    smallest: FxHashMap<u32, SmallVec<[SmallVec<[&'a FreeVolume; 1]>; 1]>>,
    /// By groups: what several claims get from them. All nodes of a zone may reach the same groups.
    together: FxHashMap<Groups, Matches>,
    /// By the number of a list of groups: what claims get from it, and how well it fits.
    by_list: Vec<Option<(Matches, u8)>>,
}

impl MatchSet {
    /// Identifies this computation: answers with another number share nothing with it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The nodes on which verdicts may have changed.
    pub(crate) fn mended(&self) -> &Journal<NodeId> {
        &self.mended
    }

    fn bytes(&self) -> usize {
        let width = if self.by_node.is_empty() { 0 } else { self.width };
        bytes(self.percent.len(), width)
    }

    /// The volumes for the claims on a node, in the order of the shapes, which must be those of the set.
    pub(crate) fn on_node(
        &self,
        free: &FreeVolumes,
        places: Places<'_>,
        node: NodeId,
        shapes: &[ClaimShape],
    ) -> Matches {
        if self.noted.contains(node) {
            let first = node.index() * self.width;
            return self.by_node.get(first..first + self.width).unwrap_or(&[]).into();
        }
        if free.is_empty() {
            return std::iter::repeat_n(None, shapes.len()).collect();
        }
        if let Some(volumes) = free.own_group(places.nodes, node, shapes) {
            return take_in_turn(volumes, shapes)
                .map(|volume| volume.map(Match::of))
                .collect();
        }
        let groups: Groups = free.groups_of(places, node).collect();
        Shared::default().assign(free, places.nodes, shapes, groups)
    }

    /// By node: the percentage of their volumes that the claims ask for, or a larger number where some claim finds none.
    pub(crate) fn percents(&self) -> &[u8] {
        &self.percent
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
        self.noted = NodeMask::default();
        self.percent.clear();
        self.make_room(places.nodes);
        let mut shared = Shared::default();
        let fits = free.shelf().fits(shapes);
        for node in places.nodes.ids() {
            match fits.percent(node) {
                Some(percent) => self.percent[node.index()] = percent,
                None => {
                    self.assign_on(free, places, shapes, node, &mut shared);
                }
            }
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
        // A mask sorts thousands of nodes faster than they are compared.
        let mut stale = NodeMask::none(nodes);
        changed.iter().chain(filled).for_each(|node| stale.insert(*node));
        for affinity in affinities {
            nodes
                .matching(affinity)
                .iter()
                .for_each(|node| stale.insert(NodeId(node)));
        }
        self.make_room(nodes);
        let mut shared = Shared::default();
        let fits = free.shelf().fits(shapes);
        for node in stale.iter() {
            let changed = match fits.percent(node) {
                Some(percent) => self.note_percent(node, percent),
                None => self.assign_on(free, places, shapes, node, &mut shared),
            };
            if changed {
                self.mended.push(node);
            }
        }
        self.read_everything(free, places);
        true
    }

    fn make_room(&mut self, nodes: &Nodes) {
        if !self.by_node.is_empty() {
            self.by_node.resize(nodes.column_length() * self.width, None);
        }
        self.percent.resize(nodes.column_length(), NOT_ALL);
    }

    /// Notes how well claims fit on a node whose volumes are looked up. Returns whether a verdict may have changed.
    fn note_percent(&mut self, node: NodeId, percent: u8) -> bool {
        let Some(known) = self.percent.get_mut(node.index()) else {
            return false;
        };
        let before = std::mem::replace(known, percent);
        let was_noted = self.noted.contains(node);
        self.noted.remove(node);
        // Which of the claims find no volume is not known here.
        before != percent || percent == NOT_ALL || was_noted
    }

    /// Marks all changes so far as read.
    fn read_everything(&mut self, free: &FreeVolumes, places: Places<'_>) {
        self.seen = free.changes().next();
        self.nodes_epoch = places.nodes.epoch();
        self.full_seen = places.full.changes().next();
    }

    /// Assigns volumes to the claims on a node, and returns whether a verdict may have changed.
    fn assign_on<'a>(
        &mut self,
        free: &'a FreeVolumes,
        places: Places<'_>,
        shapes: &[ClaimShape],
        node: NodeId,
        shared: &mut Shared<'a>,
    ) -> bool {
        let found;
        let list = free.shelf().list(node);
        let of_list = list.and_then(|list| shared.assign_list(free, places.nodes, shapes, list));
        let (assigned, percent) = match of_list {
            Some(of_list) => of_list,
            None => {
                let groups: Groups = free.groups_of(places, node).collect();
                let assigned = shared.assign(free, places.nodes, shapes, groups);
                found = (percent(shapes, &assigned), assigned);
                (&found.1, found.0)
            }
        };
        self.by_node.resize(places.nodes.column_length() * self.width, None);
        let first = node.index() * self.width;
        let Some(known) = self.by_node.get_mut(first..first + self.width) else {
            return false;
        };
        let was_noted = self.noted.contains(node);
        if *known == assigned[..] && was_noted {
            return false;
        }
        self.noted.grow_to(node);
        known.copy_from_slice(assigned);
        let before = std::mem::replace(&mut self.percent[node.index()], percent);
        // Other volumes that fit as well make no difference, unless their drivers can attach more or fewer.
        before != percent || percent == NOT_ALL || !was_noted || places.full.is_limited(node)
    }
}

impl<'a> Shared<'a> {
    /// The volumes that claims get from the groups of a list, and how well they fit.
    fn assign_list(
        &mut self,
        free: &'a FreeVolumes,
        nodes: &Nodes,
        shapes: &[ClaimShape],
        (list, groups): (u32, &Groups),
    ) -> Option<(&Matches, u8)> {
        let at = list as usize;
        if self.by_list.len() <= at {
            self.by_list.resize(at + 1, None);
        }
        if self.by_list[at].is_none() {
            let assigned = self.assign(free, nodes, shapes, groups.clone());
            let percent = percent(shapes, &assigned);
            self.by_list[at] = Some((assigned, percent));
        }
        self.by_list[at]
            .as_ref()
            .map(|(assigned, percent)| (assigned, *percent))
    }

    /// The volumes that claims get from some groups.
    fn assign(&mut self, free: &'a FreeVolumes, nodes: &Nodes, shapes: &[ClaimShape], groups: Groups) -> Matches {
        // A node with its own group, such as one with local disks, shares it with no other node.
        let in_common = |group: &u32| nodes.matching(free.affinity(*group)).len() > 1;
        let own = match groups.as_slice() {
            [group] if !in_common(group) => Some(*group),
            _ => None,
        };
        if let Some(volumes) = own.and_then(|group| free.few_for_all(group, shapes)) {
            let volumes = take_in_turn(volumes, shapes);
            return volumes.map(|volume| volume.map(Match::of)).collect();
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
