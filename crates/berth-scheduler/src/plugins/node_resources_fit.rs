//! NodeResourcesFit: room for what the pod asks for, and a score for how much room is left.

use crate::cluster::{Cluster, Column};
use crate::framework::{Code, MAX_NODE_SCORE, PluginName, PreFilter, Refusal};
use crate::pod::{Pod, Requests};
use crate::profile::{Profile, ScoringForm, ShapePoint};
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use smallvec::SmallVec;

/// What the pod asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    requests: Requests,
}

/// Never skips: a node can always be full.
#[must_use]
pub fn pre_filter(pod: &Pod) -> PreFilter<State> {
    let mut requests = pod.footprint.requests.clone();
    requests.scalars.retain(|(_, amount)| *amount > 0);
    PreFilter::ready(State { requests })
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let (resources, requests) = (cluster.resources(), &self.requests);
        let mut reasons = SmallVec::new();
        let mut code = Code::Unschedulable;
        if resources.pods.free(node) < 1 {
            reasons.push(Reason::TooManyPods);
        }
        let mut check = |wanted: i64, (free, allocatable): (i64, i64), reason: &dyn Fn() -> Reason| {
            if wanted > 0 && wanted > free {
                reasons.push(reason());
                if wanted > allocatable {
                    code = Code::UnschedulableAndUnresolvable;
                }
            }
        };
        let of = |column: &Column| (column.free(node), column.allocatable[node.index()]);
        check(requests.cpu_milli, of(&resources.cpu), &|| Reason::InsufficientCpu);
        check(requests.memory_bytes, of(&resources.memory), &|| {
            Reason::InsufficientMemory
        });
        check(requests.ephemeral_bytes, of(&resources.ephemeral), &|| {
            Reason::InsufficientEphemeralStorage
        });
        let symbols = cluster.symbols();
        for (name, amount) in &requests.scalars {
            check(*amount, resources.scalar(*name, node), &|| {
                Reason::InsufficientResource {
                    resource: symbols.text(*name).into(),
                }
            });
        }
        (!reasons.is_empty()).then_some(Refusal {
            plugin: PluginName::NodeResourcesFit,
            code,
            reasons,
        })
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        let (resources, requests) = (cluster.resources(), &self.requests);
        keep_with_room(mask, &resources.pods, 1);
        for (wanted, column) in [
            (requests.cpu_milli, &resources.cpu),
            (requests.memory_bytes, &resources.memory),
            (requests.ephemeral_bytes, &resources.ephemeral),
        ] {
            if wanted > 0 {
                keep_with_room(mask, column, wanted);
            }
        }
        for (name, amount) in &requests.scalars {
            match resources.scalars.get(name) {
                Some(column) => keep_with_room(mask, column, *amount),
                None => mask.words_mut().fill(0),
            }
        }
    }
}

/// Works through 64 nodes at a time without branches, so that the compiler can use vector instructions.
fn keep_with_room(mask: &mut NodeMask, column: &Column, wanted: i64) {
    let allocatable = column.allocatable.chunks(64);
    let requested = column.requested.chunks(64);
    for (word, (allocatable, requested)) in mask.words_mut().iter_mut().zip(allocatable.zip(requested)) {
        if *word == 0 {
            continue;
        }
        let mut room = 0_u64;
        for (bit, (allocatable, requested)) in allocatable.iter().zip(requested).enumerate() {
            room |= u64::from(allocatable.saturating_sub(*requested) >= wanted) << bit;
        }
        *word &= room;
    }
}

/// One resource as scoring sees it: what nodes offer, what is used of it, what the pod adds, and its weight.
struct ScoredResource<'a> {
    allocatable: &'a [i64],
    used: &'a [i64],
    wanted: i64,
    weight: i64,
}

