//! Improves on placing one by one: nodes are emptied of waiting pods, and filled again in another order.

use super::board::Board;
use super::bound::{self, Bound};
use super::shuffle::Shuffle;
use super::sketch::Sketch;
use super::trial::{MAX_COMPARED, Placed, Trial, Value};
use crate::chance::Chance;
use crate::decide::Bookmark;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashSet;

/// Number of tries to improve an assignment of one pod. The more pods wait, the fewer tries each gets: a look at a thousand of them tries
/// hardly more pods than needed to place them.
const TRIES_FOR_ONE: usize = 1_280_000;

/// Number of checks in the sketch that take as long as a try with all filters.
const CHECKS_PER_TRY: usize = 100;

/// Maximum number of checks in the sketch: about half a second.
const MOST_CHECKS: usize = 4_000_000;

/// Maximum number of left-out pods tried again when nodes are filled.
const MOST_LEFT_OUT: usize = 12;

/// Up to this many pods, the possible nodes of each are computed, whatever the number of nodes.
const FEW_PODS: usize = 300;

/// With more pods, they are computed up to this many pairs of a pod and a node, such as 1000 pods on 120 nodes: each pair passes the filters
/// once. Beyond that, only for the pods that are left out.
const MOST_PAIRS: usize = 120_000;

/// Whether the possible nodes of each pod are computed, so that the pods can be searched on a sketch.
pub(super) fn is_small(pods: usize, nodes: usize) -> bool {
    pods <= FEW_PODS || pods.saturating_mul(nodes) <= MOST_PAIRS
}

/// A search for a better assignment than one by one.
pub(super) struct Improvement<'t, 'a> {
    trial: &'t mut Trial<'a>,
    bookmark: &'t Bookmark,
    /// The assignment one by one.
    start: Vec<Option<Placed>>,
    start_value: Value,
    /// For each pod the nodes that would fit it without any other pod of the look, as far as computed.
    pub(super) options: Vec<Vec<NodeId>>,
    pub(super) bound: Bound,
    /// How hard pods are to place.
    weights: Vec<f64>,
    tries_per_pod: usize,
}

impl<'t, 'a> Improvement<'t, 'a> {
    /// Starts from the pods where they are, and removes them from their nodes.
    pub(super) fn new(trial: &'t mut Trial<'a>, bookmark: &'t Bookmark, tries_per_pod: usize) -> Self {
        let start_value = trial.value();
        let start: Vec<Option<Placed>> = (0..trial.candidates.len()).map(|index| trial.lift(index)).collect();
        let all = is_small(start.len(), trial.cluster.all_nodes().len());
        let mut options: Vec<Vec<NodeId>> = vec![Vec::new(); start.len()];
        for (index, nodes) in options.iter_mut().enumerate() {
            if all || start[index].is_none() {
                *nodes = trial.fitting(index);
            }
            if let Some(place) = start[index].as_ref().filter(|place| !nodes.contains(&place.node)) {
                nodes.push(place.node);
            }
        }
        let mut nodes: Vec<NodeId> = match all {
            true => options.iter().flatten().copied().collect(),
            false => trial.cluster.all_nodes().iter().collect(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        let possible: Vec<bool> = (0..start.len())
            .map(|index| !options[index].is_empty() || trial.depends_on_others(index))
            .collect();
        // A pod with affinity to another one may use nodes that do not fit it alone, and a sample of the nodes is not all of them.
        let is_known = |index: usize| options[index].len() < MAX_COMPARED && !trial.depends_on_others(index);
        if !(0..start.len()).all(is_known) {
            nodes = trial.cluster.all_nodes().iter().collect();
        }
        Self {
            bound: Bound::of(trial, &possible, &nodes),
            weights: bound::weights(trial, &nodes),
            trial,
            bookmark,
            start,
            start_value,
            options,
            tries_per_pod,
        }
    }

    /// Searches for preferred nodes with which more pods are placed, or less capacity is taken. `None` if there is nothing to improve.
    pub(super) fn search(&mut self, is_over: &mut dyn FnMut() -> bool) -> Option<Vec<Option<NodeId>>> {
        let pods = self.start.len();
        let leaves_some_out = self.start_value.placed() < pods;
        let mut wishes = None;
        if is_small(pods, self.trial.cluster.all_nodes().len())
            && let Some(sketch) = Sketch::of(self.trial, &self.options)
        {
            let least_waste = sketch.least_waste();
            let saves = sketch.is_complete && least_waste.is_none_or(|least| least < self.start_value.waste);
            if !leaves_some_out && !saves {
                return None;
            }
            let (nodes, value) = self.shuffle(&sketch, least_waste, is_over);
            self.trial.scratch.return_to(self.bookmark.clone());
            self.trial.replay(&nodes);
            let replayed = self.trial.value();
            let is_as_found = replayed.by_level >= value.by_level && (!sketch.is_complete || replayed >= value);
            if is_as_found || !leaves_some_out {
                return Some(nodes);
            }
            if replayed > self.start_value {
                wishes = Some(nodes);
            }
        }
        if !leaves_some_out {
            return None;
        }
        let budget = self.trial.tries + budget(pods, self.tries_per_pod);
        if wishes.is_none() {
            self.trial.lift_all();
            for (index, option) in self.start.iter().enumerate() {
                if let Some(option) = option {
                    self.trial.put(index, option.clone());
                }
            }
        }
        let mut search = Search {
            trial: self.trial,
            options: &self.options,
            weights: &self.weights,
            bound: &self.bound,
            chance: Chance::new(pods as u64),
        };
        Some(search.run(budget, is_over))
    }

    /// Searches on a sketch.
    fn shuffle(
        &self,
        sketch: &Sketch,
        least_waste: Option<i64>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> (Vec<Option<NodeId>>, Value) {
        let number = |id: NodeId| sketch.nodes.binary_search_by_key(&id, |node| node.id).ok();
        let start: Vec<Option<usize>> = self
            .start
            .iter()
            .map(|place| place.as_ref().and_then(|place| number(place.node)))
            .collect();
        let mut board = Board::new(sketch, self.trial.levels(), self.trial.level_count());
        board.arrange(&start);
        let mut shuffle = Shuffle {
            board: &mut board,
            weights: &self.weights,
            bound: &self.bound,
            least_waste,
            chance: Chance::new(start.len() as u64),
        };
        let checks = self
            .tries_per_pod
            .saturating_mul(start.len())
            .saturating_mul(CHECKS_PER_TRY);
        shuffle.run(checks.min(MOST_CHECKS), is_over);
        let nodes = board.places().into_iter().map(|place| Some(sketch.nodes[place?].id));
        (nodes.collect(), board.value().clone())
    }
}

/// Maximum number of pods tried to improve an assignment.
fn budget(pods: usize, tries_per_pod: usize) -> usize {
    tries_per_pod.saturating_mul(pods).min(TRIES_FOR_ONE / pods.max(1))
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
    options: &'b [Vec<NodeId>],
    weights: &'b [f64],
    bound: &'b Bound,
    chance: Chance,
}

impl Search<'_, '_> {
    fn run(&mut self, budget: usize, is_over: &mut dyn FnMut() -> bool) -> Vec<Option<NodeId>> {
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
        while self.trial.tries < budget && !is_over() {
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
        if !self.bound.is_reached(&current.by_level) {
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
