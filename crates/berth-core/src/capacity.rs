//! Free space that drivers publish, and whether claims fit into it.
//!
//! There are two forms: separate objects (`CSIStorageCapacity`), and pools in the status of a `CSIDriver`. Both become pools here:
//! an amount of space for a class, reachable from a set of nodes. Objects report free space, and the sizes of claims are added up.
//! A status reports the largest single volume, and each claim is compared with that alone.

use crate::nodes::{NodeId, Nodes, SelectorId};
use crate::symbols::Symbol;
use crate::trace::{Marks, Trace};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;

/// What a pool serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PoolKey {
    /// Volumes of a class, published as objects.
    Class(Symbol),
    /// Volumes of a class (or one of the two special names) of a driver, published in its status.
    DriverClass {
        /// The driver.
        driver: Symbol,
        /// The class, `<fallback>` or `<ephemeral>`.
        class: Symbol,
    },
}

impl PoolKey {
    /// Sort key that brings equal keys together.
    pub(crate) fn order(self) -> (Symbol, Symbol) {
        match self {
            Self::Class(class) => (Symbol::EMPTY, class),
            Self::DriverClass { driver, class } => (driver, class),
        }
    }
}

impl Trace for PoolKey {
    fn trace(&self, marks: &mut Marks) {
        self.order().trace(marks);
    }
}

/// A pool of storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name, for messages.
    pub name: Arc<str>,
    /// The nodes that can reach it.
    pub nodes: SelectorId,
    /// Free space, if it is known.
    pub capacity: Option<i64>,
    /// The largest volume that can be made.
    pub maximum_volume_size: Option<i64>,
    /// When it expires, in seconds since 1970.
    pub expires: Option<i64>,
    /// Free space promised to claims since it was published.
    pub promised: i64,
}

crate::trace!(Pool { ; name, nodes, capacity, maximum_volume_size, expires, promised });

impl Pool {
    /// The largest volume that the pool can hold, if published.
    #[must_use]
    pub fn largest(&self) -> Option<i64> {
        self.maximum_volume_size.or(self.capacity)
    }

    /// The free space that is not promised, if known.
    #[must_use]
    pub fn room(&self) -> Option<i64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.promised))
    }

    /// The largest volume for which there is room now, if published.
    #[must_use]
    pub fn largest_now(&self) -> Option<i64> {
        let largest = self.largest()?;
        // For one volume, a maximum replaces the capacity even if it is larger, as long as nothing was promised.
        let room = self.room().filter(|_| self.promised > 0);
        Some(room.map_or(largest, |room| largest.min(room.max(0))))
    }

    /// Whether another report about the pool gives the same answers now. A later expiry is not a change.
    pub(crate) fn says_the_same(&self, other: &Self, now: i64) -> bool {
        let room = |pool: &Self| (pool.nodes, pool.capacity, pool.maximum_volume_size, pool.counts_at(now));
        room(self) == room(other)
    }

    fn counts_at(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| expires > now)
    }

    pub(crate) fn holds(&self, request: i64) -> bool {
        self.largest_now().is_some_and(|largest| largest >= request)
    }
}

/// All pools, by what they serve and which nodes reach them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools {
    by_key: FxHashMap<PoolKey, FxHashMap<SelectorId, SmallVec<[Pool; 1]>>>,
}

crate::trace!(Pools { by_key });

impl Pools {
    pub(crate) fn insert(&mut self, key: PoolKey, pool: Pool) {
        let pools = self.by_key.entry(key).or_default().entry(pool.nodes).or_default();
        // Sorted by name, so that answers do not depend on the order in which pools were added.
        let at = pools.partition_point(|other| other.name <= pool.name);
        pools.insert(at, pool);
    }

    pub(crate) fn remove(&mut self, key: PoolKey, name: &str, nodes: SelectorId) {
        let Some(by_nodes) = self.by_key.get_mut(&key) else {
            return;
        };
        if let Some(pools) = by_nodes.get_mut(&nodes) {
            if let Some(at) = pools.iter().position(|pool| &*pool.name == name) {
                pools.remove(at);
            }
            if pools.is_empty() {
                by_nodes.remove(&nodes);
            }
        }
        if by_nodes.is_empty() {
            self.by_key.remove(&key);
        }
    }

    pub(crate) fn get(&self, key: PoolKey, nodes: SelectorId, name: &str) -> Option<&Pool> {
        let pools = self.by_key.get(&key)?.get(&nodes)?;
        pools.iter().find(|pool| &*pool.name == name)
    }

    pub(crate) fn get_mut(&mut self, key: PoolKey, nodes: SelectorId, name: &str) -> Option<&mut Pool> {
        let pools = self.by_key.get_mut(&key)?.get_mut(&nodes)?;
        pools.iter_mut().find(|pool| &*pool.name == name)
    }

    /// Whether any pool expires, or becomes valid again, between two times.
    pub(crate) fn change_between(&self, one: i64, other: i64) -> bool {
        let (from, to) = (one.min(other), one.max(other));
        let mut pools = self.by_key.values().flat_map(FxHashMap::values).flatten();
        pools.any(|pool| pool.expires.is_some_and(|expires| from < expires && expires <= to))
    }

