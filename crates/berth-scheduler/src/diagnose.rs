//! Why a pod fits nowhere, in kube-scheduler's format: reasons counted over nodes, each node by its first refusing
//! plugin.

use crate::cluster::Cluster;
use crate::decide::PreFiltered;
use crate::framework::{Code, PluginName, Refusal};
use crate::plugins::FilterState;
use crate::pod::Pod;
use crate::reason::Reason;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use std::collections::BTreeMap;

/// For a node where preemption cannot help.
pub(crate) const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
/// For a node without pods of lower priority.
pub(crate) const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

/// Why a pod fits nowhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// Number of nodes.
    pub node_count: usize,
    /// A refusal before any node was considered.
    pub early: Option<Refusal>,
    /// The first refusal of each node, if nodes were considered.
    pub nodes: Vec<(NodeId, Refusal)>,
}

/// Runs the plugins in order on every node, up to its first refusal. `promised` are nodes that would fit except for
/// nominated pods, with their refusals.
pub(crate) fn diagnose(
    cluster: &Cluster,
    states: &[FilterState],
    pre_filtered: PreFiltered,
    promised: &[(NodeId, Refusal)],
) -> Diagnosis {
    let node_count = cluster.all_nodes().len();
    if pre_filtered.refusal.is_some() {
        return Diagnosis {
            node_count,
            early: pre_filtered.refusal,
            nodes: Vec::new(),
        };
    }
    let nodes = cluster.all_nodes().iter().filter_map(|node| {
        let outside = outside(cluster, &pre_filtered.only_nodes, node);
        let refused = outside.or_else(|| states.iter().find_map(|state| state.filter(cluster, node)));
        let promised = || promised.iter().find(|(promised, _)| *promised == node);
        let refusal = refused.or_else(|| promised().map(|(_, refusal)| refusal.clone()))?;
        Some((node, refusal))
    });
    Diagnosis {
        node_count,
        early: None,
        nodes: nodes.collect(),
    }
}

fn outside(cluster: &Cluster, only_nodes: &[(PluginName, Box<[Symbol]>)], node: NodeId) -> Option<Refusal> {
    let name = cluster.nodes().name(node);
    let (plugin, _) = only_nodes.iter().find(|(_, names)| !names.contains(&name))?;
    let mut plugins: Vec<_> = only_nodes.iter().map(|(plugin, _)| plugin.as_str()).collect();
    plugins.sort_unstable();
    let plugins = plugins.join(" ").into();
    Some(Refusal::unresolvable(*plugin, Reason::NotAmongNodes { plugins }))
}

impl Diagnosis {
    /// The message, for example `0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).`
    #[must_use]
    pub fn message(&self) -> String {
        if self.node_count == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        if let Some(refusal) = &self.early {
            let reasons = joined(refusal);
            return match refusal.code {
                Code::Error => format!("running PreFilter plugin {:?}: {reasons}", refusal.plugin.as_str()),
                _ => format!("{}{reasons}.", self.headline()),
            };
        }
        let mut refusals = self.nodes.iter().map(|(_, refusal)| refusal);
        if let Some(broken) = refusals.clone().find(|refusal| refusal.code == Code::Error) {
            return format!("running {:?} filter plugin: {}", broken.plugin.as_str(), joined(broken));
        }
        let reasons = refusals.by_ref().flat_map(|refusal| &refusal.reasons);
        let counted = counted(reasons.map(ToString::to_string));
        format!("{}{counted}.", self.headline())
    }

    fn headline(&self) -> String {
        format!("0/{} nodes are available: ", self.node_count)
    }

    /// Whether an invalid object ended the decision, so that it is unknown whether the pod fits.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        let refusals = self.early.iter().chain(self.nodes.iter().map(|(_, refusal)| refusal));
        refusals.into_iter().any(|refusal| refusal.code == Code::Error)
    }

    /// What preemption would add to the message. `None` if it is not run, because there are no nodes or an invalid object ended the
    /// decision, or if it would have to try: a node has pods of lower priority and was refused for a reason that preemption could
    /// resolve.
    #[must_use]
    pub fn preemption_message(&self, cluster: &Cluster, pod: &Pod) -> Option<String> {
        if self.is_aborted() || self.node_count == 0 {
            return None;
        }
        if pod.never_preempts {
            return Some("preemption: not eligible due to preemptionPolicy=Never.".to_owned());
        }
        let mut reasons = Vec::new();
        if self.early.is_some() {
            reasons.resize(self.node_count, NOT_HELPFUL.to_owned());
        }
        for (node, refusal) in &self.nodes {
            reasons.push(match refusal.code {
                Code::Unschedulable if has_lower_priority(cluster, *node, pod.footprint.priority) => return None,
                Code::Unschedulable => NO_VICTIMS.to_owned(),
                Code::UnschedulableAndUnresolvable | Code::Error => NOT_HELPFUL.to_owned(),
            });
        }
        Some(self.preemption_refusal(reasons))
    }

    /// The message of preemption if it helps on no node, from the reasons of all nodes.
    pub(crate) fn preemption_refusal(&self, reasons: Vec<String>) -> String {
        format!("preemption: {}{}.", self.headline(), counted(reasons))
    }
}

fn joined(refusal: &Refusal) -> String {
    let reasons: Vec<_> = refusal.reasons.iter().map(ToString::to_string).collect();
    reasons.join(", ")
}

/// Each reason with its count, sorted as text: `10 a` comes before `2 b`.
fn counted(reasons: impl IntoIterator<Item = String>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for reason in reasons {
        *counts.entry(reason).or_default() += 1;
    }
    let mut texts: Vec<_> = counts
        .iter()
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    texts.sort_unstable();
    texts.join(", ")
}

fn has_lower_priority(cluster: &Cluster, node: NodeId, priority: i32) -> bool {
    let pods = cluster.pods();
    let on_node = pods.on_node(cluster.nodes().name(node)).iter();
    on_node
        .filter_map(|pod| pods.get(*pod))
        .any(|running| running.footprint.priority < priority)
}
