//! The joint look: which of the waiting pods could be placed together, and where.
//!
//! Pods are decided one by one, each taking its best place, so one can take the only place that is left for another. When several wait, they are
//! first tried in memory. If all of them fit, nothing changes. If not, the look searches for an assignment that places more: highest priorities
//! first, then with the least capacity of existing volumes beyond what claims request. Only the same filters as in decisions determine whether a pod
//! fits: a pod is added to its node in the cluster, the next one is filtered, and at the end everything is reverted.
//!
//! ```text
//!   one by one ──all fit──▶ nothing to plan
//!       │ some do not
//!       ▼
//!   upper bound ──reached──▶ optimal
//!       │ not reached               (bound)
//!       ▼
//!   empty a few nodes, fill them again, keep what is no worse ──budget is over──▶ best found
//!                                   (improve)                                        │
//!                                                     in the order of the queue ◀────┘
//!                                                     (replay): better? a plan
//! ```
//!
//! There is no clock here: a look may try a limited number of pods, and then returns the best result.

mod bound;
mod improve;
mod trial;

use crate::cluster::Cluster;
use crate::decide::Scratch;
use crate::framework::PluginName;
use crate::nominated::Nominated;
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::nodes::NodeId;
use trial::Trial;

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
    /// Number of pods tried.
    pub(crate) tries: usize,
    /// In the order of decisions: which pod, and its node. `None` if one by one is as good.
    pub(crate) plan: Option<Vec<(usize, Option<NodeId>)>>,
}

/// Considers waiting pods, in the order of their turns. The cluster is unchanged afterwards.
pub(crate) fn look(
    cluster: &mut Cluster,
    scratch: &mut Scratch,
    candidates: &[Candidate<'_>],
    tries_per_pod: usize,
) -> Found {
    let bookmark = scratch.bookmark();
    let promises = cluster.binder_mut().bookmark_promises();
    let mut trial = Trial::new(cluster, scratch, candidates);
    let nobody = vec![None; candidates.len()];
    trial.replay(&nobody);
    let (one_by_one, start) = (trial.value(), trial.nodes());
    let mut found = Found {
        one_by_one: one_by_one.placed(),
        placed: one_by_one.placed(),
        at_most: candidates.len(),
        tries: trial.tries,
        plan: None,
    };
    if found.placed > 0 && found.placed < candidates.len() {
        let budget = trial.tries + improve::budget(candidates.len(), tries_per_pod);
        let wishes = improve::improve(&mut trial, budget, &mut found.at_most);
        trial.scratch.return_to(bookmark.clone());
        let order = trial.replay(&wishes);
        let (together, nodes) = (trial.value(), trial.nodes());
        if together.is_better(&nodes, &one_by_one, &start) {
            found.placed = together.placed();
            found.plan = Some(order.into_iter().map(|index| (index, nodes[index])).collect());
        }
        found.tries = trial.tries;
    }
    trial.lift_all();
    cluster.binder_mut().return_to_promises(promises);
    scratch.return_to(bookmark);
    found
}
