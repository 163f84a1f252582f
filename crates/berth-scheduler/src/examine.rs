//! Runs every plugin on every node, without stopping at the first refusal.
//!
//! For explanations and for comparison with recorded decisions; a scheduler uses [`decide`](crate::decide).

use crate::cluster::Cluster;
use crate::framework::{PluginName, PreFilter, Refusal};
use crate::plugins::{self, FilterState, ScoreContext};
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::nodes::NodeId;

/// The results of all plugins for a pod.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// Refusals before any node was considered, in plugin order. Any of them makes every node unfit.
    pub refused: Vec<Refusal>,
    /// Plugins that restrict the nodes, with the names of the remaining ones.
    pub only_nodes: Vec<(PluginName, Vec<String>)>,
    /// Every node, by name.
    pub nodes: Vec<NodeExamination>,
    /// The states of the filter plugins.
    pub states: Vec<FilterState>,
}

/// The results of all plugins for a pod on one node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeExamination {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Whether the pod can run there.
    pub fits: bool,
    /// The refusals, in plugin order.
    pub refusals: Vec<Refusal>,
    /// Normalized scores, if the pod fits; plugins that skip the pod are not listed.
    pub scores: Vec<(PluginName, i64)>,
    /// The weighted sum, if the pod fits.
    pub total: Option<i64>,
}

/// Runs every plugin of a profile on a pod.
pub fn examine(cluster: &mut Cluster, pod: &Pod, profile: &Profile) -> Examination {
    let mut examination = Examination::default();
    for plugin in &profile.filters {
        match plugins::pre_filter(*plugin, cluster, pod, profile) {
            PreFilter::Skip => {}
            PreFilter::Refused(refusal) => examination.refused.push(refusal),
            PreFilter::Ready { state, only_nodes } => {
                if let Some(only_nodes) = only_nodes {
                    let text = |name| cluster.symbols().text(name).to_owned();
                    let mut names: Vec<_> = only_nodes.iter().map(|name| text(*name)).collect();
                    names.sort_unstable();
                    examination.only_nodes.push((*plugin, names));
                }
                examination.states.push(state);
            }
        }
    }
    examination.nodes = cluster
        .nodes()
        .ids()
        .map(|node| examine_node(cluster, &examination, node))
        .collect();
    examination.nodes.sort_by(|first, second| first.name.cmp(&second.name));
    score(cluster, pod, profile, &mut examination);
    examination
}

fn examine_node(cluster: &Cluster, examination: &Examination, node: NodeId) -> NodeExamination {
    let name = cluster.symbols().text(cluster.nodes().name(node)).to_owned();
    let states = examination.states.iter();
    let refusals: Vec<_> = states.filter_map(|state| state.filter(cluster, node)).collect();
    let among = examination.only_nodes.iter().all(|(_, names)| names.contains(&name));
    NodeExamination {
        node,
        fits: examination.refused.is_empty() && refusals.is_empty() && among,
        name,
        refusals,
        scores: Vec::new(),
        total: None,
    }
}

fn score(cluster: &mut Cluster, pod: &Pod, profile: &Profile, examination: &mut Examination) {
    let mut fitting: Vec<_> = examination.nodes.iter_mut().filter(|node| node.fits).collect();
    let nodes: Vec<_> = fitting.iter().map(|node| node.node).collect();
    if nodes.is_empty() {
        return;
    }
    let mut context = ScoreContext {
        cluster,
        pod,
        profile,
        states: &examination.states,
        nodes: &nodes,
    };
    let mut scores = Vec::new();
    for node in &mut fitting {
        node.total = Some(0);
    }
    for (plugin, weight) in &profile.scores {
        if plugins::score(*plugin, &mut context, &mut scores) {
            for (node, score) in fitting.iter_mut().zip(&scores) {
                node.scores.push((*plugin, *score));
                node.total = node.total.map(|total| total + weight * score);
            }
        }
    }
}
