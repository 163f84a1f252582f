//! Improves on placing one by one: nodes are emptied of waiting pods, and filled again in another order.

use super::bound;
use super::trial::{Placed, Trial, Value};
use crate::chance::Chance;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashSet;

/// Number of tries to improve an assignment of one pod. The more pods wait, the fewer tries each gets: a look at a thousand of them tries
/// hardly more pods than needed to place them.
const TRIES_FOR_ONE: usize = 1_280_000;

/// Maximum number of left-out pods tried again when nodes are filled.
const MOST_LEFT_OUT: usize = 12;

/// Up to this many pods, the possible nodes of each are computed; beyond that, only for those that are left out.
const FEW_PODS: usize = 200;

/// Maximum number of pods tried to improve an assignment.
pub(super) fn budget(pods: usize, tries_per_pod: usize) -> usize {
    tries_per_pod.saturating_mul(pods).min(TRIES_FOR_ONE / pods.max(1))
}

/// Reassigns pods that were placed one by one, so that more of them are placed. Returns the upper bound.
pub(super) fn improve(trial: &mut Trial<'_>, budget: usize, at_most: &mut usize) -> Vec<Option<NodeId>> {
    let start: Vec<Option<Placed>> = (0..trial.candidates.len()).map(|index| trial.lift(index)).collect();
    let all = start.len() <= FEW_PODS;
    let options: Vec<Vec<NodeId>> = (0..start.len())
        .map(|index| match all || start[index].is_none() {
            true => trial.options(index).into_iter().map(|option| option.node).collect(),
            false => Vec::new(),
        })
        .collect();
    let bound = bound::upper_bound(trial, &options, &start);
    *at_most = bound.last().copied().unwrap_or(0);
    let mut search = Search {
        weights: bound::weights(trial),
        options,
        bound,
        chance: Chance::new(start.len() as u64),
        trial,
    };
    for (index, option) in start.into_iter().enumerate() {
        if let Some(option) = option {
            search.trial.put(index, option);
        }
    }
    search.run(budget)
}

/// The order in which pods of one priority are placed again. Large ones are hard to place later; small ones leave room for more of them.
#[derive(Clone, Copy, Debug)]
enum Order {
    HeavyFirst { seed: Option<usize> },
    LightFirst { seed: Option<usize> },
    Any { seed: usize },
}

struct Search<'a, 'b> {
    trial: &'b mut Trial<'a>,
    /// For each pod the nodes that would fit it without any other pod of the look, as far as computed.
    options: Vec<Vec<NodeId>>,
    /// How hard pods are to place.
    weights: Vec<f64>,
    /// The maximum number of pods of the highest priority, of the two highest, and so on.
    bound: Vec<usize>,
    chance: Chance,
}

impl Search<'_, '_> {
    fn run(&mut self, budget: usize) -> Vec<Option<NodeId>> {
        let mut current = self.trial.value();
        let (start, start_nodes) = (current.clone(), self.trial.nodes());
        let (mut best, mut nodes) = (current.clone(), start_nodes.clone());
        for order in [Order::LightFirst { seed: None }, Order::HeavyFirst { seed: None }] {
            if self.trial.tries + nodes.len() > budget {
                break;
            }
            let undo = self.place_again((0..nodes.len()).collect(), order);
            let value = self.trial.value();
            if value.by_level > best.by_level {
                (best, nodes) = (value.clone(), self.trial.nodes());
                current = value;
            } else {
                self.take_back(undo);
            }
        }
        while self.trial.tries < budget {
            let Some((seed, emptied)) = self.choose(&current) else {
                break;
            };
            let undo = self.refill(seed, &emptied);
            let value = self.trial.value();
            if !self.is_acceptable(&value, &current) {
                self.take_back(undo);
                continue;
            }
            if value > best {
                let found = self.trial.nodes();
                if value.is_better(&found, &start, &start_nodes) {
                    (best, nodes) = (value.clone(), found);
                }
            }
            current = value;
        }
        nodes
    }

    /// A pod that should get a place, or a better one, and the nodes to empty for it.
    fn choose(&mut self, current: &Value) -> Option<(usize, Vec<NodeId>)> {
        let pods = 0..self.options.len();
        let mut seeds: Vec<usize> = Vec::new();
        if !self.is_optimal(current) {
            let left_out = |index: &usize| self.trial.place(*index).is_none() && !self.options[*index].is_empty();
            seeds = pods.clone().filter(left_out).collect();
        }
        if seeds.is_empty() || self.chance.below(2) == 0 {
            let wastes = |index: &usize| self.trial.place(*index).is_some_and(|place| place.waste > 0);
            let wasteful: Vec<usize> = pods.filter(wastes).collect();
            if !wasteful.is_empty() {
                seeds = wasteful;
            }
        }
        let seed = self.chance.one_of(&seeds)?;
        let mut emptied: Vec<NodeId> = self.trial.node(seed).into_iter().collect();
        emptied.extend(self.chance.one_of(&self.options[seed]));
        // The displaced pods need somewhere to go.
        for _ in 0..self.chance.below(3) {
            let on_emptied: Vec<usize> = self.pods_on(&emptied);
            if let Some(other) = self.chance.one_of(&on_emptied) {
                let known = [other, seed].into_iter().find(|index| !self.options[*index].is_empty());
                emptied.extend(known.and_then(|index| self.chance.one_of(&self.options[index])));
            }
        }
        Some((seed, emptied))
    }

