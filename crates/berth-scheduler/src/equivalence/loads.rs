//! Nodes that offer the same resources and have the same in use: what the plugins of resources say about one of them holds
//! for all.
//!
//! A cluster has nodes of a few sizes, and many of them run the same pods or none. A new class of pods is therefore filtered
//! and scored by resources once for each load, and not for each node.

use super::verdicts::{Asked, REFUSED};
use crate::cluster::{Cluster, Resources, Row};
use crate::framework::PluginName;
use crate::plugins::{FilterState, ResourceContext, Totals};
use crate::stopwatch::{ExtensionPoint, Stopwatch};
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};

/// Columns are as long as a multiple of this, so that all rows of a mask are complete.
const ROW: usize = 64;

/// The loads of all nodes, updated where nodes changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Loads {
    /// By load.
    resources: Resources,
    /// The order of resources beyond the fixed ones.
    scalars: Vec<Symbol>,
    /// By node. The first load is that of nodes that do not exist.
    of_node: Vec<u32>,
    /// By load: how many nodes have it.
    counts: Vec<u32>,
    /// Those that nodes have.
    live: NodeMask,
    by_hash: FxHashMap<u64, SmallVec<[u32; 1]>>,
    unused: Vec<u32>,
    /// Position up to which changes of nodes are read; `None` if nothing is computed yet.
    read: Option<u64>,
}

impl Loads {
    /// By node: the number of its load. Complete rows of 64 nodes.
    pub(super) fn of_nodes(&self) -> &[u32] {
        &self.of_node
    }

    /// Reads the changes of nodes.
    pub(super) fn refresh(&mut self, cluster: &Cluster) {
        let changes = self.read.and_then(|read| cluster.touched().since(read));
        let changes = changes.filter(|_| self.has_columns_of(cluster.resources()));
        self.grow(cluster.nodes().column_length());
        match changes {
            Some(changes) => {
                let mut last = None;
                for node in changes.iter().filter(|node| last.replace(**node) != Some(**node)) {
                    self.update(cluster, *node);
                }
            }
            None => {
                let mut scalars: Vec<Symbol> = cluster.resources().scalars.keys().copied().collect();
                scalars.sort_unstable();
                *self = Self {
                    scalars,
                    ..Self::default()
                };
                self.grow(cluster.nodes().column_length());
                for node in cluster.nodes().ids() {
                    self.update(cluster, node);
                }
            }
        }
        self.read = Some(cluster.touched().next());
    }

    fn has_columns_of(&self, resources: &Resources) -> bool {
        let known = |name: &Symbol| self.scalars.binary_search(name).is_ok();
        resources.scalars.len() == self.scalars.len() && resources.scalars.keys().all(known)
    }

    fn grow(&mut self, nodes: usize) {
        self.of_node.resize(nodes.next_multiple_of(ROW), 0);
        if self.counts.is_empty() {
            self.counts.push(0);
            self.resources.grow(ROW);
        }
    }

    /// Finds the load of a node again.
    fn update(&mut self, cluster: &Cluster, node: NodeId) {
        if node.index() >= cluster.nodes().column_length() {
            return;
        }
        let row = cluster.resources().row(&self.scalars, node);
        let old = self.of_node[node.index()];
        if old != 0 {
            if self.resources.row(&self.scalars, NodeId(old)) == row {
                return;
            }
            self.leave(old);
        }
        self.of_node[node.index()] = self.join(&row);
    }

