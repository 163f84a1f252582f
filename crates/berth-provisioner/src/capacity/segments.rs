//! The topology segments of a driver's nodes.

use crate::topology::{Segment, topology_keys};
use berth_core::api::{CsiNode, Node};
use std::collections::{BTreeMap, BTreeSet};

/// The segments of a driver: the distinct values of its topology keys on its nodes.
///
/// A node that lacks one of the labels is not ready and does not count. A driver without topology on any node has one
/// segment, which covers the cluster.
#[must_use]
pub fn segments(
    driver: &str,
    nodes: &BTreeMap<String, Node>,
    csi_nodes: &BTreeMap<String, CsiNode>,
) -> BTreeSet<Segment> {
    let here: Vec<&CsiNode> = csi_nodes
        .values()
        .filter(|csi_node| csi_node.spec.drivers.iter().any(|found| found.name == driver))
        .collect();
    let has_topology = here.iter().any(|csi_node| !topology_keys(csi_node, driver).is_empty());
    if !here.is_empty() && !has_topology {
        return BTreeSet::from([Segment::new()]);
    }
    here.into_iter()
        .filter_map(|csi_node| node_segment(driver, nodes.get(&csi_node.metadata.name)?, csi_node))
        .collect()
}

/// The segment of one node; `None` if the driver has no topology there or the node lacks a label.
#[must_use]
pub fn node_segment(driver: &str, node: &Node, csi_node: &CsiNode) -> Option<Segment> {
    let keys = topology_keys(csi_node, driver);
    if keys.is_empty() {
        return None;
    }
    let pair = |key: &String| Some((key.clone(), node.metadata.labels.get(key)?.clone()));
    keys.iter().map(pair).collect()
}

/// The segments of node labels with a prefix, for example `example.com/`, for drivers whose topology is not queried.
/// Nodes without such labels do not count.
#[must_use]
pub fn labelled_segments(prefix: &str, nodes: &BTreeMap<String, Node>) -> BTreeSet<Segment> {
    let of_node = |node: &Node| -> Segment {
        let labels = node.metadata.labels.iter().filter(|(key, _)| key.starts_with(prefix));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let found = nodes.values().map(of_node);
    found.filter(|segment| !segment.is_empty()).collect()
}
