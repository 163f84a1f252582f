//! Cluster events, and which refusals they could change.
//!
//! A sleeping pod is woken only by an event that could change the result of a plugin that refused it. Most events
//! concern one node: then the pod is woken only if that node would now accept it.
//!
//! Why no pod sleeps forever: every node is refused by one of the plugins that a pod sleeps with. An event may
//! therefore be ignored only if it turns no refusal of those plugins into acceptance, on any node. And if another
//! plugin turns out to refuse the node of an event, the pod sleeps with that one too.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PluginSet};
use crate::pod::{Footprint, Pod, PodTerm};
use berth_core::model::Claim;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use std::sync::Arc;

/// A cluster event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// A pod got a node.
    PodPlaced {
        /// The node.
        node: NodeId,
        /// The pod.
        pod: Arc<Footprint>,
    },
    /// A pod on a node was deleted or finished, or the room nominated for it there is no longer needed.
    PodGone {
        /// Its node, if that still exists.
        node: Option<NodeId>,
        /// The pod.
        pod: Arc<Footprint>,
    },
    /// A pod on a node is being deleted: some counts exclude it from now on.
    PodTerminating {
        /// The pod.
        pod: Arc<Footprint>,
    },
    /// A pod on a node requests other resources than before.
    PodResized {
        /// The node.
        node: NodeId,
    },
    /// A node was added.
    NodeAdded {
        /// The node.
        node: NodeId,
        /// Whether pods are already known to run on it.
        occupied: bool,
    },
    /// A node was removed: counts over all nodes may have changed.
    NodeGone {
        /// The pods that were counted there.
        pods: Box<[Arc<Footprint>]>,
    },
    /// A node changed.
    NodeChanged {
        /// The node.
        node: NodeId,
        /// What changed.
        facets: NodeFacets,
    },
    /// A claim was added, changed or deleted.
    Claim {
        /// `namespace/name`
        claim: Box<str>,
    },
    /// A volume was added, changed or deleted.
    Volume {
        /// Its name.
        name: Box<str>,
        /// Its class.
        class: Symbol,
    },
    /// A class was added or deleted, or its topologies or its binding mode changed.
    Class {
        /// Its name.
        name: Symbol,
    },
    /// The drivers on a node changed.
    CsiNode {
        /// The node.
        node: NodeId,
    },
    /// A driver was added, changed or deleted.
    CsiDriver {
        /// Its name.
        name: Symbol,
    },
    /// There is more room for volumes of a class.
    CapacityRaised {
        /// The class.
        class: Symbol,
    },
    /// A volume was attached to a node, or detached.
    Attachment {
        /// The node.
        node: NodeId,
    },
    /// A claim or a volume was deleted that may have counted against attach limits.
    Uncounted,
    /// A namespace was added or deleted, or its labels changed.
    Namespace,
}

/// What changed about a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeFacets {
    /// Its labels.
    pub labels: bool,
    /// Its taints, or whether it is cordoned.
    pub taints: bool,
    /// Its allocatable resources.
    pub allocatable: bool,
}

/// Whether an event could change a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Help {
    /// No.
    No,
    /// If this node would now accept the pod.
    OnNode(NodeId),
    /// If the event concerns the pod; see [`ClusterEvent::concerns`].
    IfConcerned,
    /// Possibly, and there is no cheap way to tell.
    Perhaps,
}

