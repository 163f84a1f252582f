//! The plugins, each in its own module, and the two tables through which they are called.
//!
//! A filter plugin has a `pre_filter` that examines the pod once. The resulting state has `filter`, which returns
//! reasons for one node, and `narrow`, which gives the same verdict on a set of nodes without reasons. A score plugin
//! has a `score` that returns normalized scores for the nodes that fit, or skips the pod.

pub mod dynamic_resources;
pub mod gang_scheduling;
pub mod image_locality;
pub mod inter_pod_affinity;
mod lanes;
pub mod node_affinity;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_balanced_allocation;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod pod_topology_spread;
mod stateless;
pub mod taint_toleration;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use crate::cluster::{Cluster, Resources};
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbols;

pub(crate) use lanes::Totals;

macro_rules! filters {
    ($($plugin:ident, $module:ident, |$cluster:ident, $pod:ident, $profile:ident| $pre_filter:expr;)*) => {
        /// The state of a filter plugin for a pod.
        #[derive(Clone, Debug)]
        pub enum FilterState { $(#[doc = concat!("Of ", stringify!($plugin), ".")] $plugin($module::State),)* }

        impl FilterState {
            /// The plugin of the state.
            #[must_use]
            pub fn plugin(&self) -> PluginName {
                match self { $(Self::$plugin(_) => PluginName::$plugin,)* }
            }

            /// Whether a node is refused, and why.
            #[must_use]
            pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
                match self { $(Self::$plugin(state) => state.filter(cluster, node),)* }
            }

            /// Keeps the nodes that are not refused.
            pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
                match self { $(Self::$plugin(state) => state.narrow(cluster, mask),)* }
            }
        }

        /// Runs the pre-filter of a plugin on a pod. A plugin that does not filter skips every pod.
        pub fn pre_filter(
            plugin: PluginName,
            cluster: &mut Cluster,
            pod: &Pod,
            profile: &Profile,
        ) -> PreFilter<FilterState> {
            match plugin {
                $(PluginName::$plugin => {
                    let ($cluster, $pod, $profile) = (&mut *cluster, pod, profile);
                    let _ = (&$cluster, $pod, $profile);
                    PreFilter::map($pre_filter, FilterState::$plugin)
                })*
                _ => PreFilter::Skip,
            }
        }
    };
}

filters! {
    NodeUnschedulable, node_unschedulable, |cluster, pod, profile| node_unschedulable::pre_filter(cluster, pod, profile);
    NodeName, node_name, |_cluster, pod, _profile| node_name::pre_filter(pod);
    TaintToleration, taint_toleration, |cluster, pod, profile| taint_toleration::pre_filter(cluster, pod, profile);
    NodeAffinity, node_affinity, |_cluster, pod, _profile| node_affinity::pre_filter(pod);
    NodePorts, node_ports, |cluster, pod, _profile| node_ports::pre_filter(cluster, pod);
    NodeResourcesFit, node_resources_fit, |_cluster, pod, _profile| node_resources_fit::pre_filter(pod);
    VolumeRestrictions, volume_restrictions, |cluster, pod, _profile| volume_restrictions::pre_filter(cluster, pod);
    NodeVolumeLimits, node_volume_limits, |cluster, pod, profile| node_volume_limits::pre_filter(cluster, pod, profile);
    VolumeBinding, volume_binding, |cluster, pod, _profile| volume_binding::pre_filter(cluster, pod);
    VolumeZone, volume_zone, |cluster, pod, _profile| volume_zone::pre_filter(cluster, pod);
    PodTopologySpread, pod_topology_spread, |cluster, pod, profile| pod_topology_spread::pre_filter(cluster, pod, profile);
    InterPodAffinity, inter_pod_affinity, |cluster, pod, _profile| inter_pod_affinity::pre_filter(cluster, pod);
    DynamicResources, dynamic_resources, |_cluster, pod, _profile| dynamic_resources::pre_filter(pod);
    GangScheduling, gang_scheduling, |_cluster, pod, _profile| gang_scheduling::pre_filter(pod);
}

impl FilterState {
    /// The state of VolumeBinding among those of a pod.
    #[must_use]
    pub fn volume_binding(states: &[Self]) -> Option<&volume_binding::State> {
        states.iter().find_map(|state| match state {
            Self::VolumeBinding(state) => Some(state),
            _ => None,
        })
    }
}

