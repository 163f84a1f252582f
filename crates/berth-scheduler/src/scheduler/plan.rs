//! The result of a joint look at waiting pods, until it is their turn.
//!
//! A plan is a preference, not a fact: each pod is decided as usual, on its planned node if that fits. Pods that the look left out have
//! their turn after those of their priority that it placed: by then it is visible why they have to wait.

use super::preempting::{Nominations, nominated};
use super::refusals::Refusals;
use super::{PendingPod, Scheduler};
use crate::cluster::Cluster;
use crate::nominated::Nominated;
use crate::queue::{Place, PodKey};
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
    /// An upper bound for any assignment that is as good, highest priorities first.
    pub at_most: usize,
    /// Whether no assignment is better, highest priorities first.
    pub is_optimal: bool,
    /// Number of placements tried.
    pub tries: usize,
}

/// Why a pod waits although it would fit alone: others that wait with it use its places.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GaveWay {
    /// Some of the pods (`namespace/name`) on the nodes that would fit it.
    pub to: Vec<PodKey>,
    /// Whether it would have a node if the pods were decided one by one.
    pub is_placed_one_by_one: bool,
}

/// The pods of the last look that had no turn since.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pods: FxHashSet<PodKey>,
    /// The order of their turns, with the names of their nodes. Empty if the order of the queue is used.
    order: VecDeque<(PodKey, Option<Box<str>>)>,
    /// The pods that the look left out although they would fit alone.
    gave_way: FxHashMap<PodKey, GaveWay>,
    /// Turns since the look.
    turns: usize,
    last: Look,
    /// The look with the most pods so far.
    largest: Look,
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
        self.gave_way.clear();
    }
}

impl Scheduler {
    /// The result of the last joint look, if there was one.
    #[must_use]
    pub fn last_look(&self) -> Option<Look> {
        (self.plan.last.pods > 0).then_some(self.plan.last)
    }

    /// The joint look at the most pods so far, if there was one.
    #[must_use]
    pub fn largest_look(&self) -> Option<Look> {
        (self.plan.largest.pods > 0).then_some(self.plan.largest)
    }

    /// The pods that the last joint look placed where this pod would fit, which was left out. `None` if the pod was not part of the look, was
    /// placed, or would not fit alone either.
    #[must_use]
    pub fn gave_way(&self, key: &str) -> Option<&GaveWay> {
        let waits = self.queue.place(key).is_some_and(|place| place != Place::InCycle);
        self.plan.gave_way.get(key).filter(|_| waits)
    }

    /// Which pods a refused pod leaves its place to, as a sentence, if a joint look decided so. For a pod that would wait without the look as
    /// well, the refusals say enough.
    pub(super) fn says_who_goes_first(&self, key: &str) -> Option<String> {
        let gave_way = self.plan.gave_way.get(key)?;
        let exists = |pod: &&PodKey| {
            let is_placed = || {
                let (namespace, name) = pod.split_once('/')?;
                self.cluster.pods().find(self.cluster.symbols().get(namespace)?, name)
            };
            self.pods.contains_key(*pod) || is_placed().is_some()
        };
        let to: Vec<&str> = gave_way.to.iter().filter(exists).map(|pod| &**pod).collect();
        let is_told = gave_way.is_placed_one_by_one && !to.is_empty();
        is_told.then(|| format!("It gives way to pods that need its place: {}.", to.join(", ")))
    }

    /// Considers the waiting pods together, if several wait that were not considered yet. [`Self::step`] does so too, without a limit of time: a
    /// caller with a clock calls this first, and ends the look by returning `true` for the number of pods in it.
    pub fn look_together(&mut self, now: Duration, is_over: &mut dyn FnMut(usize) -> bool) -> Option<Look> {
        self.queue.flush(now);
        let first = PodKey::clone(self.queue.ready().next()?);
        // What extenders will say is unknown: their pods are in no plan.
        let is_on = self.together.tries_per_pod > 0;
        if !is_on || self.waits_for_advice(&first) || self.asks_about(&first) || !self.plan.is_over(&first) {
            return None;
        }
        self.look(now, is_over);
        self.last_look()
    }

    /// Takes the next pod into its cycle, with its planned node.
    pub(super) fn next_pod(&mut self, now: Duration) -> Option<(PodKey, Option<NodeId>)> {
        self.queue.flush(now);
        let first = PodKey::clone(self.queue.ready().next()?);
        if self.waits_for_advice(&first) {
            return None;
        }
        self.look_together(now, &mut |_| false);
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
    fn look(&mut self, now: Duration, is_over: &mut dyn FnMut(usize) -> bool) {
        let ready = self.queue.ready().take(MOST_PODS);
        let keys: Vec<PodKey> = ready.filter(|key| !self.asks_about(key)).cloned().collect();
        if keys.len() < 2 {
            self.plan = Plan {
                gave_way: std::mem::take(&mut self.plan.gave_way),
                largest: self.plan.largest,
                ..Plan::default()
            };
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
        let pods = keys.len();
        let is_over = &mut || is_over(pods);
        let found = together::look(cluster, scratch, &candidates, together.tries_per_pod, is_over);
        // A pod that gave way before waits for the same pods, even if they are no longer part of the look.
        let mut gave_way = std::mem::take(&mut self.plan.gave_way);
        gave_way.retain(|key, _| self.pods.contains_key(key));
        gave_way.extend(found.gave_way.into_iter().map(|left| {
            let to = left.to.into_iter().map(|other| PodKey::clone(&keys[other])).collect();
            let gave_way = GaveWay {
                to,
                is_placed_one_by_one: left.is_placed_one_by_one,
            };
            (PodKey::clone(&keys[left.pod]), gave_way)
        }));
        let order = found.plan.into_iter().flatten().map(|(index, node)| {
            let name = node.map(|node| cluster.symbols().text(cluster.nodes().name(node)).into());
            (PodKey::clone(&keys[index]), name)
        });
        let last = Look {
            pods: keys.len(),
            one_by_one: found.one_by_one,
            placed: found.placed,
            at_most: found.at_most,
            is_optimal: found.is_optimal,
            tries: found.tries,
        };
        let largest = self.plan.largest;
        self.plan = Plan {
            order: order.collect(),
            gave_way,
            turns: 0,
            last,
            largest: if last.pods > largest.pods { last } else { largest },
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
