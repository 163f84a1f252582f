//! Searches for the cheapest nodes to add.
//!
//! First, a sufficient set of nodes: the lower bounds, then repeatedly the node that helps most, then without superfluous ones. Then all cheaper
//! sets in order of cost: those below the lower bounds are skipped, the others are tried, up to a maximum. If all of them were tried, the cheapest
//! is known.

use crate::candidate::{Candidate, Cost};
use crate::item::{Item, nodes};
use crate::need::Needs;
use crate::oracle::Halt;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Number of candidates tried for the next node: those that meet most of the missing amount.
const TRIED_AT_ONCE: usize = 12;

/// Maximum number of cheaper sets tried. A person waits for seconds, and small clusters take some milliseconds per try.
const CHEAPER_TRIED: usize = 200;

/// Maximum number of cheaper sets considered, tried or not: as many as easily fit into memory.
const CHEAPER_SEEN: usize = 200_000;

/// How many consecutive nodes may change nothing: a pod may need two at once.
const PATIENCE: usize = 3;

/// Maximum number of nodes added.
const MOST: usize = 2_000;

/// Returns how many pods do not run with items added.
pub(crate) type Check<'c> = dyn FnMut(&[Item]) -> Result<usize, Halt> + 'c;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The number of each candidate; `None` if nothing was found.
    pub(crate) counts: Option<Vec<usize>>,
    /// The minimum cost of any sufficient set.
    pub(crate) at_least: Cost,
    /// Whether time ran out.
    pub(crate) time_up: bool,
}

/// A search among candidates.
pub(crate) struct Search<'a, 'c> {
    objects: &'a [Value],
    candidates: &'a [Candidate],
    needs: &'a Needs,
    /// This many pods may remain: nothing that can be added helps them.
    goal: usize,
    check: &'a mut Check<'c>,
    /// Maximum number of cheaper sets tried.
    tries: usize,
    /// Results of tried sets.
    known: BTreeMap<Vec<usize>, usize>,
}

impl<'a, 'c> Search<'a, 'c> {
    pub(crate) fn new(
        objects: &'a [Value],
        candidates: &'a [Candidate],
        needs: &'a Needs,
        goal: usize,
        check: &'a mut Check<'c>,
    ) -> Self {
        Self {
            objects,
            candidates,
            needs,
            goal,
            check,
            tries: CHEAPER_TRIED,
            known: BTreeMap::new(),
        }
    }

    /// Sets the maximum number of cheaper sets tried.
    pub(crate) fn with_tries(mut self, tries: usize) -> Self {
        self.tries = tries;
        self
    }

    /// The cheapest set found, if it costs less than a known sufficient one.
    pub(crate) fn run(&mut self, below: Option<Cost>) -> Result<Found, Halt> {
        let (at_least, _) = self.needs.least_cost(self.candidates);
        let mut found = Found {
            at_least,
            ..Found::default()
        };
        match self.improve(&mut found, below) {
            Err(Halt::TimeUp) => found.time_up = true,
            result => result?,
        }
        Ok(found)
    }

    /// Helps as many pods as possible within the limits of each kind.
    pub(crate) fn run_within_limits(&mut self, unrun: usize) -> Result<Found, Halt> {
        let mut counts = vec![0; self.candidates.len()];
        for _ in 0..unrun.min(MOST) {
            for candidate in 0..counts.len() {
                counts[candidate] += usize::from(self.left(&counts, candidate) > 0);
            }
        }
        let mut found = Found::default();
        let reached = self.unrun(&counts)?;
        if reached < unrun {
            self.goal = reached;
            found.counts = Some(counts.clone());
            match self.shrink(counts, &mut found) {
                Err(Halt::TimeUp) => found.time_up = true,
                result => drop(result?),
            }
        }
        Ok(found)
    }

    /// Number of remaining pods.
    pub(crate) fn goal(&self) -> usize {
        self.goal
    }

    fn improve(&mut self, found: &mut Found, below: Option<Cost>) -> Result<(), Halt> {
        if below.is_none_or(|below| found.at_least < below)
            && let Some(counts) = self.grow()?
        {
            found.counts = Some(counts.clone());
            let counts = self.shrink(counts, found)?;
            if below.is_some_and(|below| self.cost(&counts) >= below) {
                found.counts = None;
            }
        }
        let limit = found.counts.as_ref().map(|counts| self.cost(counts)).or(below);
        if let Some(limit) = limit {
            self.cheaper(found, limit)?;
        }
        Ok(())
    }

    fn cost(&self, counts: &[usize]) -> Cost {
        let each = self.candidates.iter().zip(counts);
        each.map(|(candidate, count)| candidate.cost.times(*count)).sum()
    }

    fn unrun(&mut self, counts: &[usize]) -> Result<usize, Halt> {
        if let Some(known) = self.known.get(counts) {
            return Ok(*known);
        }
        let unrun = (self.check)(&nodes(self.objects, self.candidates, counts))?;
        self.known.insert(counts.to_vec(), unrun);
        Ok(unrun)
    }

    fn suffices(&mut self, counts: &[usize]) -> Result<bool, Halt> {
        Ok(self.unrun(counts)? <= self.goal)
    }

    /// How many more of a candidate there can be.
    fn left(&self, counts: &[usize], candidate: usize) -> usize {
        let Some(at_most) = self.candidates[candidate].at_most else {
            return MOST;
        };
        let kind = self.candidates[candidate].kind;
        let used = self
            .candidates
            .iter()
            .zip(counts)
            .filter(|(other, _)| other.kind == kind);
        at_most.saturating_sub(used.map(|(_, count)| *count).sum())
    }