fn scored_resources<'a>(cluster: &'a Cluster, pod: &Pod, profile: &Profile) -> Vec<ScoredResource<'a>> {
    let resources = cluster.resources();
    let scored = profile.scoring_strategy.resources.iter();
    scored
        .filter_map(|(name, weight)| {
            let (column, used, wanted) = match name.as_str() {
                "cpu" => (&resources.cpu, &resources.scoring_cpu, pod.scoring.cpu_milli),
                "memory" => (&resources.memory, &resources.scoring_memory, pod.scoring.memory_bytes),
                "ephemeral-storage" => (
                    &resources.ephemeral,
                    &resources.ephemeral.requested,
                    pod.footprint.requests.ephemeral_bytes,
                ),
                name => {
                    let name = cluster.symbols().get(name)?;
                    let column = resources.scalars.get(&name)?;
                    let requests = pod.footprint.requests.scalars.iter();
                    let wanted = requests.filter(|(found, _)| *found == name).map(|(_, amount)| *amount);
                    let wanted = wanted.sum();
                    // A resource that the pod does not ask for says nothing about the node.
                    if wanted == 0 {
                        return None;
                    }
                    (column, &column.requested, wanted)
                }
            };
            Some(ScoredResource {
                allocatable: &column.allocatable,
                used,
                wanted,
                weight: *weight,
            })
        })
        .collect()
}

/// Scores nodes by how much of their resources is asked for, the pod included.
pub fn score(cluster: &Cluster, pod: &Pod, profile: &Profile, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let resources = scored_resources(cluster, pod, profile);
    let mean = |node: &NodeId, score: &dyn Fn(i64, i64) -> i64| {
        let (mut sum, mut weights) = (0, 0);
        for resource in &resources {
            let allocatable = resource.allocatable[node.index()];
            if allocatable != 0 {
                let used = resource.used[node.index()].saturating_add(resource.wanted);
                sum += score(used, allocatable) * resource.weight;
                weights += resource.weight;
            }
        }
        (sum, weights)
    };
    let truncated = |(sum, weights)| if weights == 0 { 0 } else { sum / weights };
    match &profile.scoring_strategy.form {
        ScoringForm::LeastAllocated => {
            out.extend(nodes.iter().map(|node| truncated(mean(node, &least_allocated))));
        }
        ScoringForm::MostAllocated => {
            out.extend(nodes.iter().map(|node| truncated(mean(node, &most_allocated))));
        }
        ScoringForm::RequestedToCapacityRatio(shape) => {
            let ratio = |used: i64, allocatable: i64| {
                let utilization = if used > allocatable {
                    MAX_NODE_SCORE
                } else {
                    share(used, allocatable)
                };
                broken_line(shape, utilization)
            };
            out.extend(nodes.iter().map(|node| match mean(node, &ratio) {
                (_, 0) => 0,
                (sum, weights) => (sum as f64 / weights as f64).round() as i64,
            }));
        }
    }
    true
}

/// `part` of `whole` in hundredths, truncated.
fn share(part: i64, whole: i64) -> i64 {
    match part.checked_mul(MAX_NODE_SCORE) {
        Some(scaled) => scaled / whole,
        None => (i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(whole)) as i64,
    }
}

fn least_allocated(used: i64, allocatable: i64) -> i64 {
    if used > allocatable {
        0
    } else {
        share(allocatable - used, allocatable)
    }
}

fn most_allocated(used: i64, allocatable: i64) -> i64 {
    share(used.min(allocatable), allocatable)
}

/// A broken line from utilization to a score of 0 to 100, flat outside its points.
#[must_use]
pub fn broken_line(shape: &[ShapePoint], utilization: i64) -> i64 {
    let scaled = |point: &ShapePoint| point.score * (MAX_NODE_SCORE / 10);
    let (Some(first), Some(last)) = (shape.first(), shape.last()) else {
        return 0;
    };
    if utilization <= first.utilization {
        return scaled(first);
    }
    for pair in shape.windows(2) {
        let [from, to] = pair else { continue };
        if utilization <= to.utilization {
            let rise = scaled(to) - scaled(from);
            return scaled(from) + rise * (utilization - from.utilization) / (to.utilization - from.utilization);
        }
    }
    scaled(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_line_truncates_towards_zero() {
        let shape = [(0, 10), (30, 3)].map(|(utilization, score)| ShapePoint { utilization, score });
        assert_eq!(broken_line(&shape, -1), 100);
        assert_eq!(broken_line(&shape, 0), 100);
        assert_eq!(broken_line(&shape, 1), 98, "100 - 70 / 30, truncated to 100 - 2");
        assert_eq!(broken_line(&shape, 31), 30);
    }

    #[test]
    fn shares_do_not_overflow() {
        assert_eq!(share(i64::MAX, i64::MAX), 100);
        assert_eq!(least_allocated(0, i64::MAX), 100);
    }
}