/// The input of a score plugin.
pub struct ScoreContext<'a> {
    /// The cluster.
    pub cluster: &'a mut Cluster,
    /// The pod.
    pub pod: &'a Pod,
    /// The profile.
    pub profile: &'a Profile,
    /// The states of the filter plugins.
    pub states: &'a [FilterState],
    /// The nodes that fit.
    pub nodes: &'a [NodeId],
}

/// What is known about a plugin's scores of a pod before any node is considered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// It skips the pod.
    Skips,
    /// Every node gets the same score.
    Same(i64),
    /// Nodes have to be scored.
    Each,
}

/// Predicts the result of a score plugin for a pod. It may still skip the pod.
pub fn outlook(plugin: PluginName, cluster: &Cluster, pod: &Pod, profile: &Profile) -> Outlook {
    let each = |looks: bool| if looks { Outlook::Each } else { Outlook::Skips };
    match plugin {
        PluginName::TaintToleration => taint_toleration::outlook(cluster, pod, profile),
        PluginName::NodeAffinity => each(pod.preferred_nodes.is_some()),
        PluginName::PodTopologySpread => {
            let action = pod_topology_spread::Action::ScheduleAnyway;
            each(pod_topology_spread::has_constraints(cluster, pod, profile, action))
        }
        PluginName::InterPodAffinity => each(inter_pod_affinity::has_preferences(cluster, pod, profile)),
        PluginName::NodeResourcesFit
        | PluginName::NodeResourcesBalancedAllocation
        | PluginName::ImageLocality
        | PluginName::VolumeBinding => Outlook::Each,
        PluginName::NodeUnschedulable
        | PluginName::NodeName
        | PluginName::NodePorts
        | PluginName::VolumeRestrictions
        | PluginName::NodeVolumeLimits
        | PluginName::VolumeZone
        | PluginName::DynamicResources
        | PluginName::GangScheduling
        | PluginName::Extender => Outlook::Skips,
    }
}

/// A pod, and anything that has the resources of nodes: all that the plugins read that score resources.
#[derive(Clone, Copy)]
pub(crate) struct ResourceContext<'a> {
    /// The names of resources.
    pub(crate) symbols: &'a Symbols,
    /// By node, or by a kind of nodes with an id of its own.
    pub(crate) resources: &'a Resources,
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// The profile.
    pub(crate) profile: &'a Profile,
}

impl ResourceContext<'_> {
    /// Adds the weighted scores of a plugin that reads resources alone, as many as possible at a time.
    pub(crate) fn add_scores(self, plugin: PluginName, mut totals: Totals<'_>) {
        let left = self.add_rows(plugin, totals.reborrow());
        let left = left.unwrap_or_else(|| totals.nodes.iter().collect());
        if left.is_empty() {
            return;
        }
        let Self {
            symbols,
            resources,
            pod,
            profile,
        } = self;
        let mut scores = Vec::new();
        let scored = match plugin {
            PluginName::NodeResourcesFit => {
                node_resources_fit::score_in(symbols, resources, pod, profile, &left, &mut scores)
            }
            PluginName::NodeResourcesBalancedAllocation => {
                node_resources_balanced_allocation::score_in(symbols, resources, pod, profile, &left, &mut scores)
            }
            _ => false,
        };
        if scored {
            for (node, score) in left.iter().zip(&scores) {
                totals.totals[node.index()] += totals.weight * score;
            }
        }
    }

    /// Adds the weighted scores that can be computed 64 at a time. Returns the nodes without them; `None` for all.
    fn add_rows(self, plugin: PluginName, totals: Totals<'_>) -> Option<Vec<NodeId>> {
        let Self {
            symbols,
            resources,
            pod,
            profile,
        } = self;
        match plugin {
            PluginName::NodeResourcesFit => {
                Some(node_resources_fit::add_scores(symbols, resources, pod, profile, totals))
            }
            PluginName::NodeResourcesBalancedAllocation => {
                node_resources_balanced_allocation::add_scores(symbols, resources, pod, profile, totals)
            }
            _ => None,
        }
    }
}

