//! Improves an assignment on a board: nodes are emptied, and filled again in another order.

use super::board::Board;
use super::bound::Bound;
use super::trial::Value;
use crate::chance::Chance;
use std::cmp::Ordering;

/// Maximum number of left-out pods tried again when nodes are filled.
const MOST_LEFT_OUT: usize = 12;

/// Of more nodes that could fit a pod, this many are checked besides the emptied ones.
const OTHERS_CHECKED: usize = 24;

/// The search ends when this part of its budget passed without an improvement.
const PATIENCE: usize = 3;

/// The order in which pods of one priority are placed again. Large ones are hard to place later; small ones leave room for more of them.
#[derive(Clone, Copy, Debug)]
enum Order {
    HeavyFirst { seed: Option<usize> },
    LightFirst { seed: Option<usize> },
    Any { seed: usize },
}

/// A search for a better assignment.
pub(super) struct Shuffle<'b, 's> {
    pub(super) board: &'b mut Board<'s>,
    /// How hard pods are to place.
    pub(super) weights: &'b [f64],
    pub(super) bound: &'b Bound,
    /// The least waste if all pods are placed, if known.
    pub(super) least_waste: Option<i64>,
    pub(super) chance: Chance,
}

impl Shuffle<'_, '_> {
    /// Searches from the given assignment until the budget of checks is used. The board has the best assignment afterwards: it places no fewer
    /// pods than the given one; if it places as many, then the same ones.
    pub(super) fn run(&mut self, budget: usize, is_over: &mut dyn FnMut() -> bool) {
        let start = self.board.places();
        let start_value = self.board.value().clone();
        let (mut best, mut places) = (start_value.clone(), start.clone());
        for order in [Order::LightFirst { seed: None }, Order::HeavyFirst { seed: None }] {
            if self.is_done(&best) {
                break;
            }
            let all = (0..start.len()).collect();
            let undo = self.place_again(all, order, &[]);
            let value = self.board.value().clone();
            if value.by_level > best.by_level {
                (best, places) = (value, self.board.places());
            } else {
                self.take_back(&undo);
            }
        }
        let mut current = self.board.value().clone();
        let mut improved_at = self.board.checks;
        let end = self.board.checks + budget;
        while self.board.checks < end && !self.is_done(&best) {
            if self.board.checks - improved_at > budget / PATIENCE || is_over() {
                break;
            }
            let Some((seed, emptied)) = self.choose(&current) else {
                break;
            };
            let undo = self.refill(seed, &emptied);
            let value = self.board.value().clone();
            if !is_acceptable(&value, &current) {
                self.take_back(&undo);
                continue;
            }
            if value > best && self.is_fair(&value, &start_value, &start) {
                (best, places) = (value.clone(), self.board.places());
                improved_at = self.board.checks;
            }
            current = value;
        }
        self.board.arrange(&places);
        self.respect_arrival(&start_value);
        self.return_home(&start);
    }

    /// No pod has to wait for a later one only because that one wastes less.
    fn is_fair(&self, value: &Value, start_value: &Value, start: &[Option<usize>]) -> bool {
        let same_pods = || (0..start.len()).all(|pod| start[pod].is_some() == self.board.place(pod).is_some());
        value.by_level > start_value.by_level || same_pods()
    }

    /// Whether nothing can be better.
    fn is_done(&self, value: &Value) -> bool {
        let all_placed = value.placed() == self.board.sketch.pods.len();
        let wastes_least = value.new_volumes == 0 && self.least_waste.is_some_and(|least| value.waste <= least);
        let has_no_claims = || self.board.sketch.pods.iter().all(|pod| pod.claims.is_empty());
        self.bound.is_reached(&value.by_level) && (all_placed && wastes_least || has_no_claims())
    }

    /// A pod that should get a place, or a better one, and the nodes to empty for it.
    fn choose(&mut self, current: &Value) -> Option<(usize, Vec<usize>)> {
        let pods = &self.board.sketch.pods;
        let mut left_out: Vec<usize> = Vec::new();
        if !self.bound.is_reached(&current.by_level) {
            let is_left_out = |pod: &usize| self.board.place(*pod).is_none() && !pods[*pod].options.is_empty();
            left_out = (0..pods.len()).filter(is_left_out).collect();
        }
        let mut emptied: Vec<usize> = Vec::new();
        let mut seed = None;
        if left_out.is_empty() || self.chance.below(3) == 0 {
            let wasteful: Vec<usize> = (0..self.board.sketch.nodes.len())
                .filter(|node| self.board.waste_on(*node) > 0)
                .collect();
            if let Some(node) = self.chance.one_of(&wasteful) {
                emptied.push(node);
                seed = self.chance.one_of(self.board.pods_on(node));
            }
        }
        let seed = seed.or_else(|| self.chance.one_of(&left_out))?;
        emptied.extend(self.chance.one_of(&pods[seed].options));
        // The displaced pods need somewhere to go.
        for _ in 0..self.chance.below(3) {
            let from = self.chance.one_of(&emptied)?;
            if let Some(other) = self.chance.one_of(self.board.pods_on(from)) {
                emptied.extend(self.chance.one_of(&pods[other].options));
            }
        }
        emptied.sort_unstable();
        emptied.dedup();
        Some((seed, emptied))
    }