    /// The pools that a node can reach, except expired ones.
    pub(crate) fn reachable<'a>(
        &'a self,
        nodes: &'a Nodes,
        key: PoolKey,
        node: NodeId,
        now: i64,
    ) -> impl Iterator<Item = &'a Pool> + 'a {
        let by_nodes = self.by_key.get(&key);
        nodes
            .selectors_of(node)
            .iter()
            .chain([&SelectorId::ALL])
            .filter_map(move |selector| by_nodes.and_then(|pools| pools.get(selector)))
            .flatten()
            .filter(move |pool| pool.counts_at(now))
    }
}

/// Maximum number of ways of spreading a pod's claims over pools that are tried. Pods have a few claims, nodes reach a few
/// pools, and ways that differ only in the order of equivalent pools or claims are tried once, so normally all are. Beyond
/// this, claims that each fit alone are accepted, as in kube-scheduler.
const MAX_TRIES: usize = 10_000;

/// Whether requests fit into pools together: each fits into one pool, and the requests in a pool fit into its free
/// space.
///
/// ```
/// use berth_core::capacity::{Pool, fit_together};
/// use berth_core::nodes::SelectorId;
/// let pool = |capacity| Pool {
///     name: "p".into(),
///     nodes: SelectorId::ALL,
///     capacity: Some(capacity),
///     maximum_volume_size: None,
///     expires: None,
///     promised: 0,
/// };
/// let (small, large) = (pool(10), pool(20));
/// assert!(fit_together(&[10, 20], &[&small, &large]));
/// assert!(!fit_together(&[15, 15], &[&small, &large]));
/// ```
#[must_use]
pub fn fit_together(requests: &[i64], pools: &[&Pool]) -> bool {
    if requests
        .iter()
        .any(|request| !pools.iter().any(|pool| pool.holds(*request)))
    {
        return false;
    }
    if requests.len() < 2 {
        return true;
    }
    let mut requests = requests.to_vec();
    requests.sort_unstable_by(|a, b| b.cmp(a));
    let mut free: Vec<i64> = pools.iter().map(|pool| pool.room().unwrap_or(i64::MAX)).collect();
    // The total must not exceed the free space of all pools, if all of them publish it.
    let total = |amounts: &[i64]| amounts.iter().fold(0_i64, |sum, amount| sum.saturating_add(*amount));
    if total(&requests) > total(&free) {
        return false;
    }
    let mut tries = MAX_TRIES;
    place(&requests, 0, pools, &mut free, &mut tries) || tries == 0
}

/// Places the requests, largest first. `first` is the first pool to try: of equal requests, none goes into a pool before
/// that of its predecessor.
fn place(requests: &[i64], first: usize, pools: &[&Pool], free: &mut [i64], tries: &mut usize) -> bool {
    let Some((request, rest)) = requests.split_first() else {
        return true;
    };
    for index in first..pools.len() {
        if *tries == 0 {
            return false;
        }
        // A pool with the same room as one that failed would fail too.
        let alike = |other: usize| free[other] == free[index] && pools[other].largest() == pools[index].largest();
        if !pools[index].holds(*request) || free[index] < *request || (first..index).any(alike) {
            continue;
        }
        *tries -= 1;
        free[index] -= request;
        let next = if rest.first() == Some(request) { index } else { 0 };
        if place(rest, next, pools, free, tries) {
            return true;
        }
        free[index] += request;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(capacity: i64) -> Pool {
        Pool {
            name: "p".into(),
            nodes: SelectorId::ALL,
            capacity: Some(capacity),
            maximum_volume_size: None,
            expires: None,
            promised: 0,
        }
    }

    #[test]
    fn many_alike_claims_and_pools_are_told_apart_no_further_than_needed() {
        let pools: Vec<_> = (0..8).map(|_| pool(20)).collect();
        let pools: Vec<_> = pools.iter().collect();
        assert!(fit_together(&[11; 8], &pools));
        assert!(!fit_together(&[11; 9], &pools), "each pool holds one of them");
        let requests: Vec<i64> = (0..9).map(|number| 11 + number % 3).collect();
        assert!(!fit_together(&requests, &pools));
    }

    /// Whether requests fit, by brute force.
    fn exhaustive(requests: &[i64], free: &mut [i64], largest: &[i64]) -> bool {
        let Some((request, rest)) = requests.split_first() else {
            return true;
        };
        (0..free.len()).any(|index| {
            if free[index] < *request || largest[index] < *request {
                return false;
            }
            free[index] -= request;
            let fits = exhaustive(rest, free, largest);
            free[index] += request;
            fits
        })
    }

    proptest! {
        #[test]
        fn no_way_is_left_out(
            requests in proptest::collection::vec(1..8_i64, 2..6),
            sizes in proptest::collection::vec((1..20_i64, proptest::option::of(1..10_i64)), 1..5),
        ) {
            let pools: Vec<_> = sizes.iter().map(|(capacity, largest)| Pool {
                maximum_volume_size: *largest,
                ..pool(*capacity)
            }).collect();
            let largest: Vec<_> = sizes.iter().map(|(capacity, largest)| largest.unwrap_or(*capacity)).collect();
            let mut free: Vec<_> = sizes.iter().map(|(capacity, _)| *capacity).collect();
            let expected = exhaustive(&requests, &mut free, &largest);
            prop_assert_eq!(fit_together(&requests, &pools.iter().collect::<Vec<_>>()), expected);
        }
    }
}
