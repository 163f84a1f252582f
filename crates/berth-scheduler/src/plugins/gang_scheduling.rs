//! GangScheduling: pods that are to be placed together with others, or not at all.
//!
//! Pods are placed one by one here. A part of a group that runs alone holds room that others need, so such a pod is
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
    if pod.is_in_gang {
        PreFilter::Refused(Refusal::unresolvable(PluginName::GangScheduling, Reason::Gang))
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
