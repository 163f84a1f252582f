//! Nodes and disks for existing nodes together.
//!
//! Nodes come with disks, which are expensive if only a disk is missing; and some pods need a node while others need a disk where they run. So disks
//! are offered in addition to the nodes that were found, and then instead of each of them.

use crate::add::Offers;
use crate::candidate::{Candidate, Cost};
use crate::disks;
use crate::item::{Added, Item, cost, nodes, with_items};
use crate::need::{Needs, useful};
use crate::oracle::{Halt, Oracle};
use crate::search::Search;
use serde_json::Value;
use std::cmp::Reverse;

/// Maximum number of kinds of nodes that are replaced, and of kinds that replace them.
const KINDS_TRIED: usize = 4;

/// Maximum number of sets of nodes that disks are added to: each takes some simulations.
const MOST_TRIED: usize = 40;

/// A cluster, and what can be added to it.
pub(crate) struct Mixed<'a> {
    pub(crate) objects: &'a [Value],
    pub(crate) offers: &'a Offers,
    /// More nodes than pods could need.
    pub(crate) plenty: &'a [Item],
}

impl Mixed<'_> {
    /// Disks in addition to nodes, with which fewer pods are left. Returns nodes and disks, and how many pods are left.
    ///
    /// # Errors
    /// If time ran out, or an object cannot be created.
    pub(crate) fn disks_too(
        &self,
        oracle: &mut Oracle<'_>,
        found: &[Item],
        left: usize,
    ) -> Result<Option<(Vec<Item>, usize)>, Halt> {
        let Some(goal) = left.checked_sub(1) else {
            return Ok(None);
        };
        let cluster = with_items(self.objects, found);
        let before = oracle.play(cluster.clone())?;
        let given = self.offers.disks.as_deref();
        let disks = disks::disks(oracle, &cluster, self.objects, &before, given, goal)?;
        Ok(disks.map(|(disks, left)| ([found, &disks].concat(), left)))
    }

    /// Nodes in addition to disks, with which fewer pods are left. Returns disks and nodes, and how many pods are left.
    ///
    /// # Errors
    /// If time ran out, or an object cannot be created.
    pub(crate) fn nodes_too(
        &self,
        oracle: &mut Oracle<'_>,
        found: &[Item],
        left: usize,
    ) -> Result<Option<(Vec<Item>, usize)>, Halt> {
        let cluster = with_items(self.objects, found);
        let with_plenty = oracle.play(with_items(&cluster, self.plenty))?;
        let goal = with_plenty.standing.unrun;
        if goal >= left {
            return Ok(None);
        }
        let candidates = useful(&cluster, &with_plenty, &self.offers.nodes);
        let needs = Needs::of(&cluster, &with_plenty, &candidates).of_candidates();
        let mut check = |items: &[Item]| Ok(oracle.play(with_items(&cluster, items))?.standing.unrun);
        let added = Search::new(&cluster, &candidates, &needs, goal, &mut check).run(None)?;
        let counts = added.counts;
        Ok(counts.map(|counts| ([found, &nodes(&cluster, &candidates, &counts)].concat(), goal)))
    }

    /// Disks for pods that need a node in addition to theirs, or that others leave room for if there are more nodes.
    ///
    /// # Errors
    /// If time ran out, or an object cannot be created.
    pub(crate) fn disks_beside_plenty(&self, oracle: &mut Oracle<'_>, goal: usize) -> Result<Option<Vec<Item>>, Halt> {
        let cluster = with_items(self.objects, self.plenty);
        let before = oracle.play(cluster.clone())?;
        let given = self.offers.disks.as_deref();
        let disks = disks::disks(oracle, &cluster, self.objects, &before, given, goal)?;
        Ok(disks.map(|(disks, _)| disks))
    }

    /// Disks instead of some of the nodes, or instead of the disks of some nodes, if that is cheaper and leaves no more pods.
    ///
    /// # Errors
    /// If time ran out before any were found, or an object cannot be created.
    pub(crate) fn fewer_nodes(
        &self,
        oracle: &mut Oracle<'_>,
        found: &[Item],
        goal: usize,
        below: Cost,
    ) -> Result<Option<Vec<Item>>, Halt> {
        let mut best: Option<Vec<Item>> = None;
        let mut limit = below;
        let mut counts = self.counts(found);
        let mut tries = 0;
        'again: loop {
            for fewer in self.cheaper(&counts) {
                tries += 1;
                if tries > MOST_TRIED {
                    return Ok(best);
                }
                let items = match self.instead(oracle, &fewer, goal) {
                    Err(Halt::TimeUp) if best.is_some() => return Ok(best),
                    items => items?,
                };
                if let Some(items) = items.filter(|items| cost(items) < limit) {
                    limit = cost(&items);
                    best = Some(items);
                    counts = fewer;
                    continue 'again;
                }
            }
            return Ok(best);
        }
    }

    /// The number of nodes of each candidate among items.
    fn counts(&self, items: &[Item]) -> Vec<usize> {
        let count = |candidate: &Candidate| {
            let is_one = |item: &&Item| match &item.added {
                Added::Node { like, zone, .. } => *like == candidate.like && *zone == candidate.zone,
                Added::Disk { .. } | Added::Capacity { .. } => false,
            };
            items.iter().filter(is_one).count()
        };
        self.offers.nodes.iter().map(count).collect()
    }

    /// Cheaper sets of nodes: without one of them, or with a cheaper one instead. The most expensive ones are replaced first.
    fn cheaper(&self, counts: &[usize]) -> Vec<Vec<usize>> {
        let candidates = &self.offers.nodes;
        let mut used: Vec<usize> = (0..counts.len()).filter(|index| counts[*index] > 0).collect();
        used.sort_by_key(|index| Reverse(candidates[*index].cost));
        used.truncate(KINDS_TRIED);
        let mut all = Vec::new();
        for index in used {
            let mut fewer = counts.to_vec();
            fewer[index] -= 1;
            let is_cheaper = |other: &usize| {
                let (now, instead) = (&candidates[index], &candidates[*other]);
                instead.zone == now.zone && instead.cost < now.cost && self.is_allowed(&fewer, *other)
            };
            let mut others: Vec<usize> = (0..counts.len()).filter(is_cheaper).collect();
            others.sort_by_key(|other| candidates[*other].cost);
            let replaced = others.into_iter().take(KINDS_TRIED).map(|other| {
                let mut replaced = fewer.clone();
                replaced[other] += 1;
                replaced
            });
            let replaced: Vec<_> = replaced.collect();
            all.push(fewer);
            all.extend(replaced);
        }
        all
    }

    /// Whether there can be one more of a candidate.
    fn is_allowed(&self, counts: &[usize], candidate: usize) -> bool {
        let candidates = &self.offers.nodes;
        let kind = candidates[candidate].kind;
        let same = candidates.iter().zip(counts).filter(|(other, _)| other.kind == kind);
        let there: usize = same.map(|(_, count)| *count).sum();
        candidates[candidate].at_most.is_none_or(|most| there < most)
    }

    /// Nodes, and the disks with which they are sufficient.
    fn instead(&self, oracle: &mut Oracle<'_>, counts: &[usize], goal: usize) -> Result<Option<Vec<Item>>, Halt> {
        let fewer = nodes(self.objects, &self.offers.nodes, counts);
        let cluster = with_items(self.objects, &fewer);
        let before = oracle.play(cluster.clone())?;
        if before.standing.unrun <= goal {
            return Ok(Some(fewer));
        }
        let given = self.offers.disks.as_deref();
        let disks = disks::disks(oracle, &cluster, self.objects, &before, given, goal)?;
        Ok(disks.map(|(disks, _)| [fewer, disks].concat()))
    }
}
