//! The joint look: which of the waiting pods could be placed together, and where.
//!
//! Pods are decided one by one, each taking its best place, so one can take the only place that is left for another. When several wait, they are
//! first tried in memory. If all of them fit without taking more capacity than they must, nothing changes. If not, the look searches for an
//! assignment that places more: highest priorities first, then with the least capacity of existing volumes beyond what claims request, then each
//! where it scores best. Only the same filters as in decisions determine whether a pod fits: what was found is decided pod by pod in memory, and at
//! the end everything is reverted.
//!
//! ```text
//!   one by one ──all fit, no capacity to save──▶ nothing to plan
//!       │
//!       ▼
//!   upper bound (bound)
//!       │
//!       ▼
//!   on a sketch of the cluster (sketch, board): empty a few nodes, fill them again, keep what is no worse (shuffle)
//!       │
//!       ▼
//!   in the order of the queue, with all filters (replay) ──as good as in the sketch──▶ a plan
//!       │ some filter knows more than the sketch                                         ▲
//!       ▼                                                                                │
//!   empty a few nodes, fill them again, with all filters (improve) ──budget is over──────┘
//! ```
//!
//! A look may try a limited number of placements, and then returns the best result. There is no clock here: the caller can end a look early.

mod board;
mod bound;
mod improve;
mod shuffle;
mod sketch;
mod trial;
mod victims;

use crate::cluster::Cluster;
use crate::decide::{Bookmark, Scratch};
use crate::framework::PluginName;
use crate::nominated::Nominated;
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::nodes::NodeId;
use improve::Improvement;
use rustc_hash::FxHashMap;
use trial::{Trial, Value};

/// A waiting pod.
#[derive(Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) profile: &'a Profile,
    pub(crate) nominated: Nominated<'a>,
}

impl Candidate<'_> {
    fn priority(&self) -> i32 {
        self.pod.footprint.priority
    }

    fn is_filtered_by(&self, plugin: PluginName) -> bool {
        self.profile.filters.contains(&plugin)
    }
}

/// The result of a joint look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// How many pods are placed one by one.
    pub(crate) one_by_one: usize,
    /// How many are placed together.
    pub(crate) placed: usize,
    /// No assignment places more.
    pub(crate) at_most: usize,
    /// Whether no assignment is better, highest priorities first.
    pub(crate) is_optimal: bool,
    /// Number of pods tried.
    pub(crate) tries: usize,
    /// In the order of decisions: which pod, and its node. `None` if one by one is as good.
    pub(crate) plan: Option<Vec<(usize, Option<NodeId>)>>,
    /// The pods without a node that would have one if they waited alone.
    pub(crate) gave_way: Vec<LeftOut>,
}

/// A pod without a node that would have one if it waited alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) pod: usize,
    /// Some of the pods that use its places.
    pub(crate) to: Vec<usize>,
    /// Whether it has a node if the pods are decided one by one.
    pub(crate) is_placed_one_by_one: bool,
}

/// Maximum number of pods listed for a pod that gave way.
const MAX_NAMED: usize = 8;

/// Considers waiting pods, in the order of their turns. The cluster is unchanged afterwards.
pub(crate) fn look(
    cluster: &mut Cluster,
    scratch: &mut Scratch,
    candidates: &[Candidate<'_>],
    tries_per_pod: usize,
    is_over: &mut dyn FnMut() -> bool,
) -> Found {
    let bookmark = scratch.bookmark();
    let promises = cluster.binder_mut().bookmark_promises();
    let least_important = cluster.pods().lowest_priority();
    let mut trial = Trial::new(cluster, scratch, candidates);
    trial.replay(&vec![None; candidates.len()]);
    let one_by_one = Assignment::of(&trial, None);
    let placed = one_by_one.value.placed();
    let mut found = Found {
        one_by_one: placed,
        placed,
        // If none of them fits while none of the others is there, none fits at all.
        at_most: if placed == 0 { 0 } else { candidates.len() },
        is_optimal: placed == 0 || placed == candidates.len(),
        tries: trial.tries,
        plan: None,
        gave_way: Vec::new(),
    };
    let is_small = improve::is_small(candidates.len(), trial.cluster.all_nodes().len());
    let may_save = one_by_one.value.waste > 0 && is_small;
    if placed > 0 && (placed < candidates.len() || may_save) {
        let mut improvement = Improvement::new(&mut trial, &bookmark, tries_per_pod);
        let wishes = improvement.search(is_over);
        let Improvement { options, bound, .. } = improvement;
        let without_look = one_by_one.nodes.clone();
        let mut best = one_by_one;
        if let Some(wishes) = wishes {
            let together = Assignment::with_wishes(&mut trial, &bookmark, &wishes);
            if together.value.is_better(&together.nodes, &best.value, &best.nodes) {
                best = together;
            }
        }
        if victims::may_evict(candidates, &best.nodes, least_important) {
            Assignment::with_wishes(&mut trial, &bookmark, &best.nodes);
            if let Some(wishes) = victims::spare_victims(&mut trial, &options) {
                let sparing = Assignment::with_wishes(&mut trial, &bookmark, &wishes);
                if sparing.value.by_level >= best.value.by_level {
                    best = sparing;
                }
            }
        }
        found.placed = best.value.placed();
        found.at_most = bound.at_most(&best.value.by_level);
        found.is_optimal = bound.is_reached(&best.value.by_level);
        found.tries = trial.tries;
        found.gave_way = gave_way(&best.nodes, &options, &without_look);
        found.plan = best.plan();
    }
    trial.lift_all();
    cluster.binder_mut().return_to_promises(promises);
    scratch.return_to(bookmark);
    found
}

/// Which pod has which node after all of them were decided.
struct Assignment {
    value: Value,
    nodes: Vec<Option<NodeId>>,
    /// The order of decisions, if it is not that of the queue.
    order: Option<Vec<usize>>,
}

impl Assignment {
    fn of(trial: &Trial<'_>, order: Option<Vec<usize>>) -> Self {
        Self {
            value: trial.value(),
            nodes: trial.nodes(),
            order,
        }
    }

    /// Decides about all pods with these preferences, beginning with the randomness of a bookmark.
    fn with_wishes(trial: &mut Trial<'_>, bookmark: &Bookmark, wishes: &[Option<NodeId>]) -> Self {
        trial.scratch.return_to(bookmark.clone());
        let order = trial.replay(wishes);
        Self::of(trial, Some(order))
    }

    /// In the order of decisions: which pod, and its node.
    fn plan(self) -> Option<Vec<(usize, Option<NodeId>)>> {
        let order = self.order?.into_iter();
        Some(order.map(|pod| (pod, self.nodes[pod])).collect())
    }
}

/// The pods without a node, each with the pods on nodes that would fit it.
fn gave_way(nodes: &[Option<NodeId>], options: &[Vec<NodeId>], one_by_one: &[Option<NodeId>]) -> Vec<LeftOut> {
    let mut on_node: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
    for (pod, node) in nodes.iter().enumerate() {
        if let Some(node) = node {
            on_node.entry(*node).or_default().push(pod);
        }
    }
    let left_out = (0..nodes.len()).filter(|pod| nodes[*pod].is_none());
    let left_out = left_out.map(|pod| {
        let users = options[pod].iter().filter_map(|node| on_node.get(node)).flatten();
        LeftOut {
            pod,
            to: users.copied().take(MAX_NAMED).collect(),
            is_placed_one_by_one: one_by_one[pod].is_some(),
        }
    });
    left_out.filter(|left| !left.to.is_empty()).collect()
}
