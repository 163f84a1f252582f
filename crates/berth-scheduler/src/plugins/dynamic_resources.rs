//! DynamicResources: pods whose devices would have to be allocated.
//!
//! Nothing here allocates devices. To place such a pod as if it needed none would start it without them, so it is
//! refused in words that say who can place it.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;

/// There is none: a pod is refused on all nodes, or on none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {}

/// Refuses the pods that nothing here can place; skips all others.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    if pod.has_resource_claims {
        PreFilter::Refused(Refusal::unresolvable(
            PluginName::DynamicResources,
            Reason::ResourceClaims,
        ))
    } else {
        PreFilter::Skip
    }
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, _: &Cluster, _: NodeId) -> Option<Refusal> {
        match *self {}
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, _: &Cluster, _: &mut NodeMask) {
        match *self {}
    }
}
