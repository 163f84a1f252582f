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
    let gain = |with: i64, without: i64| half + (half + with - without) / 2;
    out.extend(nodes.iter().map(|node| match balanced.as_slice() {
        // Nearly always there are two, and both are there: no list of fractions is needed.
        [first, second] if first.has(*node) && second.has(*node) => {
            let evenness = |with_pod| {
                let (first, second) = (first.fraction(*node, with_pod), second.fraction(*node, with_pod));
                to_score(((first - second) / 2.0).abs())
            };
            gain(evenness(true), evenness(false))
        }
        balanced => gain(evenness(balanced, *node, true), evenness(balanced, *node, false)),
    }));
    true
}

impl Balanced<'_> {
    /// Whether a node has any of the resource.
    fn has(&self, node: NodeId) -> bool {
        self.allocatable[node.index()] != 0
    }

    /// How much of the resource is asked for on a node, from 0 to 1.
    fn fraction(&self, node: NodeId, with_pod: bool) -> f64 {
        let added = if with_pod { self.wanted } else { 0 };
        let used = self.requested[node.index()].saturating_add(added);
        (used as f64 / self.allocatable[node.index()] as f64).min(1.0)
    }
}

fn to_score(deviation: f64) -> i64 {
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
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
    let there = resources.iter().filter(|resource| resource.has(node));
    let fractions: SmallVec<[f64; 4]> = there.map(|resource| resource.fraction(node, with_pod)).collect();
    to_score(deviation(&fractions))
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
