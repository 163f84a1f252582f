//! An upper bound for the number of pods that can be placed, whatever the search finds.
//!
//! The total that pods take of one resource must fit into the total of all nodes. Taking the pods with the smallest needs first gives the
//! maximum number for this resource; the scarcest resource determines the bound. Besides node resources, volumes of a class from a certain size
//! on count as a resource: a claim can only use one that is at least as large.

use super::Candidate;
use super::trial::{Placed, Trial};
use crate::cluster::{Cluster, Column};
use crate::framework::PluginName;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use std::collections::{BTreeMap, BTreeSet};

/// The total of a resource on all nodes, and what each pod takes.
struct Scarce {
    there: i128,
    taken: Vec<i128>,
}

/// The maximum number of pods of the highest priority, of the two highest, and so on. No pod of the look may be on a
/// node.
pub(super) fn upper_bound(trial: &Trial<'_>, options: &[Vec<NodeId>], placed: &[Option<Placed>]) -> Vec<usize> {
    let possible: Vec<usize> = (0..options.len())
        .filter(|index| !options[*index].is_empty() || placed[*index].is_some() || trial.depends_on_others(*index))
        .collect();
    let things = scarce_things(trial.cluster, trial.candidates);
    let levels = 0..trial.level_count();
    let of_level = |level: usize| {
        let pods: Vec<usize> = possible
            .iter()
            .copied()
            .filter(|index| trial.level(*index) <= level)
            .collect();
        let by_thing = things.iter().map(|thing| thing.most(&pods));
        by_thing.min().unwrap_or(pods.len()).min(pods.len())
    };
    levels.map(of_level).collect()
}

impl Scarce {
    /// How many of these pods it allows.
    fn most(&self, pods: &[usize]) -> usize {
        let mut taken: Vec<i128> = pods.iter().map(|index| self.taken[*index]).collect();
        taken.sort_unstable();
        let mut left = self.there;
        let fits = |amount: &i128| {
            left -= amount;
            *amount == 0 || left >= 0
        };
        taken.into_iter().take_while(fits).count()
    }
}

fn scarce_things(cluster: &Cluster, candidates: &[Candidate<'_>]) -> Vec<Scarce> {
    let resources = cluster.resources();
    let free = |column: &Column| -> i128 {
        let nodes = cluster.all_nodes().iter();
        nodes.map(|node| i128::from(column.free(node).max(0))).sum()
    };
    let taken = |amount: fn(&Candidate<'_>) -> i64| -> Vec<i128> {
        let amount = |candidate: &Candidate<'_>| match candidate.is_filtered_by(PluginName::NodeResourcesFit) {
            true => i128::from(amount(candidate)),
            false => 0,
        };
        candidates.iter().map(amount).collect()
    };
    let cpu = Scarce {
        there: free(&resources.cpu),
        taken: taken(|candidate| candidate.pod.footprint.requests.cpu_milli),
    };
    let memory = Scarce {
        there: free(&resources.memory),
        taken: taken(|candidate| candidate.pod.footprint.requests.memory_bytes),
    };
    let pods = Scarce {
        there: free(&resources.pods),
        taken: taken(|_| 1),
    };
    // Pods that take little of one resource may take much of the other, so their shares are added up.
    let both = Scarce {
        there: 2 * cpu.there * memory.there,
        taken: cpu
            .taken
            .iter()
            .zip(&memory.taken)
            .map(|(cpu_taken, memory_taken)| cpu_taken * memory.there + memory_taken * cpu.there)
            .collect(),
    };
    let mut things = vec![cpu, memory, pods, both];
    things.extend(scarce_volumes(cluster, candidates));
    things
}

/// The claims of a pod that only an existing volume can serve: class and bytes.
fn claims_for_existing(cluster: &Cluster, candidate: &Candidate<'_>) -> Vec<(Symbol, i64)> {
    let binder = cluster.binder();
    if !candidate.is_filtered_by(PluginName::VolumeBinding) {
        return Vec::new();
    }
    let Ok(claims) = binder.claims(&candidate.pod.volumes) else {
        return Vec::new();
    };
    let claims = claims.delayed.iter().filter_map(|id| binder.claim(*id));
    let unmet = claims.filter(|claim| binder.volume_held_for(claim).is_none());
    unmet
        .filter_map(|claim| {
            let class = claim.class?;
            let is_made = binder.class(class).is_some_and(|class| class.provisions);
            (!is_made).then_some((class, claim.shape.request))
        })
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
pub(super) fn weights(trial: &Trial<'_>) -> Vec<f64> {
    let things = scarce_things(trial.cluster, trial.candidates);
    let weight = |index: usize| {
        let share = |thing: &Scarce| thing.taken[index] as f64 / (thing.there as f64).max(1.0);
        things.iter().map(share).sum()
    };
    (0..trial.candidates.len()).map(weight).collect()
}
