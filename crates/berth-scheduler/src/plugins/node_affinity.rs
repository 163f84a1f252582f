//! NodeAffinity: the pod's node selector and its required and preferred node affinity.

use crate::cluster::Cluster;
use crate::framework::{MAX_NODE_SCORE, PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::{NodeId, SelectorId};
use smallvec::SmallVec;

/// Selectors that must all match the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    selectors: SmallVec<[SelectorId; 2]>,
}

/// Skips pods without node requirements; refuses those whose terms list mutually exclusive nodes.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    let selectors: SmallVec<_> = required(pod).collect();
    if selectors.is_empty() {
        return PreFilter::Skip;
    }
    if pod.only_nodes.as_ref().is_some_and(|nodes| nodes.is_empty()) {
        let reason = Reason::ConflictingAffinityTerms;
        return PreFilter::Refused(Refusal::unresolvable(PluginName::NodeAffinity, reason));
    }
    PreFilter::Ready {
        state: State { selectors },
        only_nodes: pod.only_nodes.clone(),
    }
}

/// The selectors that must all match a pod's node.
pub fn required(pod: &Pod) -> impl Iterator<Item = SelectorId> {
    pod.node_selector.into_iter().chain(pod.node_affinity)
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let nodes = cluster.nodes();
        let mut selectors = self.selectors.iter();
        let selected = selectors.all(|selector| nodes.matching(*selector).contains(node.0));
        (!selected).then(|| Refusal::unresolvable(PluginName::NodeAffinity, Reason::NodeAffinity))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        for selector in &self.selectors {
            let nodes = cluster.nodes();
            mask.intersect(&NodeMask::of(nodes, nodes.matching(*selector)));
        }
    }
}

/// Scores nodes by the weights of the preferred terms that select them.
pub fn score(cluster: &Cluster, pod: &Pod, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let Some(preferred) = &pod.preferred_nodes else {
        return false;
    };
    out.resize(nodes.len(), 0);
    for (weight, selector) in preferred {
        let selected = NodeMask::of(cluster.nodes(), cluster.nodes().matching(*selector));
        for (score, node) in out.iter_mut().zip(nodes) {
            if selected.contains(*node) {
                *score += weight;
            }
        }
    }
    let best = out.iter().copied().max().unwrap_or(0);
    if best != 0 {
        out.iter_mut().for_each(|score| *score = MAX_NODE_SCORE * *score / best);
    }
    true
}