    /// Empties nodes and places their pods again, and some that were left out. Returns the previous state.
    fn refill(&mut self, seed: usize, emptied: &[usize]) -> Vec<(usize, Option<usize>)> {
        let pods = &self.board.sketch.pods;
        let is_left_out = |pod: &usize| self.board.place(*pod).is_none() && !pods[*pod].options.is_empty();
        let mut again: Vec<usize> = (0..pods.len()).filter(is_left_out).collect();
        while again.len() > MOST_LEFT_OUT {
            again.swap_remove(self.chance.below(again.len()));
        }
        again.extend(emptied.iter().flat_map(|node| self.board.pods_on(*node)));
        if !again.contains(&seed) {
            again.push(seed);
        }
        let order = match self.chance.below(6) {
            0 => Order::HeavyFirst { seed: Some(seed) },
            1 => Order::HeavyFirst { seed: None },
            2 => Order::LightFirst { seed: Some(seed) },
            3 => Order::LightFirst { seed: None },
            _ => Order::Any { seed },
        };
        self.place_again(again, order, emptied)
    }

    /// Removes pods from their nodes and places them again. Returns the previous state.
    fn place_again(&mut self, mut pods: Vec<usize>, order: Order, emptied: &[usize]) -> Vec<(usize, Option<usize>)> {
        let undo = pods.iter().map(|pod| (*pod, self.board.lift(*pod))).collect();
        self.sort(&mut pods, order);
        for pod in pods {
            if let Some(node) = self.best_node(pod, emptied) {
                self.board.put(pod, node);
            }
        }
        undo
    }

    /// Sorts pods by priority, and then by an order.
    fn sort(&mut self, pods: &mut [usize], order: Order) {
        let mut key = |pod: usize| {
            let weight = self.weights[pod] * (0.7 + 0.6 * self.chance.share());
            let (seed, rank) = match order {
                Order::HeavyFirst { seed } => (seed, -weight),
                Order::LightFirst { seed } => (seed, weight),
                Order::Any { seed } => (Some(seed), self.chance.share()),
            };
            (self.board.level(pod), seed != Some(pod), rank)
        };
        let mut keys: Vec<_> = pods.iter().map(|pod| (key(*pod), *pod)).collect();
        keys.sort_by(|((a_level, a_later, a), _), ((b_level, b_later, b), _)| {
            (a_level, a_later).cmp(&(b_level, b_later)).then(a.total_cmp(b))
        });
        for (place, (_, pod)) in pods.iter_mut().zip(keys) {
            *place = pod;
        }
    }

    /// The node where the pod needs the fewest new volumes, then the one with the least waste, then the fullest.
    fn best_node(&mut self, pod: usize, emptied: &[usize]) -> Option<usize> {
        let options = &self.board.sketch.pods[pod].options;
        let takes_any = self.chance.below(12) == 0;
        let (step, first) = match options.len() > OTHERS_CHECKED {
            true => (options.len().div_ceil(OTHERS_CHECKED), self.chance.below(options.len())),
            false => (1, self.chance.below(options.len().max(1))),
        };
        let others = (0..options.len())
            .step_by(step)
            .map(|place| options[(place + first) % options.len()]);
        let near = emptied
            .iter()
            .copied()
            .filter(|node| step > 1 && options.contains(node));
        let mut best: Option<(usize, (usize, i64), f64)> = None;
        for node in near.chain(others) {
            let Some(stored) = self.board.check(pod, node) else {
                continue;
            };
            if takes_any {
                return Some(node);
            }
            let cost = (stored.new_volumes, stored.waste);
            let room = self.board.room(node);
            let is_better = best.as_ref().is_none_or(|(_, known, known_room)| {
                cost.cmp(known).then(room.total_cmp(known_room)) == Ordering::Less
            });
            if is_better {
                best = Some((node, cost, room));
            }
        }
        best.map(|(node, ..)| node)
    }

    fn take_back(&mut self, undo: &[(usize, Option<usize>)]) {
        for (pod, _) in undo {
            self.board.lift(*pod);
        }
        for (pod, node) in undo {
            if let Some(node) = node {
                self.board.put(*pod, *node);
            }
        }
    }

    /// Where it makes no difference which of two pods of one priority is left out, the one that came later is.
    fn respect_arrival(&mut self, start: &Value) {
        if self.board.value().by_level <= start.by_level {
            return;
        }
        for pod in 0..self.board.sketch.pods.len() {
            if self.board.place(pod).is_some() {
                continue;
            }
            for node in self.board.sketch.pods[pod].options.clone() {
                let later = |other: &usize| *other > pod && self.board.level(*other) == self.board.level(pod);
                let later: Vec<usize> = self.board.pods_on(node).iter().copied().filter(later).collect();
                if later.into_iter().any(|other| self.takes_over(pod, other, node)) {
                    break;
                }
            }
        }
    }

    /// Gives a pod the place of another, unless that is worse.
    fn takes_over(&mut self, pod: usize, other: usize, node: usize) -> bool {
        let before = self.board.value().clone();
        self.board.lift(other);
        if self.board.check(pod, node).is_some() {
            self.board.put(pod, node);
            if *self.board.value() >= before {
                return true;
            }
            self.board.lift(pod);
        }
        self.board.put(other, node);
        false
    }

    /// Moves pods back to the nodes with their best scores, unless that is worse.
    fn return_home(&mut self, start: &[Option<usize>]) {
        for (pod, home) in start.iter().enumerate() {
            let (Some(home), Some(node)) = (home, self.board.place(pod)) else {
                continue;
            };
            if *home == node {
                continue;
            }
            let before = self.board.value().clone();
            self.board.lift(pod);
            if self.board.check(pod, *home).is_some() {
                self.board.put(pod, *home);
                if *self.board.value() >= before {
                    continue;
                }
                self.board.lift(pod);
            }
            self.board.put(pod, node);
        }
    }
}

/// Whether the search continues from an assignment: no fewer pods of any priority, no more new volumes, and hardly more
/// waste, so that it leaves its starting point.
fn is_acceptable(value: &Value, current: &Value) -> bool {
    let is_alike = value.by_level == current.by_level && value.new_volumes == current.new_volumes;
    value >= current || is_alike && value.waste <= current.waste / 50 * 51
}
