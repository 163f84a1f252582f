//! NodeResourcesFit: checks for enough free resources, and scores how much is left.

use super::lanes::{self, Amounts, LANES, MAX_EXACT, Totals};
use crate::cluster::{Cluster, Column, Resources};
use crate::framework::{Code, MAX_NODE_SCORE, PluginName, PreFilter, Refusal};
use crate::pod::{Pod, Requests};
use crate::profile::{Profile, ScoringForm};
use crate::reason::Reason;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbols;
use smallvec::SmallVec;

/// The pod's requests.
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
        let reasons_of_each = [
            Reason::InsufficientCpu,
            Reason::InsufficientMemory,
            Reason::InsufficientEphemeralStorage,
        ];
        for ((wanted, column), reason) in self.in_columns(resources).into_iter().zip(reasons_of_each) {
            let room = (column.free(node), column.allocatable[node.index()]);
            check(wanted, room, &|| reason.clone());
        }
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

    /// Whether a node is accepted: [`Self::filter`] without reasons.
    #[must_use]
    pub fn accepts(&self, cluster: &Cluster, node: NodeId) -> bool {
        let (resources, requests) = (cluster.resources(), &self.requests);
        let has_room = |wanted: i64, free: i64| wanted <= 0 || wanted <= free;
        resources.pods.free(node) >= 1
            && self
                .in_columns(resources)
                .iter()
                .all(|(wanted, column)| has_room(*wanted, column.free(node)))
            && requests
                .scalars
                .iter()
                .all(|(name, amount)| has_room(*amount, resources.scalar(*name, node).0))
    }

    /// What the pod requests of the resources that every node has, each with what nodes have of it.
    fn in_columns<'a>(&self, resources: &'a Resources) -> [(i64, &'a Column); 3] {
        [
            (self.requests.cpu_milli, &resources.cpu),
            (self.requests.memory_bytes, &resources.memory),
            (self.requests.ephemeral_bytes, &resources.ephemeral),
        ]
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        self.narrow_in(cluster.resources(), mask);
    }

    /// [`Self::narrow`] for anything that has the resources of nodes.
    pub(crate) fn narrow_in(&self, resources: &Resources, mask: &mut NodeMask) {
        let requests = &self.requests;
        keep_with_room(mask, &resources.pods, 1);
        for (wanted, column) in self.in_columns(resources) {
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

/// Processes 64 nodes at a time without branches, so that the compiler can use vector instructions.
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

/// One resource for scoring: offered and used amounts, what the pod adds, and its weight.
struct ScoredResource<'a> {
    amounts: Amounts<'a>,
    weight: i64,
}

fn scored_resources<'a>(
    symbols: &Symbols,
    resources: &'a Resources,
    pod: &Pod,
    profile: &Profile,
) -> Vec<ScoredResource<'a>> {
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
                    let name = symbols.get(name)?;
                    let column = resources.scalars.get(&name)?;
                    let requests = pod.footprint.requests.scalars.iter();
                    let wanted = requests.filter(|(found, _)| *found == name).map(|(_, amount)| *amount);
                    let wanted = wanted.sum();
                    // A resource that the pod does not request says nothing about the node.
                    if wanted == 0 {
                        return None;
                    }
                    (column, &column.requested, wanted)
                }
            };
            Some(ScoredResource {
                amounts: Amounts {
                    allocatable: &column.allocatable,
                    used,
                    wanted,
                },
                weight: *weight,
            })
        })
        .collect()
}

/// Scores nodes by the requested share of their resources, including the pod.
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
    let resources = scored_resources(symbols, resources, pod, profile);
    match &profile.scoring_strategy.form {
        ScoringForm::LeastAllocated => extend_with_means(&resources, nodes, least_allocated, out),
        ScoringForm::MostAllocated => extend_with_means(&resources, nodes, most_allocated, out),
        ScoringForm::RequestedToCapacityRatio(shape) => {
            let ratio = |used: i64, allocatable: i64| {
                let utilization = if used > allocatable {
                    MAX_NODE_SCORE
                } else {
                    share(used, allocatable)
                };
                shape.score(utilization)
            };
            // Only here, a resource with a score of zero is excluded from the mean.
            let ratio = |used, allocatable| Some(ratio(used, allocatable)).filter(|score| *score > 0);
            out.extend(nodes.iter().map(|node| match weigh(&resources, *node, ratio) {
                (_, 0) => 0,
                (sum, weights) => (sum as f64 / weights as f64).round() as i64,
            }));
        }
    }
    true
}

/// Adds the weighted result of [`score_in`] to the totals, 64 at a time. Returns those for which that is not possible.
pub(super) fn add_scores(
    symbols: &Symbols,
    resources: &Resources,
    pod: &Pod,
    profile: &Profile,
    totals: Totals<'_>,
) -> Vec<NodeId> {
    let resources = scored_resources(symbols, resources, pod, profile);
    let in_row = |index: usize| match &profile.scoring_strategy.form {
        ScoringForm::LeastAllocated => {
            means_in_row(&resources, index, |used, all| if used < all { all - used } else { 0.0 })
        }
        ScoringForm::MostAllocated => means_in_row(&resources, index, |used, all| if used < all { used } else { all }),
        ScoringForm::RequestedToCapacityRatio(_) => None,
    };
    totals.add_rows(in_row)
}

