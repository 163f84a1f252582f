//! TaintToleration: taints that repel a pod, and taints that lower a node's score.

use super::Outlook;
use crate::cluster::{Cluster, TaintList};
use crate::framework::{MAX_NODE_SCORE, PluginName, PreFilter, Refusal};
use crate::pod::{Effect, Pod, Taint};
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;

/// Which lists of taints the pod does not tolerate, by number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    refused_lists: Vec<bool>,
}

/// Checks the tolerations against each distinct list of taints.
#[must_use]
pub fn pre_filter(cluster: &Cluster, pod: &Pod, profile: &Profile) -> PreFilter<State> {
    let lists = cluster.taints().lists().iter();
    let refused_lists: Vec<_> = lists.map(|list| !tolerates_all(cluster, pod, profile, list)).collect();
    if !refused_lists.contains(&true) {
        return PreFilter::Skip;
    }
    PreFilter::ready(State { refused_lists })
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let refused = self.refused_lists[cluster.taints().list_of(node)];
        refused.then(|| Refusal::unresolvable(PluginName::TaintToleration, Reason::UntoleratedTaint))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        let lists = cluster.taints().lists().iter().zip(&self.refused_lists);
        for (list, _) in lists.filter(|(_, refused)| **refused) {
            mask.remove_all(&list.nodes);
        }
    }
}

fn tolerates(cluster: &Cluster, pod: &Pod, profile: &Profile, taint: &Taint) -> bool {
    let compare_numbers = profile.gates.taint_toleration_comparison_operators;
    pod.tolerations
        .iter()
        .any(|toleration| toleration.tolerates(cluster.symbols(), taint, compare_numbers))
}

/// Whether a pod tolerates every hard taint of a list.
#[must_use]
pub fn tolerates_all(cluster: &Cluster, pod: &Pod, profile: &Profile, list: &TaintList) -> bool {
    let mut hard = list.taints.iter().filter(|taint| taint.effect.is_hard());
    hard.all(|taint| tolerates(cluster, pod, profile, taint))
}

/// Number of untolerated soft taints of each list.
fn soft_counts<'a>(cluster: &'a Cluster, pod: &'a Pod, profile: &'a Profile) -> impl Iterator<Item = i64> + 'a {
    let soft = |taint: &&Taint| taint.effect == Effect::PreferNoSchedule;
    cluster.taints().lists().iter().map(move |list| {
        let soft = list.taints.iter().filter(soft);
        soft.filter(|taint| !tolerates(cluster, pod, profile, taint)).count() as i64
    })
}

/// Without any soft taints, all nodes have the best score.
#[must_use]
pub fn outlook(cluster: &Cluster, pod: &Pod, profile: &Profile) -> Outlook {
    if soft_counts(cluster, pod, profile).all(|count| count == 0) {
        Outlook::Same(MAX_NODE_SCORE)
    } else {
        Outlook::Each
    }
}

/// Scores nodes by how few untolerated soft taints they have.
pub fn score(cluster: &Cluster, pod: &Pod, profile: &Profile, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let counts: Vec<i64> = soft_counts(cluster, pod, profile).collect();
    let of_node = |node: &NodeId| cluster.taints().list_of(*node);
    let worst = if counts.iter().all(|count| *count == 0) {
        0
    } else {
        nodes.iter().map(|node| counts[of_node(node)]).max().unwrap_or(0)
    };
    if worst == 0 {
        out.resize(nodes.len(), MAX_NODE_SCORE);
        return true;
    }
    let scores: Vec<i64> = counts
        .iter()
        .map(|count| MAX_NODE_SCORE - MAX_NODE_SCORE * count / worst)
        .collect();
    out.extend(nodes.iter().map(|node| scores[of_node(node)]));
    true
}
