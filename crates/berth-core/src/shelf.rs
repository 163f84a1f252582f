//! The sizes of the volumes that each node has to itself, such as local disks, in a few bytes per node.
//!
//! How well a combination of claims would fit is computed from these bytes for a hundred thousand nodes in less than a
//! millisecond; which volumes these are is looked up only for the node that is chosen. Nodes that reach the volumes of other nodes,
//! or have too many sizes, are left to [`matches`](crate::matches): for these, the groups of volumes that they can use are kept, as
//! one list for all nodes with the same ones.

use crate::free::{FreeVolume, FreeVolumes, VolumeKind};
use crate::mask::NodeMask;
use crate::model::ClaimShape;
use crate::nodes::{NodeId, SelectorId};
use crate::places::Places;
use crate::score::utilization;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The groups that a node can use.
pub(crate) type Groups = SmallVec<[u32; 4]>;

/// Maximum number of different sizes on one node. Servers have disks of one to three.
const SIZES: usize = 8;
/// Instead of a rank: no more sizes.
const NO_RANK: u8 = u8::MAX;
/// Maximum number of different sizes of a class.
const MAX_RANKS: usize = NO_RANK as usize;
/// Instead of the number of a kind: the node has no volumes, or not only its own.
const ABSENT: u8 = u8::MAX;
const NOT_OWN: u8 = u8::MAX - 1;
const MAX_KINDS: usize = NOT_OWN as usize;
/// Maximum number of lists of groups in addition to one per node.
const MAX_LISTS: usize = 4096;

/// Instead of a percentage: some claim finds no volume on the node.
pub(crate) const NOT_ALL: u8 = u8::MAX;

/// The sizes of a node's own volumes, smallest first.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// As numbers in the list of sizes.
    ranks: [u8; SIZES],
    /// The number of volumes of each size.
    counts: [u8; SIZES],
}

const EMPTY: Row = Row {
    ranks: [NO_RANK; SIZES],
    counts: [0; SIZES],
};

/// The sizes of all nodes' own volumes, for one class. Updated where volumes or nodes changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shelf {
    /// All sizes, smallest first.
    sizes: Vec<i64>,
    rows: Vec<Row>,
    /// By node: the number of the kind of its volumes, or why it has none.
    kinds: Vec<u8>,
    /// By node: the group of its volumes if it has a kind, or the number of its list if its volumes are not only its own.
    groups: Vec<u32>,
    known: Vec<VolumeKind>,
    /// The lists of groups that nodes share.
    lists: Vec<Groups>,
    list_ids: FxHashMap<Groups, u32>,
    /// By selector of volumes that several nodes share: the groups that were read.
    shared: FxHashMap<SelectorId, SmallVec<[u64; 1]>>,
    read: Option<Read>,
}

/// The numbers of the first unread changes.
#[derive(Clone, Copy, Debug)]
struct Read {
    volumes: u64,
    nodes: u64,
    full: u64,
}

impl Shelf {
    /// Everything has to be computed again.
    pub(crate) fn forget(&mut self) {
        self.read = None;
    }

    /// The group of a node's own volumes.
    pub(crate) fn group(&self, node: NodeId) -> Option<u32> {
        let kind = self.kinds.get(node.index())?;
        (usize::from(*kind) < MAX_KINDS).then(|| self.groups[node.index()])
    }

    /// The number and the groups of a node whose volumes are not only its own.
    pub(crate) fn list(&self, node: NodeId) -> Option<(u32, &Groups)> {
        let kind = self.kinds.get(node.index())?;
        let list = self.groups[node.index()];
        (*kind == NOT_OWN).then(|| Some((list, self.lists.get(list as usize)?)))?
    }