    /// Number of nodes added in the zone of a candidate: for most workloads, the next one is best in the zone with the
    /// fewest.
    fn in_zone(&self, counts: &[usize], candidate: usize) -> usize {
        let zone = &self.candidates[candidate].zone;
        let same = self
            .candidates
            .iter()
            .zip(counts)
            .filter(|(other, _)| other.zone == *zone);
        same.map(|(_, count)| *count).sum()
    }

    /// A set that meets the lower bounds.
    fn cover(&self) -> Vec<usize> {
        let mut counts = vec![0; self.candidates.len()];
        while !self.needs.are_met(&counts) && counts.iter().sum::<usize>() < MOST {
            let open = (0..counts.len()).filter(|index| self.left(&counts, *index) > 0);
            let worth = |index: usize| self.needs.worth(&counts, index) / self.candidates[index].cost.0.max(1) as f64;
            let best = open
                .map(|index| (worth(index), index))
                .filter(|(worth, _)| *worth > 0.0)
                .max_by(|(first, a), (second, b)| {
                    let fewer = || self.in_zone(&counts, *b).cmp(&self.in_zone(&counts, *a));
                    first.total_cmp(second).then_with(fewer).then(b.cmp(a))
                });
            let Some((_, best)) = best else { break };
            counts[best] += 1;
        }
        counts
    }

    /// A sufficient set.
    fn grow(&mut self) -> Result<Option<Vec<usize>>, Halt> {
        let mut counts = self.cover();
        let mut unrun = self.unrun(&counts)?;
        let mut in_vain = 0;
        while unrun > self.goal && counts.iter().sum::<usize>() < MOST {
            // The more is missing, the larger the step: superfluous nodes are removed later.
            let step = 1 + (unrun - self.goal) / 16;
            let mut open: Vec<usize> = (0..counts.len())
                .filter(|index| self.left(&counts, *index) > 0)
                .collect();
            open.sort_by(|a, b| {
                let worth = |index: usize| self.needs.worth(&counts, index);
                let order = worth(*b).total_cmp(&worth(*a));
                let fewer = || self.in_zone(&counts, *a).cmp(&self.in_zone(&counts, *b));
                order
                    .then_with(fewer)
                    .then(self.candidates[*a].cost.cmp(&self.candidates[*b].cost))
            });
            open.truncate(TRIED_AT_ONCE);
            let mut best: Option<(usize, Cost, Vec<usize>)> = None;
            for candidate in open {
                let mut next = counts.clone();
                next[candidate] += step.min(self.left(&counts, candidate));
                let with = self.unrun(&next)?;
                let cost = self.cost(&next);
                if best
                    .as_ref()
                    .is_none_or(|(unrun, known, _)| (with, cost) < (*unrun, *known))
                {
                    best = Some((with, cost, next));
                }
            }
            let Some((with, _, next)) = best else {
                return Ok(None);
            };
            in_vain = if with < unrun { 0 } else { in_vain + 1 };
            if in_vain > PATIENCE {
                return Ok(None);
            }
            (counts, unrun) = (next, with);
        }
        Ok((unrun <= self.goal).then_some(counts))
    }

    /// The set without superfluous nodes, removing the most expensive first.
    fn shrink(&mut self, mut counts: Vec<usize>, found: &mut Found) -> Result<Vec<usize>, Halt> {
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|index| Reverse(self.candidates[*index].cost));
        for candidate in order {
            let mut part = counts[candidate];
            while part > 0 {
                let mut fewer = counts.clone();
                fewer[candidate] -= part.min(fewer[candidate]);
                if fewer != counts && self.suffices(&fewer)? {
                    counts = fewer;
                    found.counts = Some(counts.clone());
                    part = part.min(counts[candidate]);
                } else {
                    part /= 2;
                }
            }
        }
        Ok(counts)
    }

    /// Tries cheaper sets, cheapest first.
    fn cheaper(&mut self, found: &mut Found, limit: Cost) -> Result<(), Halt> {
        let least = found.at_least;
        let none = vec![0; self.candidates.len()];
        let mut queue = BinaryHeap::from([Reverse((Cost(0), 0_usize, none, 0_usize))]);
        let (mut seen, mut tried) = (0, 0);
        while let Some(Reverse((cost, _, counts, last))) = queue.pop() {
            found.at_least = found.at_least.max(cost);
            if cost >= limit {
                found.at_least = limit;
                return Ok(());
            }
            seen += 1;
            if seen > CHEAPER_SEEN || tried > self.tries {
                return Ok(());
            }
            if cost >= least && self.needs.are_met(&counts) {
                tried += usize::from(!self.known.contains_key(&counts));
                if self.suffices(&counts)? {
                    found.at_least = cost;
                    found.counts = Some(counts);
                    return Ok(());
                }
            }
            for next in last..counts.len() {
                let mut more = counts.clone();
                more[next] += 1;
                let cost = cost + self.candidates[next].cost;
                if self.left(&counts, next) > 0 && cost < limit {
                    queue.push(Reverse((cost, self.unevenness(&more), more, next)));
                }
            }
        }
        // Nothing cheaper is left to try.
        found.at_least = found.at_least.max(limit);
        Ok(())
    }

    /// How unevenly new nodes are spread over the zones.
    fn unevenness(&self, counts: &[usize]) -> usize {
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        for (candidate, count) in self.candidates.iter().zip(counts) {
            *zones.entry(&candidate.zone).or_default() += count;
        }
        let most = zones.values().max().copied().unwrap_or(0);
        most - zones.values().min().copied().unwrap_or(0)
    }
}
