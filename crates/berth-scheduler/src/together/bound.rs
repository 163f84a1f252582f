//! An upper bound for the number of pods that can be placed, whatever the search finds.
//!
//! The total that pods take of one resource must fit into the total of all nodes. Taking the pods with the smallest needs first gives the
//! maximum number for this resource; the scarcest resource determines the bound. Pods that take little of CPU may take much of memory, so weighted sums
//! of both count as resources too. So do volumes of a class from a certain size on: a claim can only use one that is at least as large.
//!
//! Priorities come first: the bound of a priority assumes that as many pods of each higher one are placed as possible, and that these are the
//! smallest.

use super::Candidate;
use super::sketch::open_claims;
use super::trial::Trial;
use crate::cluster::{Cluster, Column};
use crate::framework::PluginName;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use std::collections::{BTreeMap, BTreeSet};

/// Into how many steps the weights of CPU and memory are divided.
const WEIGHT_STEPS: i128 = 8;

/// The total of a resource on all nodes, and what each pod takes.
struct Scarce {
    there: i128,
    taken: Vec<i128>,
}

/// What limits the number of pods.
#[derive(Debug)]
pub(super) struct Bound {
    things: Vec<Limit>,
    /// For each level the number of pods that fit somewhere.
    possible: Vec<usize>,
}

/// A resource, and what pods take of it.
#[derive(Debug)]
struct Limit {
    there: i128,
    /// For each level the total of its smallest pods: of none, of one, and so on.
    smallest: Vec<Vec<i128>>,
    /// For each level the pods of it and all lower ones, likewise.
    smallest_from: Vec<Vec<i128>>,
}

impl Bound {
    /// The bound for the pods of a look that may fit somewhere. No pod of the look may be on a node.
    pub(super) fn of(trial: &Trial<'_>, possible: &[bool], nodes: &[NodeId]) -> Self {
        let level_count = trial.level_count();
        let pods_of = |keep: &dyn Fn(usize) -> bool| -> Vec<usize> {
            let pods = (0..possible.len()).filter(|pod| possible[*pod] && keep(trial.level(*pod)));
            pods.collect()
        };
        let of_level: Vec<Vec<usize>> = (0..level_count).map(|level| pods_of(&|other| other == level)).collect();
        let from_level: Vec<Vec<usize>> = (0..level_count).map(|level| pods_of(&|other| other >= level)).collect();
        let limit = |thing: Scarce| Limit {
            smallest: of_level.iter().map(|pods| thing.totals(pods)).collect(),
            smallest_from: from_level.iter().map(|pods| thing.totals(pods)).collect(),
            there: thing.there,
        };
        Self {
            things: scarce_things(trial.cluster, trial.candidates, nodes)
                .into_iter()
                .map(limit)
                .collect(),
            possible: of_level.iter().map(Vec::len).collect(),
        }
    }

    /// The first level of which more pods might be placed than these, with as many of each higher one.
    fn open_level(&self, placed: &[usize]) -> Option<usize> {
        (0..placed.len()).find(|level| placed[*level] < self.most_of(*level, placed))
    }

    /// How many pods of a level fit beside these of higher ones.
    fn most_of(&self, level: usize, placed: &[usize]) -> usize {
        let by_thing = self.things.iter().map(|thing| {
            let left = thing.left_for(level, placed);
            most_within(&thing.smallest[level], left)
        });
        by_thing.min().unwrap_or(usize::MAX).min(self.possible[level])
    }

    /// Whether no assignment is better than one that places this many pods of each level.
    pub(super) fn is_reached(&self, placed: &[usize]) -> bool {
        self.open_level(placed).is_none()
    }

    /// The maximum number of pods of any assignment that is at least as good as one that places this many pods of each level.
    pub(super) fn at_most(&self, placed: &[usize]) -> usize {
        let Some(open) = self.open_level(placed) else {
            return placed.iter().sum();
        };
        let by_thing = self.things.iter().map(|thing| {
            let left = thing.left_for(open, placed);
            most_within(&thing.smallest_from[open], left)
        });
        let possible = self.possible[open..].iter().sum();
        let lower = by_thing.min().unwrap_or(possible).min(possible);
        placed[..open].iter().sum::<usize>() + lower
    }
}

impl Limit {
    /// What is left for a level if this many pods of each higher one take as little as they can.
    fn left_for(&self, level: usize, placed: &[usize]) -> i128 {
        let taken = |higher: usize| {
            let totals = &self.smallest[higher];
            totals[placed[higher].min(totals.len() - 1)]
        };
        self.there - (0..level).map(taken).sum::<i128>()
    }
}

/// The largest number of pods whose total is no more than what is left. Pods that take nothing always fit.
fn most_within(totals: &[i128], left: i128) -> usize {
    totals.partition_point(|total| *total <= left.max(0)).saturating_sub(1)
}

