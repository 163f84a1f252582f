//! Nominated pods, and whether a node fits a pod next to them.
//!
//! Room that was made for a pod must not go to another one of the same or lower priority while the victims terminate. A
//! node is therefore checked twice: with the pods that are nominated there, and without them, because they may never
//! arrive.

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::plugins::{self, FilterState};
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::nodes::NodeId;

/// The filters whose state depends on the running pods: they are run again in every what-if.
const DEPEND_ON_PODS: [PluginName; 4] = [
    PluginName::VolumeRestrictions,
    PluginName::NodeVolumeLimits,
    PluginName::PodTopologySpread,
    PluginName::InterPodAffinity,
];

/// The nominations that matter to a pod.
#[derive(Clone, Debug, Default)]
pub struct Nominated<'a> {
    /// The node nominated for the pod itself.
    pub own: Option<NodeId>,
    /// Other pods of at least its priority, with their nominated nodes.
    pub others: Vec<(NodeId, &'a Pod)>,
    /// Nodes that recently rejected similar pods: they are used only if no other fits.
    pub avoided: Vec<NodeId>,
}

impl<'a> Nominated<'a> {
    fn on(&self, node: NodeId) -> impl Iterator<Item = &'a Pod> + '_ {
        let others = self.others.iter().filter(move |(found, _)| *found == node);
        others.map(|(_, pod)| *pod)
    }

    /// The nominated nodes of others, without duplicates.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<_> = self.others.iter().map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}

/// Whether a pod fits on a node, checked repeatedly while the cluster is changed for a what-if.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// Its profile.
    pub profile: &'a Profile,
    /// The states of the filter plugins in this cycle.
    pub states: &'a [FilterState],
    /// Nominations.
    pub nominated: &'a Nominated<'a>,
}

impl Question<'_> {
    /// Why a node refuses the pod, with or without the pods nominated there.
    pub fn refusal(&self, cluster: &mut Cluster, node: NodeId) -> Option<Refusal> {
        self.refusal_beside(cluster, node)
            .or_else(|| self.refusal_as_is(cluster, node))
    }

    /// Why a node refuses the pod with the pods nominated there.
    pub(crate) fn refusal_beside(&self, cluster: &mut Cluster, node: NodeId) -> Option<Refusal> {
        let mut assumed = Vec::new();
        for other in self.nominated.on(node) {
            let (namespace, name) = (other.footprint.namespace, &other.footprint.name);
            if cluster.pods().find(namespace, name).is_none() {
                assumed.push(cluster.assume_pod(other, node));
            }
        }
        if assumed.is_empty() {
            return None;
        }
        let refusal = self.refusal_as_is(cluster, node);
        for pod in assumed.into_iter().rev() {
            cluster.forget(pod);
        }
        refusal
    }

    fn refusal_as_is(&self, cluster: &mut Cluster, node: NodeId) -> Option<Refusal> {
        self.profile.filters.iter().find_map(|plugin| {
            if !DEPEND_ON_PODS.contains(plugin) {
                let state = self.states.iter().find(|state| state.plugin() == *plugin)?;
                return state.filter(cluster, node);
            }
            match plugins::pre_filter(*plugin, cluster, self.pod, self.profile) {
                PreFilter::Skip => None,
                PreFilter::Refused(refusal) => Some(refusal),
                PreFilter::Ready { state, .. } => state.filter(cluster, node),
            }
        })
    }

    /// Why a node refuses the pod whatever runs there.
    pub(crate) fn lasting_refusal(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let depends = |plugin: PluginName| {
            let on_use = matches!(plugin, PluginName::NodePorts | PluginName::NodeResourcesFit);
            on_use || DEPEND_ON_PODS.contains(&plugin)
        };
        let mut states = self.states.iter().filter(|state| !depends(state.plugin()));
        states.find_map(|state| state.filter(cluster, node))
    }
}
