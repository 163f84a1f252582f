//! NodeUnschedulable: only pods with a matching toleration run on cordoned nodes.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::{Effect, Pod, Taint};
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::names::TAINT_UNSCHEDULABLE;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;

/// The pod does not tolerate cordoned nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State;

/// Skips pods that tolerate cordoned nodes, and clusters without any.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod, profile: &Profile) -> PreFilter<State> {
    if cluster.unschedulable().is_empty() {
        return PreFilter::Skip;
    }
    let taint = Taint {
        key: cluster.binder_mut().symbols_mut().intern(TAINT_UNSCHEDULABLE),
        value: Symbol::EMPTY,
        effect: Effect::NoSchedule,
    };
    let compare_numbers = profile.gates.taint_toleration_comparison_operators;
    let mut tolerations = pod.tolerations.iter();
    if tolerations.any(|toleration| toleration.tolerates(cluster.symbols(), &taint, compare_numbers)) {
        return PreFilter::Skip;
    }
    PreFilter::ready(State)
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let cordoned = cluster.unschedulable().contains(node);
        cordoned.then(|| Refusal::unresolvable(PluginName::NodeUnschedulable, Reason::Unschedulable))
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        mask.remove_all(cluster.unschedulable());
    }
}
