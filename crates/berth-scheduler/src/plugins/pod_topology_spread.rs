//! PodTopologySpread: spreads pods of one kind evenly over the values of a node label.

use super::{node_affinity, taint_toleration};
use crate::cluster::{Cluster, PodClause, PodQuery, QueryId, Scope, TopologyColumn};
use crate::framework::{MAX_NODE_SCORE, PluginName, PreFilter, Refusal};
use crate::pod::{Pod, SpreadConstraint};
use crate::profile::Profile;
use crate::reason::Reason;
use berth_core::api::TopologySpreadConstraint;
use berth_core::mask::NodeMask;
use berth_core::names;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;

/// The hard constraints, with pods counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    constraints: Vec<Counted>,
}

/// A hard constraint with its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    topology_key: Symbol,
    /// Domains that are too full, by number.
    too_full: Vec<bool>,
}

/// Skips pods without hard constraints.
pub fn pre_filter(cluster: &mut Cluster, pod: &Pod, profile: &Profile) -> PreFilter<State> {
    let constraints = constraints(cluster, pod, profile, Action::DoNotSchedule);
    if constraints.is_empty() {
        return PreFilter::Skip;
    }
    ensure_topologies(cluster, &constraints);
    let with_all_keys = nodes_with_keys(cluster, &constraints);
    let constraints = constraints
        .iter()
        .map(|constraint| {
            let eligible = eligible_nodes(cluster, pod, profile, constraint, &with_all_keys);
            count(cluster, pod, constraint, &eligible)
        })
        .collect();
    PreFilter::ready(State { constraints })
}

fn ensure_topologies(cluster: &mut Cluster, constraints: &[SpreadConstraint]) {
    for constraint in constraints {
        cluster.ensure_topology(constraint.topology_key);
    }
}

/// The nodes that have the keys of all constraints: only they form domains.
fn nodes_with_keys(cluster: &Cluster, constraints: &[SpreadConstraint]) -> NodeMask {
    let mut nodes = cluster.all_nodes().clone();
    for constraint in constraints {
        let column = cluster.topology().column(constraint.topology_key);
        nodes.retain(|node| column.domain(node).is_some());
    }
    nodes
}

/// The nodes among these that a constraint counts.
fn eligible_nodes(
    cluster: &Cluster,
    pod: &Pod,
    profile: &Profile,
    constraint: &SpreadConstraint,
    nodes: &NodeMask,
) -> NodeMask {
    let mut eligible = nodes.clone();
    if constraint.honor_affinity {
        for selector in node_affinity::required(pod) {
            let nodes = cluster.nodes();
            eligible.intersect(&NodeMask::of(nodes, nodes.matching(selector)));
        }
    }
    if constraint.honor_taints {
        for list in cluster.taints().lists() {
            if !taint_toleration::tolerates_all(cluster, pod, profile, list) {
                eligible.remove_all(&list.nodes);
            }
        }
    }
    eligible
}

/// The pods that a constraint counts, by node.
fn matching_pods(cluster: &mut Cluster, pod: &Pod, constraint: &SpreadConstraint) -> Option<QueryId> {
    if !constraint.counts_pods() {
        return None;
    }
    Some(cluster.ask(&PodQuery {
        clauses: smallvec![PodClause {
            scope: Scope::Names(smallvec![pod.footprint.namespace]),
            selector: constraint.selector.clone(),
        }],
        without_terminating: true,
    }))
}

/// Sums counts by domain, over the nodes in a set.
fn by_domain<'a>(
    column: &TopologyColumn,
    counts: impl IntoIterator<Item = (&'a NodeId, &'a u32)>,
    nodes: &NodeMask,
) -> Vec<i64> {
    let mut sums = vec![0; column.len()];
    for (node, pods) in counts {
        if nodes.contains(*node)
            && let Some(domain) = column.domain(*node)
        {
            sums[domain] += i64::from(*pods);
        }
    }
    sums
}

