//! NodeResourcesBalancedAllocation: prefers nodes whose resource usage the pod makes more even.

use super::lanes::{self, Amounts, LANES, Totals};
use crate::cluster::{Cluster, Resources};
use crate::framework::MAX_NODE_SCORE;
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbols;
use smallvec::SmallVec;

/// Scores nodes; skips pods that request none of the balanced resources.
pub fn score(cluster: &Cluster, pod: &Pod, profile: &Profile, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    score_in(cluster.symbols(), cluster.resources(), pod, profile, nodes, out)
}

/// [`score`] for anything that has the resources of nodes.
pub(super) fn score_in(
    symbols: &Symbols,
    resources: &Resources,
    pod: &Pod,
    profile: &Profile,
    nodes: &[NodeId],
    out: &mut Vec<i64>,
) -> bool {
    let balanced = balanced_resources(symbols, resources, pod, profile);
    if balanced.iter().all(|resource| resource.wanted == 0) {
        return false;
    }
    out.extend(nodes.iter().map(|node| match balanced.as_slice() {
        // There are nearly always two, and the node has both: no list of fractions is needed.
        [first, second] if first.is_on(*node) && second.is_on(*node) => {
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

const HALF: i64 = MAX_NODE_SCORE / 2;

fn gain(with: i64, without: i64) -> i64 {
    HALF + (HALF + with - without) / 2
}

/// Adds the weighted result of [`score_in`] to the totals, 64 at a time. Returns those for which that is not possible;
/// `None` if it is not possible for any.
pub(super) fn add_scores(
    symbols: &Symbols,
    resources: &Resources,
    pod: &Pod,
    profile: &Profile,
    totals: Totals<'_>,
) -> Option<Vec<NodeId>> {
    match balanced_resources(symbols, resources, pod, profile).as_slice() {
        balanced if balanced.iter().all(|resource| resource.wanted == 0) => Some(Vec::new()),
        [first, second] => Some(totals.add_rows(|index| gains_in_row(first, second, index))),
        _ => None,
    }
}

/// The scores of a row of nodes for two resources. A node that lacks one of them gains nothing.
fn gains_in_row(first: &Amounts<'_>, second: &Amounts<'_>, index: usize) -> Option<[f64; LANES]> {
    let (first, second) = (first.row(index)?, second.row(index)?);
    let at_most_all = |fraction: f64| if fraction < 1.0 { fraction } else { 1.0 };
    let even = |first: f64, second: f64| {
        let deviation = ((at_most_all(first) - at_most_all(second)) / 2.0).abs();
        lanes::floor((1.0 - deviation) * MAX_NODE_SCORE as f64)
    };
    let half = HALF as f64;
    let mut gains = [0.0; LANES];
    for (lane, gain) in gains.iter_mut().enumerate() {
        let ((all_first, used_first), (all_second, used_second)) = (first.lane(lane), second.lane(lane));
        let without = even(used_first / all_first, used_second / all_second);
        let with = even(
            (used_first + first.wanted) / all_first,
            (used_second + second.wanted) / all_second,
        );
        let gained = if all_first == 0.0 { 0.0 } else { with - without };
        let gained = if all_second == 0.0 { 0.0 } else { gained };
        *gain = half + lanes::floor((half + gained) / 2.0);
    }
    Some(gains)
}

fn to_score(deviation: f64) -> i64 {
    ((1.0 - deviation) * MAX_NODE_SCORE as f64) as i64
}

fn balanced_resources<'a>(
    symbols: &Symbols,
    resources: &'a Resources,
    pod: &Pod,
    profile: &Profile,
) -> Vec<Amounts<'a>> {
    let requests = &pod.footprint.requests;
    let names = profile.balanced_resources.iter();
    names
        .filter_map(|name| {
            let (column, wanted) = match name.as_str() {
                "cpu" => (&resources.cpu, requests.cpu_milli),
                "memory" => (&resources.memory, requests.memory_bytes),
                "ephemeral-storage" => (&resources.ephemeral, requests.ephemeral_bytes),
                name => {
                    let name = symbols.get(name)?;
                    let (_, wanted) = requests.scalars.iter().find(|(found, _)| *found == name)?;
                    (resources.scalars.get(&name)?, *wanted)
                }
            };
            Some(Amounts {
                allocatable: &column.allocatable,
                used: &column.requested,
                wanted,
            })
        })
        .collect()
}

/// 100 if all resources are used to the same degree, and less the more they differ.
fn evenness(resources: &[Amounts<'_>], node: NodeId, with_pod: bool) -> i64 {
    let there = resources.iter().filter(|resource| resource.is_on(node));
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