/// The truncated weighted means of the scores by resource, for a row of nodes. A score is the share of a part in the
/// total.
#[inline(always)]
fn means_in_row(
    resources: &[ScoredResource<'_>],
    index: usize,
    part: impl Fn(f64, f64) -> f64,
) -> Option<[f64; LANES]> {
    let (mut sums, mut weights) = ([0.0; LANES], [0.0; LANES]);
    for resource in resources {
        let (row, weight) = (resource.amounts.row(index)?, lanes::float(resource.weight)?);
        for lane in 0..LANES {
            let (all, used) = row.lane(lane);
            // A missing resource does not count: its part is 0.
            let (divisor, weight_there) = if all == 0.0 { (1.0, 0.0) } else { (all, weight) };
            sums[lane] += lanes::quotient(part(used + row.wanted, all) * MAX_NODE_SCORE as f64, divisor) * weight;
            weights[lane] += weight_there;
        }
    }
    for lane in 0..LANES {
        let divisor = if weights[lane] == 0.0 { 1.0 } else { weights[lane] };
        sums[lane] = lanes::quotient(sums[lane], divisor);
    }
    Some(sums)
}

/// Adds the truncated weighted mean of the scores by resource, for each node.
fn extend_with_means(
    resources: &[ScoredResource<'_>],
    nodes: &[NodeId],
    score: impl Fn(i64, i64) -> i64,
    out: &mut Vec<i64>,
) {
    let score = |used, allocatable| Some(score(used, allocatable));
    let mean = |(sum, weights): (i64, i64)| if weights == 0 { 0 } else { truncated(sum, weights) };
    // There are nearly always two: then the loop over them is unrolled.
    match resources {
        [first, second] => {
            let both = [first, second];
            out.extend(nodes.iter().map(|node| mean(weigh(both, *node, score))));
        }
        resources => out.extend(nodes.iter().map(|node| mean(weigh(resources, *node, score)))),
    }
}

/// The weighted sum of a node's scores by resource, and the sum of the weights. Missing resources do not count.
#[inline(always)]
fn weigh<'a>(
    resources: impl IntoIterator<Item = &'a ScoredResource<'a>>,
    node: NodeId,
    score: impl Fn(i64, i64) -> Option<i64>,
) -> (i64, i64) {
    let (mut sum, mut weights) = (0, 0);
    for ScoredResource { amounts, weight } in resources {
        let allocatable = amounts.allocatable[node.index()];
        if allocatable != 0 {
            let used = amounts.used[node.index()].saturating_add(amounts.wanted);
            if let Some(score) = score(used, allocatable) {
                sum += score * weight;
                weights += weight;
            }
        }
    }
    (sum, weights)
}

/// `part` of `whole` in hundredths, truncated. Neither is negative, and `part` is at most `whole`.
fn share(part: i64, whole: i64) -> i64 {
    if whole >= MAX_EXACT {
        return (i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(whole)) as i64;
    }
    truncated(part * MAX_NODE_SCORE, whole)
}

/// The truncated quotient of two amounts. Neither is negative or more than a hundred times the exact limit.
fn truncated(part: i64, whole: i64) -> i64 {
    // Integer division takes several times as long; the quotient is off by at most one.
    let quotient = (part as f64 / whole as f64) as i64;
    quotient - i64::from(quotient * whole > part)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{ScoringStrategy, Shape, ShapePoint};
    use berth_core::api::Object;
    use proptest::prelude::*;

    /// A node with 4 cores and 8Gi, for a pod that requests one core and 4Gi.
    fn check_form(form: ScoringForm, resources: &[(&str, i64)], expected: i64) {
        let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},
                       "status":{"allocatable":{"cpu":"4","memory":"8Gi","pods":"10"}}}"#;
        let pod = r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","memory":"4Gi"}}}]}}"#;
        let mut cluster = Cluster::default();
        let node = Object::decode(&serde_json::from_str(node).unwrap()).unwrap().unwrap();
        cluster.upsert(&node);
        let pod = cluster.compile(&serde_json::from_str(pod).unwrap());
        let mut profile = Profile::default();
        let resources = resources.iter().map(|(name, weight)| ((*name).to_owned(), *weight));
        profile.scoring_strategy = ScoringStrategy {
            form,
            resources: resources.collect(),
        };
        let mut scores = Vec::new();
        assert!(score(&cluster, &pod, &profile, &[NodeId(0)], &mut scores));
        assert_eq!(scores, [expected], "{:?}", profile.scoring_strategy);
    }

    #[test]
    fn forms_of_the_score() {
        let (even, uneven) = ([("cpu", 1), ("memory", 1)], [("cpu", 1), ("memory", 3)]);
        check_form(ScoringForm::LeastAllocated, &even, 62);
        check_form(ScoringForm::LeastAllocated, &uneven, 56);
        check_form(ScoringForm::LeastAllocated, &[("example.com/gpu", 1)], 0);
        check_form(ScoringForm::MostAllocated, &even, 37);
        let shape = |points: [(i64, i64); 2]| {
            let points = points.map(|(utilization, score)| ShapePoint { utilization, score });
            ScoringForm::RequestedToCapacityRatio(Shape::new(&points).unwrap())
        };
        check_form(shape([(0, 0), (100, 10)]), &even, 38);
        check_form(shape([(25, 0), (100, 10)]), &even, 33);
    }

    proptest! {
        #[test]
        fn shares_are_whole_quotients(whole in prop_oneof![1..1000_i64, 1..i64::MAX], part: prop::sample::Index) {
            let part = ((i128::from(whole) * part.index(1 << 20) as i128) >> 20) as i64;
            let expected = i128::from(part) * 100 / i128::from(whole);
            prop_assert_eq!(i128::from(share(part, whole)), expected);
            prop_assert_eq!(share(whole, whole), 100);
        }
    }

    #[test]
    fn shares_do_not_overflow() {
        assert_eq!(share(i64::MAX, i64::MAX), 100);
        assert_eq!(least_allocated(0, i64::MAX), 100);
    }
}
