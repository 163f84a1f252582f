//! NodeName: a pod with a node name runs there or nowhere.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;

/// The pod's node name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    name: Symbol,
}

/// Skips pods without a node name.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    pod.node_name
        .map_or(PreFilter::Skip, |name| PreFilter::ready(State { name }))
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let other = cluster.nodes().name(node) != self.name;
        other.then(|| Refusal::unresolvable(PluginName::NodeName, Reason::OtherNodeName))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        let named = cluster.nodes().id(self.name).filter(|node| mask.contains(*node));
        mask.words_mut().fill(0);
        if let Some(node) = named {
            mask.insert(node);
        }
    }
}
