//! What can happen in the cluster, and which refusals it could change.
//!
//! A sleeping pod is woken only by an event that could change the answer of a plugin that refused it. Most
//! events concern one node: then the pod is woken only if that node would take it now.

use crate::framework::PluginName;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;

/// Something that happened in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterEvent {
    /// A pod was given a node, or its labels changed.
    PodPlaced,
    /// A pod on a node is gone or finished.
    PodGone {
        /// The node it was on, if that is still there.
        node: Option<NodeId>,
    },
    /// A node came.
    NodeAdded {
        /// The node.
        node: NodeId,
    },
    /// A node went: counts over all nodes may have changed.
    NodeGone,
    /// A node changed.
    NodeChanged {
        /// The node.
        node: NodeId,
        /// In what.
        facets: NodeFacets,
    },
    /// A claim came or changed.
    Claim {
        /// `namespace/name`
        claim: Box<str>,
    },
    /// A volume came or changed.
    Volume {
        /// Its name.
        name: Box<str>,
        /// Its class.
        class: Symbol,
    },
    /// A class came, or its topologies or its binding mode changed.
    Class {
        /// Its name.
        name: Symbol,
    },
    /// What drivers say about a node changed.
    CsiNode {
        /// The node.
        node: NodeId,
    },
    /// A driver came or changed.
    CsiDriver {
        /// Its name.
        name: Symbol,
    },
    /// There is more room for volumes of a class.
    CapacityRaised {
        /// The class.
        class: Symbol,
    },
    /// A volume is no longer attached to a node.
    AttachmentGone {
        /// The node.
        node: NodeId,
    },
    /// A namespace came or changed its labels.
    Namespace,
}

/// What changed about a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFacets {
    /// Its labels.
    pub labels: bool,
    /// Its taints, or whether it is cordoned.
    pub taints: bool,
    /// What pods may use of it.
    pub allocatable: bool,
}

/// Whether an event could change a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// No.
    No,
    /// If this node would take the pod now.
    OnNode(NodeId),
    /// If the pod uses what the event is about; see [`ClusterEvent`].
    IfUsed,
    /// It could, and there is no cheap way to tell.
    Perhaps,
}

impl ClusterEvent {
    /// Whether the event could change the answer of a plugin that refused a pod.
    #[must_use]
    pub fn help(&self, plugin: PluginName) -> Help {
        use PluginName as P;
        match self {
            Self::NodeAdded { node } => match plugin {
                P::PodTopologySpread | P::InterPodAffinity => Help::Perhaps,
                _ => Help::OnNode(*node),
            },
            Self::NodeGone => match plugin {
                P::PodTopologySpread => Help::Perhaps,
                _ => Help::No,
            },
            Self::NodeChanged { node, facets } => help_of_node_change(*node, *facets, plugin),
            Self::PodPlaced => match plugin {
                P::PodTopologySpread | P::InterPodAffinity => Help::Perhaps,
                _ => Help::No,
            },
            Self::PodGone { node } => match (plugin, node) {
                (P::PodTopologySpread | P::InterPodAffinity | P::VolumeRestrictions, _) => Help::Perhaps,
                (P::NodePorts | P::NodeResourcesFit | P::NodeVolumeLimits, Some(node)) => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::Claim { .. } | Self::Volume { .. } | Self::Class { .. } => match plugin {
                P::VolumeBinding | P::VolumeZone | P::VolumeRestrictions | P::NodeVolumeLimits => Help::IfUsed,
                _ => Help::No,
            },
            Self::CsiDriver { .. } | Self::CapacityRaised { .. } => match plugin {
                P::VolumeBinding => Help::IfUsed,
                P::NodeVolumeLimits if matches!(self, Self::CsiDriver { .. }) => Help::Perhaps,
                _ => Help::No,
            },
            Self::CsiNode { node } => match plugin {
                P::VolumeBinding | P::NodeVolumeLimits => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::AttachmentGone { node } => match plugin {
                P::NodeVolumeLimits => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::Namespace => match plugin {
                P::InterPodAffinity => Help::Perhaps,
                _ => Help::No,
            },
        }
    }
}

fn help_of_node_change(node: NodeId, facets: NodeFacets, plugin: PluginName) -> Help {
    use PluginName as P;
    let could = match plugin {
        P::PodTopologySpread if facets.labels || facets.taints => return Help::Perhaps,
        P::InterPodAffinity if facets.labels => return Help::Perhaps,
        P::NodeUnschedulable | P::TaintToleration => facets.taints,
        P::NodeAffinity | P::VolumeBinding | P::VolumeZone => facets.labels,
        P::NodeResourcesFit => facets.allocatable,
        P::NodeName
        | P::NodePorts
        | P::VolumeRestrictions
        | P::NodeVolumeLimits
        | P::PodTopologySpread
        | P::InterPodAffinity
        | P::NodeResourcesBalancedAllocation
        | P::ImageLocality => false,
    };
    if could { Help::OnNode(node) } else { Help::No }
}