fn count(cluster: &mut Cluster, pod: &Pod, constraint: &SpreadConstraint, eligible: &NodeMask) -> Counted {
    let query = matching_pods(cluster, pod, constraint);
    let counts = query.into_iter().flat_map(|query| cluster.answer(query));
    let column = cluster.topology().column(constraint.topology_key);
    let sums = by_domain(column, counts, eligible);
    let mut known = vec![false; column.len()];
    for domain in eligible.iter().filter_map(|node| column.domain(node)) {
        known[domain] = true;
    }
    let known_counts = sums.iter().zip(&known).filter(|(_, known)| **known);
    let emptiest = if (known_counts.clone().count() as i64) < constraint.min_domains {
        0
    } else {
        known_counts.map(|(sum, _)| *sum).min().unwrap_or(0)
    };
    let own = i64::from(constraint.matches_self);
    let too_full = |sum: &i64| sum + own - emptiest > constraint.max_skew;
    Counted {
        topology_key: constraint.topology_key,
        too_full: sums.iter().map(too_full).collect(),
    }
}

impl State {
    /// Whether a node is refused, and why.
    #[must_use]
    pub fn filter(&self, cluster: &Cluster, node: NodeId) -> Option<Refusal> {
        let plugin = PluginName::PodTopologySpread;
        self.constraints.iter().find_map(|constraint| {
            match cluster.topology().column(constraint.topology_key).domain(node) {
                None => Some(Refusal::unresolvable(plugin, Reason::SpreadLabelMissing)),
                Some(domain) if constraint.too_full[domain] => {
                    Some(Refusal::unschedulable(plugin, Reason::SpreadTooUneven))
                }
                Some(_) => None,
            }
        })
    }

    /// Keeps the nodes that are not refused.
    pub fn narrow(&self, cluster: &Cluster, mask: &mut NodeMask) {
        for constraint in &self.constraints {
            let column = cluster.topology().column(constraint.topology_key);
            mask.retain(|node| column.domain(node).is_some_and(|domain| !constraint.too_full[domain]));
        }
    }
}

/// A soft constraint with its scoring data.
struct Weighed {
    topology_key: Symbol,
    weight: f64,
    allowance: f64,
    counts: SoftCounts,
}

/// Number of pods by domain, or by node for host names. Both are columns: every node is considered.
enum SoftCounts {
    ByDomain(Vec<i64>),
    ByNode(Vec<u32>),
}

/// What becomes of a node that would break a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is refused.
    DoNotSchedule,
    /// It is scored lower.
    ScheduleAnyway,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::DoNotSchedule => "DoNotSchedule",
            Self::ScheduleAnyway => "ScheduleAnyway",
        }
    }
}

/// Whether a pod has constraints with an action, its own or by default.
#[must_use]
pub fn has_constraints(cluster: &Cluster, pod: &Pod, profile: &Profile, action: Action) -> bool {
    if pod.has_spread_constraints() {
        return !own_constraints(pod, action).is_empty();
    }
    defaults(profile, action).next().is_some() && cluster.workloads().has_selector_for(pod)
}

fn own_constraints(pod: &Pod, action: Action) -> &[SpreadConstraint] {
    match action {
        Action::DoNotSchedule => &pod.hard_spread,
        Action::ScheduleAnyway => &pod.soft_spread,
    }
}

fn defaults(profile: &Profile, action: Action) -> impl Iterator<Item = &TopologySpreadConstraint> {
    let constraints = profile.default_spread.constraints.iter();
    constraints.filter(move |constraint| constraint.when_unsatisfiable == action.name())
}

/// The constraints of a pod with an action. A pod that has none of its own gets those of the profile.
fn constraints<'a>(
    cluster: &mut Cluster,
    pod: &'a Pod,
    profile: &Profile,
    action: Action,
) -> Cow<'a, [SpreadConstraint]> {
    if pod.has_spread_constraints() || defaults(profile, action).next().is_none() {
        return Cow::Borrowed(own_constraints(pod, action));
    }
    let Some(selector) = cluster.workloads().selector_for(pod) else {
        return Cow::Borrowed(&[]);
    };
    let labels = &pod.footprint.labels;
    let symbols = cluster.binder_mut().symbols_mut();
    defaults(profile, action)
        .map(|constraint| SpreadConstraint {
            matches_self: selector.matches(labels),
            selector: selector.clone(),
            ..SpreadConstraint::new(symbols, labels, constraint)
        })
        .collect()
}