    fn leave(&mut self, load: u32) {
        let count = &mut self.counts[load as usize];
        *count -= 1;
        if *count > 0 {
            return;
        }
        self.live.remove(NodeId(load));
        let hash = hash(&self.resources.row(&self.scalars, NodeId(load)));
        if let Some(loads) = self.by_hash.get_mut(&hash) {
            loads.retain(|found| *found != load);
            if loads.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
        self.unused.push(load);
    }

    fn join(&mut self, row: &Row) -> u32 {
        let hash = hash(row);
        let alike = self.by_hash.get(&hash).into_iter().flatten();
        let known = alike
            .copied()
            .find(|load| self.resources.row(&self.scalars, NodeId(*load)) == *row);
        let load = known.unwrap_or_else(|| {
            let load = self.unused.pop().unwrap_or(self.counts.len() as u32);
            if load as usize == self.counts.len() {
                self.counts.push(0);
                let length = self.counts.len().next_multiple_of(ROW);
                // Columns grow by doubling: each step moves all of them.
                self.resources.grow(length.next_power_of_two());
            }
            self.resources.set_row(&self.scalars, NodeId(load), row);
            self.live.grow_to(NodeId(load));
            self.by_hash.entry(hash).or_default().push(load);
            load
        });
        self.counts[load as usize] += 1;
        load
    }

    /// By load: the sum of the cached scores that depend on resources alone, or [`REFUSED`].
    pub(super) fn totals(&self, cluster: &Cluster, asked: &Asked<'_>, watch: &mut impl Stopwatch) -> Vec<i64> {
        let mut fitting = self.live.clone();
        for state in asked.kept_states() {
            if let FilterState::NodeResourcesFit(state) = state {
                state.narrow_in(&self.resources, &mut fitting);
                watch.lap(PluginName::NodeResourcesFit, ExtensionPoint::Filter);
            }
        }
        let mut totals = vec![REFUSED; self.counts.len().next_multiple_of(ROW)];
        fitting.iter().for_each(|load| totals[load.index()] = 0);
        let context = ResourceContext {
            symbols: cluster.symbols(),
            resources: &self.resources,
            pod: asked.pod,
            profile: asked.profile,
        };
        for (plugin, weight) in asked.kept_scores().filter(|(plugin, _)| reads_resources_alone(*plugin)) {
            context.add_scores(
                plugin,
                Totals {
                    nodes: &fitting,
                    weight,
                    totals: &mut totals,
                },
            );
            watch.lap(plugin, ExtensionPoint::Score);
        }
        totals
    }
}

/// Whether the scores of a plugin are the same on nodes with the same load.
pub(super) fn reads_resources_alone(plugin: PluginName) -> bool {
    matches!(
        plugin,
        PluginName::NodeResourcesFit | PluginName::NodeResourcesBalancedAllocation
    )
}

fn hash(row: &Row) -> u64 {
    let mut hasher = FxHasher::default();
    row.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_core::api::{Kind, Object};
    use proptest::prelude::*;
    use serde_json::json;

    #[derive(Clone, Debug)]
    enum Step {
        /// A node of a size is added, or gets another one.
        Node(usize, u32),
        NodeGone(usize),
        /// A node offers a resource that others do not.
        Device(usize, u32),
        Pod(usize, usize, u32),
        PodGone(usize),
        Refresh,
    }

    /// More than two rows.
    const NODES: usize = 150;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..NODES, 1..4_u32).prop_map(|(node, cpu)| Step::Node(node, cpu)),
            2 => (0..NODES).prop_map(Step::NodeGone),
            1 => (0..NODES, 1..3_u32).prop_map(|(node, count)| Step::Device(node, count)),
            8 => (0..200_usize, 0..NODES, 1..3_u32).prop_map(|(pod, node, cpu)| Step::Pod(pod, node, cpu)),
            4 => (0..200_usize).prop_map(Step::PodGone),
            4 => Just(Step::Refresh),
        ]
    }

    fn put(cluster: &mut Cluster, object: &serde_json::Value) {
        cluster.upsert(&Object::decode(object).unwrap().unwrap());
    }

    fn node(number: usize, cpu: u32, devices: u32) -> serde_json::Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{number}")},
               "status": {"allocatable": {"cpu": cpu, "memory": "4Gi", "pods": 10, "example.com/device": devices}}})
    }

    fn take(cluster: &mut Cluster, step: &Step) {
        match step {
            Step::Node(number, cpu) => put(cluster, &node(*number, *cpu, 0)),
            Step::NodeGone(number) => cluster.remove(Kind::Node, "", &format!("n{number}")),
            Step::Device(number, count) => put(cluster, &node(*number, 4, *count)),
            Step::Pod(pod, node, cpu) => {
                let pod = json!({"apiVersion": "v1", "kind": "Pod",
                    "metadata": {"name": format!("p{pod}"), "namespace": "default"},
                    "spec": {"nodeName": format!("n{node}"),
                             "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}});
                put(cluster, &pod);
            }
            Step::PodGone(pod) => cluster.remove(Kind::Pod, "default", &format!("p{pod}")),
            Step::Refresh => {}
        }
    }

    /// Every node has the load with its resources, and two nodes have the same one only if these are equal.
    fn check(loads: &mut Loads, cluster: &Cluster) -> Result<(), TestCaseError> {
        loads.refresh(cluster);
        prop_assert_eq!(loads.of_nodes().len() % ROW, 0);
        let mut by_row: FxHashMap<u64, u32> = FxHashMap::default();
        let mut counts = vec![0_u32; loads.counts.len()];
        for node in cluster.nodes().ids() {
            let load = loads.of_nodes()[node.index()];
            let row = cluster.resources().row(&loads.scalars, node);
            prop_assert!(load != 0 && loads.live.contains(NodeId(load)));
            prop_assert!(loads.resources.row(&loads.scalars, NodeId(load)) == row);
            prop_assert_eq!(*by_row.entry(hash(&row)).or_insert(load), load);
            counts[load as usize] += 1;
        }
        for (load, count) in counts.into_iter().enumerate() {
            prop_assert!(loads.counts[load] >= count, "{} of load {}", count, load);
            prop_assert_eq!(loads.live.contains(NodeId(load as u32)), loads.counts[load] > 0);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// After any changes, with or without reading them in between.
        #[test]
        fn nodes_have_the_load_of_their_resources(steps in proptest::collection::vec(step(), 1..300)) {
            let (mut cluster, mut loads) = (Cluster::default(), Loads::default());
            for step in &steps {
                take(&mut cluster, step);
                if matches!(step, Step::Refresh) {
                    check(&mut loads, &cluster)?;
                }
            }
            check(&mut loads, &cluster)?;
        }
    }
}
