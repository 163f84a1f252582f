//! NodePorts: a host port can be used once per node.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::{ANY_ADDRESS, HostPort, Pod};
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;

/// The pod's host ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    ports: Box<[HostPort]>,
    any: Symbol,
}

/// Skips pods without host ports.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod) -> PreFilter<State> {
    if pod.footprint.ports.is_empty() {
        return PreFilter::Skip;
    }
    PreFilter::ready(State {
        ports: pod.footprint.ports.clone(),
        any: cluster.binder_mut().symbols_mut().intern(ANY_ADDRESS),
    })
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let mut ports = self.ports.iter();
        let taken = ports.any(|port| cluster.ports().conflicts(node, port, self.any));
        taken.then(|| Refusal::unschedulable(PluginName::NodePorts, Reason::PortsTaken))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        for port in &self.ports {
            for node in cluster.ports().conflicting(port, self.any) {
                mask.remove(node);
            }
        }
    }
}
