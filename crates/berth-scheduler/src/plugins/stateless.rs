//! The state of plugins that refuse a pod on all nodes or on none: it never exists.

use crate::cluster::Cluster;
use crate::framework::Refusal;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;

/// No state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {}

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
