//! ImageLocality: prefers nodes that already have the pod's images.

use crate::cluster::Cluster;
use crate::framework::MAX_NODE_SCORE;
use crate::pod::Pod;
use berth_core::nodes::NodeId;

/// Images below this size are quick to pull anyway.
const MIN_BYTES: i64 = 23 << 20;
/// More than this for each container makes no difference.
const MAX_BYTES_PER_CONTAINER: i64 = 1000 << 20;

/// Scores nodes by the size of the images that they have, with less weight for images that few nodes have.
pub fn score(cluster: &Cluster, pod: &Pod, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let held: Vec<_> = pod
        .images
        .iter()
        .filter_map(|image| cluster.images().holders(*image))
        .collect();
    out.resize(nodes.len(), 0);
    if held.is_empty() || pod.container_count == 0 {
        return true;
    }
    let all_nodes = cluster.all_nodes().len() as f64;
    let max_bytes = MAX_BYTES_PER_CONTAINER * pod.container_count;
    for (score, node) in out.iter_mut().zip(nodes) {
        let scaled = held.iter().filter_map(|holders| {
            let size = holders.size(*node)?;
            let spread = holders.count() as f64 / all_nodes;
            Some((size as f64 * spread) as i64)
        });
        // Too little to matter scores zero, as on most nodes.
        let bytes = scaled.sum::<i64>().min(max_bytes);
        if bytes > MIN_BYTES {
            *score = MAX_NODE_SCORE * (bytes - MIN_BYTES) / (max_bytes - MIN_BYTES);
        }
    }
    true
}