/// Scores nodes by how few pods their domains have; skips pods without soft constraints.
pub fn score(cluster: &mut Cluster, pod: &Pod, profile: &Profile, nodes: &[NodeId], out: &mut Vec<i64>) -> bool {
    let constraints = constraints(cluster, pod, profile, Action::ScheduleAnyway);
    if constraints.is_empty() {
        return false;
    }
    ensure_topologies(cluster, &constraints);
    let counts_all = !pod.has_spread_constraints() && profile.default_spread.counts_nodes_without_labels;
    let counted = if counts_all {
        cluster.all_nodes().clone()
    } else {
        nodes_with_keys(cluster, &constraints)
    };
    let scored: Vec<NodeId> = nodes.iter().copied().filter(|node| counted.contains(*node)).collect();
    let weighed: SmallVec<[Weighed; 2]> = constraints
        .iter()
        .map(|constraint| weigh(cluster, pod, profile, constraint, &counted, &scored))
        .collect();
    let columns: SmallVec<[_; 2]> = weighed
        .iter()
        .map(|constraint| (constraint, cluster.topology().column(constraint.topology_key)))
        .collect();
    out.extend(nodes.iter().map(|node| {
        if !counted.contains(*node) {
            return IGNORED;
        }
        let mut sum = 0.0;
        for (constraint, column) in &columns {
            let Some(domain) = column.domain(*node) else {
                continue;
            };
            let count = match &constraint.counts {
                SoftCounts::ByNode(counts) => counts[node.index()].into(),
                SoftCounts::ByDomain(counts) => counts[domain],
            };
            sum += count as f64 * constraint.weight + constraint.allowance;
        }
        sum.round() as i64
    }));
    normalize(out);
    true
}

/// The raw score of a node that lacks a key; no raw score is negative.
const IGNORED: i64 = -1;

fn weigh(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    constraint: &SpreadConstraint,
    counted: &NodeMask,
    scored: &[NodeId],
) -> Weighed {
    let eligible = eligible_nodes(cluster, pod, profile, constraint, counted);
    let is_host = cluster.symbols().get(names::HOSTNAME) == Some(constraint.topology_key);
    let query = matching_pods(cluster, pod, constraint);
    let column = cluster.topology().column(constraint.topology_key);
    let pods = query.into_iter().flat_map(|query| cluster.answer(query));
    let (size, counts) = if is_host {
        let mut counts = vec![0; cluster.nodes().column_length()];
        pods.for_each(|(node, pods)| counts[node.index()] = *pods);
        (scored.len(), SoftCounts::ByNode(counts))
    } else {
        let mut seen = vec![false; column.len()];
        for domain in scored.iter().filter_map(|node| column.domain(*node)) {
            seen[domain] = true;
        }
        // Nodes without the label form one more domain, if they count.
        let elsewhere = scored.iter().any(|node| column.domain(*node).is_none());
        let size = seen.iter().filter(|seen| **seen).count() + usize::from(elsewhere);
        (size, SoftCounts::ByDomain(by_domain(column, pods, &eligible)))
    };
    Weighed {
        topology_key: constraint.topology_key,
        weight: (size as f64 + 2.0).ln(),
        allowance: (constraint.max_skew - 1) as f64,
        counts,
    }
}

fn normalize(scores: &mut [i64]) {
    let counted = scores.iter().copied().filter(|score| *score != IGNORED);
    let (min, max) = (counted.clone().min().unwrap_or(0), counted.max().unwrap_or(0));
    for score in scores {
        *score = match *score {
            IGNORED => 0,
            _ if max == 0 => MAX_NODE_SCORE,
            raw => MAX_NODE_SCORE * (max + min - raw) / max,
        };
    }
}