    /// Whether some node has volumes that are not only its own.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.kinds.contains(&NOT_OWN)
    }

    /// Reads all changes since the last time.
    pub(crate) fn refresh(&mut self, free: &FreeVolumes, places: Places<'_>) {
        let length = places.nodes.column_length();
        self.rows.resize(length, EMPTY);
        self.kinds.resize(length, ABSENT);
        self.groups.resize(length, 0);
        let stale = self.read.and_then(|read| {
            let changes = free.changes().since(read.volumes)?;
            let mut stale = places.nodes.changed_since(read.nodes)?.to_vec();
            stale.extend_from_slice(places.full.changes().since(read.full)?);
            let mut changes: SmallVec<[_; 8]> = changes.into();
            changes.sort_unstable();
            changes.dedup();
            for affinity in changes {
                let nodes = places.nodes.matching(affinity);
                if nodes.len() == 1 || self.has_new_groups(free, affinity) {
                    stale.extend(nodes.iter().map(NodeId));
                }
            }
            Some(stale)
        });
        // Lists that no node has any more are not dropped one by one.
        let stale = stale.filter(|_| self.lists.len() <= MAX_LISTS + length);
        match stale {
            Some(stale) => stale.into_iter().for_each(|node| self.update(free, places, node)),
            None => {
                (self.sizes, self.known) = (Vec::new(), Vec::new());
                self.lists.clear();
                self.list_ids.clear();
                self.shared.clear();
                self.kinds.fill(ABSENT);
                self.rows.fill(EMPTY);
                let mut reached = NodeMask::none(places.nodes);
                for node in free.affinities().flat_map(|affinity| places.nodes.matching(affinity)) {
                    reached.insert(NodeId(node));
                }
                reached.iter().for_each(|node| self.update(free, places, node));
            }
        }
        self.read = Some(Read {
            volumes: free.changes().next(),
            nodes: places.nodes.epoch(),
            full: places.full.changes().next(),
        });
    }

    /// Whether the groups of volumes that several nodes share are others than those that were read. If only volumes in them
    /// changed, nodes still have the same lists.
    fn has_new_groups(&mut self, free: &FreeVolumes, affinity: SelectorId) -> bool {
        let groups: SmallVec<[u64; 1]> = free.groups_with(affinity).collect();
        let known = self.shared.insert(affinity, groups);
        known.as_ref() != self.shared.get(&affinity)
    }

    fn update(&mut self, free: &FreeVolumes, places: Places<'_>, node: NodeId) {
        if node.index() >= self.kinds.len() {
            return;
        }
        let groups: Groups = free.groups_of(places, node).collect();
        let own = match groups.as_slice() {
            [] => Some(ABSENT),
            [group] if places.nodes.matching(free.affinity(*group)).len() == 1 => {
                // From now on its sizes have to be read when its volumes change.
                self.shared.remove(&free.affinity(*group));
                self.groups[node.index()] = *group;
                self.take(free, *group, node)
            }
            _ => None,
        };
        self.kinds[node.index()] = own.unwrap_or(NOT_OWN);
        if own.is_none() {
            let next = self.lists.len() as u32;
            let list = *self.list_ids.entry(groups).or_insert_with_key(|groups| {
                self.lists.push(groups.clone());
                next
            });
            self.groups[node.index()] = list;
        }
    }

    /// Notes the sizes of a group, and returns the number of its kind; `None` if there are too many.
    fn take(&mut self, free: &FreeVolumes, group: u32, node: NodeId) -> Option<u8> {
        let (kind, volumes) = free.few_in(group)?;
        let kind = self.kind(kind)?;
        let mut row = EMPTY;
        let sizes = volumes.chunk_by(|first, second| first.capacity == second.capacity);
        for (at, of_size) in sizes.enumerate() {
            // A size that is new moves the ranks of the larger ones, none of which is in the row yet.
            let rank = self.rank(of_size[0].capacity)?;
            *row.ranks.get_mut(at)? = rank;
            row.counts[at] = u8::try_from(of_size.len()).ok()?;
        }
        self.rows[node.index()] = row;
        Some(kind)
    }

    fn kind(&mut self, kind: VolumeKind) -> Option<u8> {
        let at = self.known.iter().position(|known| *known == kind);
        let at = at.unwrap_or(self.known.len());
        if at == self.known.len() && at < MAX_KINDS {
            self.known.push(kind);
        }
        u8::try_from(at).ok().filter(|_| at < MAX_KINDS)
    }

    fn rank(&mut self, capacity: i64) -> Option<u8> {
        let rank = match self.sizes.binary_search(&capacity) {
            Ok(rank) => rank,
            Err(_) if self.sizes.len() == MAX_RANKS => return None,
            Err(rank) => {
                self.sizes.insert(rank, capacity);
                for known in self.rows.iter_mut().flat_map(|row| &mut row.ranks) {
                    *known += u8::from(usize::from(*known) >= rank && *known != NO_RANK);
                }
                rank
            }
        };
        u8::try_from(rank).ok()
    }

    /// Prepares for claims of these shapes, smallest request first.
    pub(crate) fn fits<'a>(&'a self, shapes: &[ClaimShape]) -> Fits<'a> {
        let rank = |shape: &ClaimShape| self.sizes.partition_point(|size| *size < shape.request);
        let requested = shapes
            .iter()
            .fold(0_i64, |sum, shape| sum.saturating_add(shape.request));
        let mut by_rank = [NOT_ALL; 256];
        if let [_] = shapes {
            for (percent, size) in by_rank.iter_mut().zip(&self.sizes) {
                *percent = utilization(requested, *size);
            }
        }
        let suits = self.known.iter().map(|kind| {
            let count = shapes.iter().filter(|shape| kind.suits(shape)).count();
            match count {
                0 => Suits::None,
                count if count == shapes.len() => Suits::All,
                _ => Suits::Some,
            }
        });
        Fits {
            shelf: self,
            least: shapes
                .iter()
                .map(|shape| u8::try_from(rank(shape)).unwrap_or(NO_RANK))
                .collect(),
            requested,
            by_rank,
            suits: suits.collect(),
        }
    }
}