    /// The pods on nodes.
    fn pods_on(&self, nodes: &[NodeId]) -> Vec<usize> {
        let nodes: FxHashSet<NodeId> = nodes.iter().copied().collect();
        let is_there = |index: &usize| self.trial.node(*index).is_some_and(|node| nodes.contains(&node));
        (0..self.options.len()).filter(is_there).collect()
    }

    /// Empties nodes and places their pods again, and some that were left out. Returns the previous state.
    fn refill(&mut self, seed: usize, emptied: &[NodeId]) -> Vec<(usize, Option<Placed>)> {
        let mut left_out: Vec<usize> = (0..self.options.len())
            .filter(|index| self.trial.place(*index).is_none() && !self.options[*index].is_empty())
            .collect();
        while left_out.len() > MOST_LEFT_OUT {
            left_out.swap_remove(self.chance.below(left_out.len()));
        }
        let mut pods = self.pods_on(emptied);
        pods.extend(left_out);
        if !pods.contains(&seed) {
            pods.push(seed);
        }
        let order = match self.chance.below(5) {
            0 => Order::HeavyFirst { seed: Some(seed) },
            1 => Order::HeavyFirst { seed: None },
            2 => Order::LightFirst { seed: Some(seed) },
            3 => Order::LightFirst { seed: None },
            _ => Order::Any { seed },
        };
        self.place_again(pods, order)
    }

    /// Removes pods from their nodes and places them again. Returns the previous state.
    fn place_again(&mut self, mut pods: Vec<usize>, order: Order) -> Vec<(usize, Option<Placed>)> {
        let undo = pods.iter().map(|index| (*index, self.trial.lift(*index))).collect();
        self.sort(&mut pods, order);
        for index in pods {
            if let Some(option) = self.best_option(index) {
                self.trial.put(index, option);
            }
        }
        undo
    }

    /// Sorts pods by priority, and then by an order.
    fn sort(&mut self, pods: &mut [usize], order: Order) {
        let mut key = |index: usize| {
            let weight = self.weights[index] * (0.8 + 0.4 * self.chance.share());
            let (seed, rank) = match order {
                Order::HeavyFirst { seed } => (seed, -weight),
                Order::LightFirst { seed } => (seed, weight),
                Order::Any { seed } => (Some(seed), self.chance.share()),
            };
            (self.trial.level(index), seed != Some(index), rank)
        };
        let mut keys: Vec<_> = pods.iter().map(|index| (key(*index), *index)).collect();
        keys.sort_by(|((a_level, a_later, a), _), ((b_level, b_later, b), _)| {
            (a_level, a_later).cmp(&(b_level, b_later)).then(a.total_cmp(b))
        });
        for (place, (_, index)) in pods.iter_mut().zip(keys) {
            *place = index;
        }
    }

    /// The node where the pod needs the fewest new volumes, then the one with the least waste, then the one that is fullest
    /// afterwards.
    fn best_option(&mut self, index: usize) -> Option<Placed> {
        let mut options = self.trial.options(index);
        if options.is_empty() {
            return None;
        }
        if self.chance.below(12) == 0 {
            let any = self.chance.below(options.len());
            return Some(options.swap_remove(any));
        }
        let resources = self.trial.cluster.resources();
        let room = |node: NodeId| {
            let share = |column: &crate::cluster::Column| {
                column.free(node) as f64 / (column.allocatable[node.index()] as f64).max(1.0)
            };
            share(&resources.cpu) + share(&resources.memory)
        };
        options.into_iter().min_by(|a, b| {
            let by_room = || room(a.node).total_cmp(&room(b.node));
            let by_volumes = (a.new_volumes(), a.waste).cmp(&(b.new_volumes(), b.waste));
            by_volumes.then_with(by_room)
        })
    }

    /// Whether the search continues from an assignment: no fewer pods of any priority, no more new volumes, and hardly more
    /// waste, so that it leaves its starting point.
    fn is_acceptable(&self, value: &Value, current: &Value) -> bool {
        let is_alike = value.by_level == current.by_level && value.new_volumes == current.new_volumes;
        value >= current || is_alike && value.waste <= current.waste / 50 * 51
    }

    fn is_optimal(&self, value: &Value) -> bool {
        let mut sum = 0;
        self.bound.iter().zip(&value.by_level).all(|(bound, placed)| {
            sum += placed;
            sum == *bound
        })
    }

    fn take_back(&mut self, undo: Vec<(usize, Option<Placed>)>) {
        for (index, _) in &undo {
            self.trial.lift(*index);
        }
        for (index, option) in undo {
            if let Some(option) = option {
                self.trial.put(index, option);
            }
        }
    }
}
