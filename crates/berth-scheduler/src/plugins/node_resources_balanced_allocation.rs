//! NodeResourcesBalancedAllocation: prefers nodes whose resources the pod brings closer together in use.

use crate::cluster::Cluster;
use crate::framework::MAX_NODE_SCORE;
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::nodes::NodeId;
use smallvec::SmallVec;

/// A resource that is evened out: what nodes offer, what is used of it, and what the pod adds.
struct Balanced<'a> {
    allocatable: &'a [i64],
    requested: &'a [i64],
    wanted: i64,
}

/// Scores nodes; skips pods that ask for nothing of what is evened out.
pub fn score(cluster: &Cluster, pod: &Pod, profile: &Profile, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let balanced = balanced_resources(cluster, pod, profile);
    if balanced.iter().all(|resource| resource.wanted == 0) {
        return false;
    }
    let half = MAX_NODE_SCORE / 2;
    out.extend(nodes.iter().map(|node| {
        let with = evenness(&balanced, *node, true);
        let without = evenness(&balanced, *node, false);
        half + (half + with - without) / 2
    }));
    true
}

fn balanced_resources<'a>(cluster: &'a Cluster, pod: &Pod, profile: &Profile) -> Vec<Balanced<'a>> {
    let (resources, requests) = (cluster.resources(), &pod.footprint.requests);
    let names = profile.balanced_resources.iter();
    names
        .filter_map(|name| {
            let (column, wanted) = match name.as_str() {
                "cpu" => (&resources.cpu, requests.cpu_milli),
                "memory" => (&resources.memory, requests.memory_bytes),
                "ephemeral-storage" => (&resources.ephemeral, requests.ephemeral_bytes),
                name => {
                    let name = cluster.symbols().get(name)?;
                    let (_, wanted) = requests.scalars.iter().find(|(found, _)| *found == name)?;
                    (resources.scalars.get(&name)?, *wanted)
                }
            };
            Some(Balanced {
                allocatable: &column.allocatable,
                requested: &column.requested,
                wanted,
            })
        })
        .collect()
}

/// 100 if all resources are used to the same degree, less the more they differ.
fn evenness(resources: &[Balanced<'_>], node: NodeId, with_pod: bool) -> i64 {
    let mut fractions: SmallVec<[f64; 4]> = SmallVec::new();
    for resource in resources {
        let allocatable = resource.allocatable[node.index()];
        if allocatable != 0 {
            let added = if with_pod { resource.wanted } else { 0 };
            let used = resource.requested[node.index()].saturating_add(added);
            fractions.push((used as f64 / allocatable as f64).min(1.0));
        }
    }
    ((1.0 - deviation(&fractions)) * MAX_NODE_SCORE as f64) as i64
}

fn deviation(fractions: &[f64]) -> f64 {
    match fractions {
        [] | [_] => 0.0,
        [first, second] => ((first - second) / 2.0).abs(),
        fractions => {
            let count = fractions.len() as f64;
            let mean = fractions.iter().sum::<f64>() / count;
            let squares = fractions.iter().map(|fraction| (fraction - mean) * (fraction - mean));
            (squares.sum::<f64>() / count).sqrt()
        }
    }
}