/// How many of some claims the volumes of a kind suit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suits {
    All,
    Some,
    None,
}

/// How well claims fit on nodes with volumes of their own.
pub(crate) struct Fits<'a> {
    shelf: &'a Shelf,
    /// By claim: the rank of the smallest size that is large enough.
    least: SmallVec<[u8; 4]>,
    requested: i64,
    /// For a single claim, by rank: its percentage.
    by_rank: [u8; 256],
    /// By kind.
    suits: SmallVec<[Suits; 4]>,
}

impl Fits<'_> {
    /// The percentage of their volumes that the claims request on a node, or [`NOT_ALL`]. `None` if the shelf cannot tell.
    pub(crate) fn percent(&self, node: NodeId) -> Option<u8> {
        let kind = *self.shelf.kinds.get(node.index())?;
        if kind == ABSENT {
            return Some(NOT_ALL);
        }
        match self.suits.get(usize::from(kind)) {
            Some(Suits::All) => {}
            Some(Suits::None) => return Some(NOT_ALL),
            Some(Suits::Some) | None => return None,
        }
        let row = &self.shelf.rows[node.index()];
        Some(match self.least.as_slice() {
            [least] => {
                let mut smallest = NO_RANK;
                for rank in row.ranks.iter().rev() {
                    smallest = if *rank >= *least { *rank } else { smallest };
                }
                self.by_rank[usize::from(smallest)]
            }
            _ => self.percent_of_several(row),
        })
    }

    /// Gives each claim the first volume that is large enough. Both are sorted by size: a volume too small for one claim is too
    /// small for the following ones.
    fn percent_of_several(&self, row: &Row) -> u8 {
        let mut sizes = row.ranks.iter().zip(row.counts);
        let (mut rank, mut left) = (0, 0);
        let mut capacity = 0_i64;
        for least in &self.least {
            while left == 0 || rank < *least {
                match sizes.next() {
                    Some((next, count)) if *next != NO_RANK => (rank, left) = (*next, count),
                    _ => return NOT_ALL,
                }
            }
            left -= 1;
            capacity = capacity.saturating_add(self.shelf.sizes[usize::from(rank)]);
        }
        utilization(self.requested, capacity)
    }
}

/// The volumes of a list that claims get in turn.
pub(crate) fn take_in_turn<'a>(
    volumes: &'a [FreeVolume],
    shapes: &'a [ClaimShape],
) -> impl Iterator<Item = Option<&'a FreeVolume>> + 'a {
    let mut left = volumes.iter();
    shapes
        .iter()
        .map(move |shape| left.find(|volume| volume.capacity >= shape.request))
}

#[cfg(test)]
mod tests;
