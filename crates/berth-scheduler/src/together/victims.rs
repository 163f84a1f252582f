//! Fewer evictions: of equally important pods, the one for which fewer running pods have to go is left out.
//!
//! A pod that a look leaves out may preempt less important pods when it has its turn. If another one that has not started yet can give its place to it, and
//! needs fewer victims itself, or none, they change places.

use super::Candidate;
use super::trial::Trial;
use crate::decide::{Decision, decide_beside};
use crate::nominated::Question;
use crate::preemption::{Preemption, best, preempt};
use berth_core::nodes::NodeId;

/// Maximum number of left-out pods for which this is tried, and of pods whose places each of them is tried on. An eviction is rare, and trying
/// it takes as long as many decisions.
const MOST_TRIED: usize = 8;

/// Whether some pod without a node is more important than the least important one that runs.
pub(super) fn may_evict(candidates: &[Candidate<'_>], nodes: &[Option<NodeId>], least_important: Option<i32>) -> bool {
    let mut left_out = candidates.iter().zip(nodes).filter(|(_, node)| node.is_none());
    left_out.any(|(candidate, _)| least_important.is_some_and(|least| least < candidate.priority()))
}

/// The preferred nodes with which the left-out pods of the highest priority evict fewer pods. `None` if nothing is to be gained. All pods that are placed must be
/// on their nodes.
pub(super) fn spare_victims(trial: &mut Trial<'_>, options: &[Vec<NodeId>]) -> Option<Vec<Option<NodeId>>> {
    let lowest = trial.cluster.pods().lowest_priority()?;
    let can_evict = |trial: &Trial<'_>, pod: usize| {
        let candidate = &trial.candidates[pod];
        let preempts = candidate.profile.preempts && !candidate.pod.never_preempts;
        candidate.priority() > lowest && preempts && !options[pod].is_empty()
    };
    let left_out = |pod: &usize| trial.node(*pod).is_none() && can_evict(trial, *pod);
    let left_out: Vec<usize> = (0..options.len()).filter(left_out).take(MOST_TRIED).collect();
    let level = trial.level(*left_out.first()?);
    let mut wishes = trial.nodes();
    // Less important pods have their turns later.
    for pod in 0..options.len() {
        if trial.level(pod) > level {
            trial.lift(pod);
        }
    }
    let mut is_better = false;
    for pod in left_out
        .into_iter()
        .filter(|pod| trial.level(*pod) == level)
        .collect::<Vec<_>>()
    {
        let Some(own) = victims(trial, pod) else {
            continue;
        };
        let on_its_nodes = |other: &usize| {
            let node = trial.node(*other);
            trial.level(*other) == level && node.is_some_and(|node| options[pod].contains(&node))
        };
        let others: Vec<usize> = (0..options.len()).filter(on_its_nodes).take(MOST_TRIED).collect();
        if let Some((other, node)) = others
            .into_iter()
            .find_map(|other| change_places(trial, pod, other, own))
        {
            (wishes[pod], wishes[other]) = (Some(node), None);
            is_better = true;
        }
    }
    is_better.then_some(wishes)
}

/// Gives a pod the place of another, if that one needs fewer victims then. Returns both.
fn change_places(trial: &mut Trial<'_>, pod: usize, other: usize, own: usize) -> Option<(usize, NodeId)> {
    let place = trial.lift(other)?;
    let node = place.node;
    let option = trial.options(pod).into_iter().find(|option| option.node == node);
    if let Some(option) = option
        && trial.put(pod, option)
    {
        if victims(trial, other).is_some_and(|victims| victims < own) {
            return Some((other, node));
        }
        trial.lift(pod);
    }
    trial.put(other, place);
    None
}

/// How many pods would be evicted for a pod; `None` if it fits, or no eviction helps.
fn victims(trial: &mut Trial<'_>, pod: usize) -> Option<usize> {
    trial.tries += 1;
    let candidate = &trial.candidates[pod];
    let nominated = &candidate.nominated;
    let Decision::Refuse(diagnosis) = decide_beside(
        trial.cluster,
        candidate.pod,
        candidate.profile,
        trial.scratch,
        nominated,
    ) else {
        return None;
    };
    let question = Question {
        pod: candidate.pod,
        profile: candidate.profile,
        states: &trial.scratch.states,
        nominated,
    };
    match preempt(trial.cluster, &question, &diagnosis) {
        Preemption::Evict(candidates) => best(trial.cluster, candidates).map(|candidate| candidate.victims.len()),
        Preemption::NotTried(_) | Preemption::Helpless(..) => None,
    }
}