/// Runs a score plugin for normalized scores of the nodes that fit, in order. Returns false if it skips the pod.
pub fn score(plugin: PluginName, context: &mut ScoreContext<'_>, out: &mut Vec<i64>) -> bool {
    out.clear();
    let ScoreContext {
        cluster,
        pod,
        profile,
        states,
        nodes,
    } = context;
    match plugin {
        PluginName::TaintToleration => taint_toleration::score(cluster, pod, profile, nodes, out),
        PluginName::NodeAffinity => node_affinity::score(cluster, pod, nodes, out),
        PluginName::NodeResourcesFit => node_resources_fit::score(cluster, pod, profile, nodes, out),
        PluginName::PodTopologySpread => pod_topology_spread::score(cluster, pod, profile, nodes, out),
        PluginName::InterPodAffinity => inter_pod_affinity::score(cluster, pod, profile, nodes, out),
        PluginName::NodeResourcesBalancedAllocation => {
            node_resources_balanced_allocation::score(cluster, pod, profile, nodes, out)
        }
        PluginName::ImageLocality => image_locality::score(cluster, pod, nodes, out),
        PluginName::VolumeBinding => {
            volume_binding::score(cluster, FilterState::volume_binding(states), profile, nodes, out)
        }
        PluginName::NodeUnschedulable
        | PluginName::NodeName
        | PluginName::NodePorts
        | PluginName::VolumeRestrictions
        | PluginName::NodeVolumeLimits
        | PluginName::VolumeZone
        | PluginName::DynamicResources
        | PluginName::GangScheduling
        | PluginName::Extender => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ScoringForm;
    use berth_core::api::Object;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn decoded(value: &Value) -> Object {
        Object::decode(value).unwrap().unwrap()
    }

    /// CPU and memory.
    fn amounts() -> impl Strategy<Value = (i64, i64)> {
        let amount = || prop_oneof![1 => Just(0), 2 => 1..10_i64, 8 => 1..64_000_i64];
        (amount(), amount())
    }

    fn resources((cpu, memory): (i64, i64)) -> Value {
        json!({"cpu": format!("{cpu}m"), "memory": memory})
    }

    proptest! {
        /// Scoring many nodes at a time gives the same results as one by one, also if a node has more than a floating
        /// point number can represent exactly.
        #[test]
        fn many_at_a_time_are_scored_as_one_by_one(
            nodes in proptest::collection::vec((amounts(), amounts()), 128..200),
            wanted in amounts(),
            huge in proptest::option::of(0..200_usize),
            most in any::<bool>(),
            weights in (1..4_i64, 1..4_i64),
        ) {
            let mut cluster = Cluster::default();
            for (index, (mut offered, used)) in nodes.iter().copied().enumerate() {
                if huge == Some(index) {
                    offered.1 = (1 << 60) + 7;
                }
                let (name, mut allocatable) = (format!("n{index}"), resources(offered));
                allocatable["pods"] = json!(9);
                cluster.upsert(&decoded(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                    "status": {"allocatable": allocatable}})));
                cluster.upsert(&decoded(&json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": name, "namespace": "default"},
                    "spec": {"nodeName": name, "containers": [{"name": "main", "resources": {"requests": resources(used)}}]}})));
            }
            let pod = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": resources(wanted)}}]}});
            let pod = cluster.compile(&serde_json::from_value(pod).unwrap());
            let mut profile = Profile::default();
            if most {
                profile.scoring_strategy.form = ScoringForm::MostAllocated;
            }
            profile.scoring_strategy.resources = vec![("cpu".to_owned(), weights.0), ("memory".to_owned(), weights.1)];
            let mut mask = cluster.all_nodes().clone();
            mask.retain(|node| node.0 % 7 != 3);
            let nodes: Vec<NodeId> = mask.iter().collect();
            for plugin in [PluginName::NodeResourcesFit, PluginName::NodeResourcesBalancedAllocation] {
                let by_resources = ResourceContext {
                    symbols: cluster.symbols(), resources: cluster.resources(), pod: &pod, profile: &profile };
                let mut totals = vec![0; cluster.nodes().column_length()];
                let left = by_resources.add_rows(plugin, Totals { nodes: &mask, weight: 3, totals: &mut totals });
                let left = left.unwrap_or_else(|| nodes.clone());
                prop_assert!(left.len() < nodes.len(), "some row is full, and exact");
                totals.fill(0);
                by_resources.add_scores(plugin, Totals { nodes: &mask, weight: 3, totals: &mut totals });
                let mut context = ScoreContext { cluster: &mut cluster, pod: &pod, profile: &profile, states: &[], nodes: &nodes };
                let mut scores = Vec::new();
                if !score(plugin, &mut context, &mut scores) {
                    prop_assert!(left.is_empty() && totals.iter().all(|total| *total == 0));
                    continue;
                }
                for (node, score) in nodes.iter().zip(scores) {
                    prop_assert_eq!(totals[node.index()], 3 * score);
                }
            }
        }
    }
}
