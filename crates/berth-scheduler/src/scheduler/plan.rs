//! The result of a joint look at waiting pods, until it is their turn.
//!
//! A plan is a preference, not a fact: each pod is decided as usual, on its planned node if that fits. Pods that the look left out have
//! their turn after those of their priority that it placed: by then it is visible why they have to wait.

use super::preempting::{Nominations, nominated};
use super::refusals::Refusals;
use super::{PendingPod, Scheduler};
use crate::cluster::Cluster;
use crate::nominated::Nominated;
use crate::queue::PodKey;
use crate::together::{self, Candidate};
use berth_core::nodes::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of pods considered together. Each is tried once, which is sufficient if they fit; but they are all
/// tried within one step.
const MOST_PODS: usize = 1000;

/// The result of the last joint look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// Number of pods considered.
    pub pods: usize,
    /// How many of them are placed one by one.
    pub one_by_one: usize,
    /// How many are placed together.
    pub placed: usize,
    /// An upper bound for any assignment.
    pub at_most: usize,
    /// Number of placements tried.
    pub tries: usize,
}

impl Look {
    /// Whether no assignment places more pods.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.placed == self.at_most
    }
}

/// The pods of the last look that had no turn since.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pods: FxHashSet<PodKey>,
    /// The order of their turns, with the names of their nodes. Empty if the order of the queue is used.
    order: VecDeque<(PodKey, Option<Box<str>>)>,
    /// Turns since the look.
    turns: usize,
    last: Look,
}

impl Plan {
    /// Whether another look is worthwhile. Each one tries all waiting pods once, so there must be enough turns between
    /// two of them.
    fn is_over(&self, next: &PodKey) -> bool {
        !self.pods.contains(next) && self.turns * 2 >= self.last.pods
    }

    /// The plan can no longer be carried out: the cluster has changed.
    pub(super) fn fails(&mut self) {
        self.pods.clear();
        self.order.clear();
    }
}

impl Scheduler {
    /// The result of the last joint look, if there was one.
    #[must_use]
    pub fn last_look(&self) -> Option<Look> {
        (self.plan.last.pods > 0).then_some(self.plan.last)
    }

    /// Takes the next pod into its cycle, with its planned node.
    pub(super) fn next_pod(&mut self, now: Duration) -> Option<(PodKey, Option<NodeId>)> {
        self.queue.flush(now);
        let first = PodKey::clone(self.queue.ready().next()?);
        if self.together.tries_per_pod > 0 && self.plan.is_over(&first) {
            self.look(now);
        }
        self.plan.turns += 1;
        if self.plan.pods.contains(&first) {
            while let Some((key, node)) = self.plan.order.pop_front() {
                if self.plan.pods.remove(&key) && self.queue.take(&key) {
                    let node = node.and_then(|node| self.cluster.binder().node(&node));
                    return Some((key, node));
                }
            }
        }
        self.plan.pods.remove(&first);
        self.queue.take(&first).then_some((first, None))
    }

    /// Considers the waiting pods together.
    fn look(&mut self, now: Duration) {
        let keys: Vec<PodKey> = self.queue.ready().take(MOST_PODS).cloned().collect();
        if keys.len() < 2 {
            self.plan = Plan::default();
            return;
        }
        let Self {
            cluster,
            scratch,
            pods,
            profiles,
            nominations,
            refusals,
            together,
            ..
        } = self;
        let known = |key: &PodKey| {
            let pod = pods.get(key)?;
            Some(Candidate {
                pod: &pod.compiled,
                profile: profiles.get(pod.scheduler_name())?,
                nominated: promises(nominations, refusals, pods, cluster, (key, pod), now),
            })
        };
        let (keys, candidates): (Vec<PodKey>, Vec<_>) = keys
            .into_iter()
            .filter_map(|key| known(&key).map(|candidate| (key, candidate)))
            .unzip();
        let found = together::look(cluster, scratch, &candidates, together.tries_per_pod);
        let order = found.plan.into_iter().flatten().map(|(index, node)| {
            let name = node.map(|node| cluster.symbols().text(cluster.nodes().name(node)).into());
            (PodKey::clone(&keys[index]), name)
        });
        self.plan = Plan {
            order: order.collect(),
            turns: 0,
            last: Look {
                pods: keys.len(),
                one_by_one: found.one_by_one,
                placed: found.placed,
                at_most: found.at_most,
                tries: found.tries,
            },
            pods: keys.into_iter().collect(),
        };
    }
}

/// The nominations that matter to a pod, and the nodes that rejected similar pods.
pub(super) fn promises<'a>(
    nominations: &Nominations,
    refusals: &Refusals,
    pods: &'a FxHashMap<PodKey, PendingPod>,
    cluster: &Cluster,
    (key, pod): (&PodKey, &PendingPod),
    now: Duration,
) -> Nominated<'a> {
    let mut nominated = nominated(nominations, pods, cluster, key);
    let refused = refusals.nodes(&pod.object, now);
    nominated.avoided = refused.filter_map(|node| cluster.binder().node(node)).collect();
    nominated
}