impl Scarce {
    /// The totals of the smallest of these pods: of none, of one, and so on.
    fn totals(&self, pods: &[usize]) -> Vec<i128> {
        let mut taken: Vec<i128> = pods.iter().map(|pod| self.taken[*pod]).collect();
        taken.sort_unstable();
        let sums = taken.into_iter().scan(0_i128, |sum, amount| {
            *sum = sum.saturating_add(amount.max(0));
            Some(*sum)
        });
        std::iter::once(0).chain(sums).collect()
    }
}

/// The resources of nodes, and the volumes.
fn scarce_things(cluster: &Cluster, candidates: &[Candidate<'_>], nodes: &[NodeId]) -> Vec<Scarce> {
    let resources = cluster.resources();
    let thing = |column: &Column, amount: fn(&Candidate<'_>) -> i64| {
        let amount = |candidate: &Candidate<'_>| match candidate.is_filtered_by(PluginName::NodeResourcesFit) {
            true => i128::from(amount(candidate)),
            false => 0,
        };
        let taken: Vec<i128> = candidates.iter().map(amount).collect();
        let free = nodes.iter().map(|node| i128::from(column.free(*node).max(0)));
        let unit = taken
            .iter()
            .copied()
            .filter(|amount| *amount > 0)
            .fold(0, greatest_common_divisor);
        // What is less than any pod's share, or no multiple of all shares, is of no use.
        let least = taken.iter().copied().filter(|amount| *amount > 0).min().unwrap_or(1);
        let useful = free.map(|free| if free < least { 0 } else { free - free % unit.max(1) });
        Scarce {
            there: useful.sum(),
            taken,
        }
    };
    let cpu = thing(&resources.cpu, |candidate| candidate.pod.footprint.requests.cpu_milli);
    let memory = thing(&resources.memory, |candidate| {
        candidate.pod.footprint.requests.memory_bytes
    });
    let pods = thing(&resources.pods, |_| 1);
    let weighted = |weight: i128| {
        let (of_cpu, of_memory) = (weight * memory.there, (WEIGHT_STEPS - weight) * cpu.there);
        let taken = cpu.taken.iter().zip(&memory.taken);
        Scarce {
            there: WEIGHT_STEPS * cpu.there * memory.there,
            taken: taken.map(|(cpu, memory)| cpu * of_cpu + memory * of_memory).collect(),
        }
    };
    let mut things: Vec<Scarce> = (1..WEIGHT_STEPS).map(weighted).collect();
    things.extend([cpu, memory, pods]);
    things.extend(scarce_volumes(cluster, candidates));
    things
}

fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    match a {
        0 => b,
        a => greatest_common_divisor(b % a, a),
    }
}

/// The claims of a pod that only an existing volume can serve: class and bytes.
fn claims_for_existing(cluster: &Cluster, candidate: &Candidate<'_>) -> Vec<(Symbol, i64)> {
    let binder = cluster.binder();
    let is_made = |class: Symbol| binder.class(class).is_some_and(|class| class.provisions);
    open_claims(binder, candidate)
        .filter(|(class, _)| !is_made(*class))
        .map(|(class, shape)| (class, shape.request))
        .collect()
}

fn scarce_volumes(cluster: &Cluster, candidates: &[Candidate<'_>]) -> Vec<Scarce> {
    let claims: Vec<_> = candidates
        .iter()
        .map(|candidate| claims_for_existing(cluster, candidate))
        .collect();
    let mut sizes: BTreeMap<Symbol, BTreeSet<i64>> = BTreeMap::new();
    for (class, size) in claims.iter().flatten() {
        sizes.entry(*class).or_default().insert(*size);
    }
    let of_class = |(class, sizes): (Symbol, BTreeSet<i64>)| {
        let volumes: Vec<i64> = cluster.binder().free_capacities(class).collect();
        let from_size = |least: i64| Scarce {
            there: volumes.iter().filter(|capacity| **capacity >= least).count() as i128,
            taken: claims
                .iter()
                .map(|claims| {
                    claims
                        .iter()
                        .filter(|(found, size)| *found == class && *size >= least)
                        .count() as i128
                })
                .collect(),
        };
        sizes.into_iter().map(from_size).collect::<Vec<_>>()
    };
    sizes.into_iter().flat_map(of_class).collect()
}

/// How hard pods are to place: their claims, and their shares of the free resources.
pub(super) fn weights(trial: &Trial<'_>, nodes: &[NodeId]) -> Vec<f64> {
    let things = scarce_things(trial.cluster, trial.candidates, nodes);
    let weight = |index: usize| {
        let share = |thing: &Scarce| thing.taken[index] as f64 / (thing.there as f64).max(1.0);
        things.iter().map(share).sum()
    };
    (0..trial.candidates.len()).map(weight).collect()
}