impl ClusterEvent {
    /// The node that the event added. No plugin has been run on it yet, so it could help any pod.
    #[must_use]
    pub fn new_node(&self) -> Option<NodeId> {
        match self {
            Self::NodeAdded { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Whether the event could help any pod that these plugins refused.
    #[must_use]
    pub fn could_help(&self, refused_by: PluginSet) -> bool {
        self.new_node().is_some() || refused_by.iter().any(|plugin| self.help(plugin) != Help::No)
    }

    /// Whether the event could change the result of a plugin that refused a pod.
    #[must_use]
    pub fn help(&self, plugin: PluginName) -> Help {
        use PluginName as P;
        // Only an extender knows what its answer depends on.
        if plugin == P::Extender {
            return Help::Perhaps;
        }
        match self {
            Self::NodeAdded { node, occupied } => match plugin {
                P::PodTopologySpread => Help::Perhaps,
                P::InterPodAffinity if *occupied => Help::Perhaps,
                _ => Help::OnNode(*node),
            },
            Self::NodeGone { .. } => match plugin {
                P::PodTopologySpread => Help::Perhaps,
                P::InterPodAffinity | P::VolumeRestrictions => Help::IfConcerned,
                _ => Help::No,
            },
            Self::NodeChanged { node, facets } => help_of_node_change(*node, *facets, plugin),
            Self::PodPlaced { node, pod } => match plugin {
                P::PodTopologySpread | P::InterPodAffinity => Help::IfConcerned,
                // A volume that two pods share counts once.
                P::NodeVolumeLimits if !pod.volumes.is_empty() => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::PodGone { node, pod } => match (plugin, node) {
                (P::PodTopologySpread | P::InterPodAffinity | P::VolumeRestrictions, _) => Help::IfConcerned,
                (P::NodePorts | P::NodeResourcesFit | P::NodeVolumeLimits, Some(node)) => Help::OnNode(*node),
                // A volume may now be attachable there.
                (P::VolumeBinding, Some(node)) if !pod.volumes.is_empty() => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::PodTerminating { .. } => match plugin {
                P::PodTopologySpread => Help::IfConcerned,
                _ => Help::No,
            },
            Self::PodResized { node } => match plugin {
                P::NodeResourcesFit => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::Claim { .. } | Self::Volume { .. } | Self::Class { .. } => match plugin {
                P::VolumeBinding | P::VolumeZone | P::VolumeRestrictions | P::NodeVolumeLimits => Help::IfConcerned,
                _ => Help::No,
            },
            Self::CsiDriver { .. } | Self::CapacityRaised { .. } => match plugin {
                P::VolumeBinding => Help::IfConcerned,
                P::NodeVolumeLimits if matches!(self, Self::CsiDriver { .. }) => Help::Perhaps,
                _ => Help::No,
            },
            Self::CsiNode { node } => match plugin {
                P::VolumeBinding | P::NodeVolumeLimits => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::Attachment { node } => match plugin {
                P::NodeVolumeLimits | P::VolumeBinding => Help::OnNode(*node),
                _ => Help::No,
            },
            Self::Uncounted => match plugin {
                P::NodeVolumeLimits => Help::Perhaps,
                _ => Help::No,
            },
            Self::Namespace => match plugin {
                P::InterPodAffinity => Help::Perhaps,
                _ => Help::No,
            },
        }
    }

    /// Whether the event could change the result of a plugin for this pod, if [`Self::help`] leaves that open.
    #[must_use]
    pub fn concerns(&self, cluster: &Cluster, pod: &Pod, plugin: PluginName) -> bool {
        match self {
            Self::PodPlaced { pod: other, .. }
            | Self::PodGone { pod: other, .. }
            | Self::PodTerminating { pod: other } => matters(cluster, pod, other, plugin),
            Self::NodeGone { pods } => pods.iter().any(|other| matters(cluster, pod, other, plugin)),
            // What default constraints say about taints is the profile's to know.
            Self::NodeChanged { .. } => {
                !pod.has_spread_constraints() || pod.hard_spread.iter().any(|constraint| constraint.honor_taints)
            }
            Self::Claim { .. }
            | Self::Volume { .. }
            | Self::Class { .. }
            | Self::CsiDriver { .. }
            | Self::CapacityRaised { .. } => self.is_used_by(cluster, pod),
            Self::NodeAdded { .. }
            | Self::PodResized { .. }
            | Self::CsiNode { .. }
            | Self::Attachment { .. }
            | Self::Uncounted
            | Self::Namespace => true,
        }
    }

    /// Whether a pod uses the claim, volume, class or driver of the event.
    fn is_used_by(&self, cluster: &Cluster, pod: &Pod) -> bool {
        let binder = cluster.binder();
        let namespace = pod.footprint.namespace;
        let mut names = pod.volumes.claims.iter().map(|claim| &*claim.name);
        let mut claims = names.clone().map(|name| binder.claim_named(namespace, name));
        // A claim on the way out keeps the pod waiting, whatever becomes of volumes.
        let mut known = claims.clone().flatten();
        if !matches!(self, Self::Claim { .. }) && known.any(|claim| claim.deleting) {
            return false;
        }
        let class_is = |found: Option<&Claim>, class: Symbol| {
            found.is_some_and(|claim| claim.class.unwrap_or(Symbol::EMPTY) == class)
        };
        match self {
            Self::Claim { claim } => {
                let own = claim.strip_prefix(cluster.symbols().text(namespace));
                let own = own.and_then(|rest| rest.strip_prefix('/'));
                own.is_some_and(|own| names.any(|name| name == own))
            }
            Self::Volume { name, class } => claims.any(|found| {
                found.is_some_and(|claim| claim.volume_name == *name)
                    || found.is_some_and(|claim| claim.volume_name.is_empty()) && class_is(found, *class)
            }),
            Self::Class { name } | Self::CapacityRaised { class: name } => claims.any(|found| class_is(found, *name)),
            Self::CsiDriver { name } => {
                let inline = pod.volumes.inline.iter();
                inline.map(|(driver, _)| driver).any(|driver| driver == name)
                    || claims.any(|found| {
                        let class = found.and_then(|claim| binder.class(claim.class?));
                        class.is_some_and(|class| class.driver == *name)
                    })
            }
            _ => true,
        }
    }
}

/// Whether another pod, running or gone, affects a plugin's result for a pod.
fn matters(cluster: &Cluster, pod: &Pod, other: &Footprint, plugin: PluginName) -> bool {
    let own = &pod.footprint;
    let selects = |term: &Arc<PodTerm>, found: &Footprint| {
        term.covers_namespace(found.namespace, cluster.namespace_labels(found.namespace))
            && term.selector.matches(&found.labels)
    };
    match plugin {
        PluginName::PodTopologySpread => {
            let counts = || match pod.has_spread_constraints() {
                true => pod.hard_spread.iter().any(|hard| hard.selector.matches(&other.labels)),
                // It was refused by a default constraint, which counts the pods of its services and its owner.
                false => {
                    let selector = cluster.workloads().selector_for(pod);
                    selector.is_some_and(|selector| selector.matches(&other.labels))
                }
            };
            own.namespace == other.namespace && counts()
        }
        PluginName::InterPodAffinity => {
            let near_or_away = own.terms.as_deref().is_some_and(|terms| {
                // Only a pod that matches all affinity terms counts as near.
                let near = !terms.required.is_empty() && terms.required.iter().all(|term| selects(term, other));
                near || terms.required_anti.iter().any(|term| selects(term, other))
            });
            let shuns = other.terms.as_deref();
            near_or_away || shuns.is_some_and(|terms| terms.required_anti.iter().any(|term| selects(term, own)))
        }
        PluginName::VolumeRestrictions => {
            let shares_disk = own
                .disks
                .iter()
                .any(|disk| other.disks.iter().any(|used| used.key == disk.key));
            let mut claims = own.named_claims();
            shares_disk
                || own.namespace == other.namespace
                    && claims.any(|claim| other.named_claims().any(|used| used == claim))
        }
        _ => true,
    }
}

fn help_of_node_change(node: NodeId, facets: NodeFacets, plugin: PluginName) -> Help {
    use PluginName as P;
    let could = match plugin {
        P::PodTopologySpread if facets.labels => return Help::Perhaps,
        P::PodTopologySpread if facets.taints => return Help::IfConcerned,
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
        | P::DynamicResources
        | P::GangScheduling
        | P::NodeResourcesBalancedAllocation
        | P::ImageLocality
        | P::Extender => false,
    };
    if could { Help::OnNode(node) } else { Help::No }
}
