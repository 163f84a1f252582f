//! Preemption: which pods of lower priority would have to be evicted so that a pod fits.
//!
//! ```text
//!   refused nodes ──eviction could help──▶ dry run: remove all lesser pods ─fits─▶ reprieve all that can stay
//!                                                                                        │
//!                                     the best node by kube-scheduler's rules ◀──victims─┘
//! ```
//!
//! Nothing is evicted here: the result is a value, and every dry run is reverted.

use crate::cluster::{Cluster, Lifted, PodId};
use crate::diagnose::{Diagnosis, NO_VICTIMS, NOT_HELPFUL};
use crate::framework::{Code, PluginName, PluginSet, Refusal};
use crate::nominated::Question;
use berth_core::nodes::NodeId;
use std::cmp::Reverse;

/// Dry runs stop when this many nodes were found, or a tenth of those that could help if that is more: enough for a
/// good choice, and few enough that a full cluster of thousands of nodes does not delay other pods.
const ENOUGH_CANDIDATES: usize = 100;

/// What preemption can do for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preemption {
    /// It is not tried, with the reason if it should be reported.
    NotTried(Option<String>),
    /// No eviction would help: these plugins refuse the pod even without all less important pods.
    Helpless(String, PluginSet),
    /// One of these evictions would do. At least one.
    Evict(Vec<Candidate>),
}

/// A node that fits the pod without its victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeId,
    /// The pods to evict, most important first. At least one.
    pub victims: Vec<PodId>,
    /// How many of them violate their disruption budgets.
    pub violations: usize,
}

/// Finds the evictions that would let a pod fit that was refused everywhere; [`best`] is the least costly one.
pub fn preempt(cluster: &mut Cluster, question: &Question<'_>, diagnosis: &Diagnosis) -> Preemption {
    if !question.profile.preempts || diagnosis.is_aborted() || diagnosis.node_count == 0 {
        return Preemption::NotTried(None);
    }
    if let Some(problem) = ineligible(cluster, question, diagnosis) {
        return Preemption::NotTried(Some(format!("preemption: not eligible due to {problem}.")));
    }
    let resolvable = diagnosis.nodes.iter();
    let resolvable = resolvable.filter(|(_, refusal)| refusal.code == Code::Unschedulable);
    let enough = ENOUGH_CANDIDATES.max(resolvable.count() / 10);
    let mut candidates = Vec::new();
    let mut reasons = Vec::new();
    let mut refused_by = PluginSet::default();
    if diagnosis.early.is_some() {
        reasons.resize(diagnosis.node_count, NOT_HELPFUL.to_owned());
    }
    // Without priorities, thousands of nodes need not be examined to find no victim.
    let lowest = cluster.pods().lowest_priority();
    let any_lesser = lowest.is_some_and(|lowest| lowest < question.pod.footprint.priority);
    for (node, refusal) in &diagnosis.nodes {
        if refusal.code != Code::Unschedulable {
            reasons.push(NOT_HELPFUL.to_owned());
            continue;
        }
        if !any_lesser {
            reasons.push(NO_VICTIMS.to_owned());
            continue;
        }
        match dry_run(cluster, question, *node) {
            Ok(candidate) => candidates.push(candidate),
            Err((why, plugin)) => {
                reasons.extend(why);
                plugin.into_iter().for_each(|plugin| refused_by.insert(plugin));
            }
        }
        let harmless = |candidate: &Candidate| candidate.violations == 0;
        if candidates.len() >= enough && candidates.iter().any(harmless) {
            break;
        }
    }
    if candidates.is_empty() {
        return Preemption::Helpless(diagnosis.preemption_refusal(reasons), refused_by);
    }
    Preemption::Evict(candidates)
}

/// Why a pod may not preempt others, if so.
fn ineligible(cluster: &Cluster, question: &Question<'_>, diagnosis: &Diagnosis) -> Option<&'static str> {
    if question.pod.never_preempts {
        return Some("preemptionPolicy=Never");
    }
    let node = question.nominated.own?;
    let mut refusals = diagnosis.nodes.iter();
    let refusal = refusals
        .find(|(refused, _)| *refused == node)
        .map(|(_, refusal)| refusal);
    if refusal.is_some_and(|refusal| refusal.code == Code::UnschedulableAndUnresolvable) {
        return None;
    }
    // A pod that is deleted for another reason may take its time; its room was not made for this one.
    let priority = question.pod.footprint.priority;
    let mut pods = cluster.pods().of_node(cluster.nodes().name(node));
    pods.any(|(_, running)| running.footprint.preempted && running.footprint.priority < priority)
        .then_some("a terminating pod on the nominated node")
}

/// A possible victim.
struct Lesser {
    pod: PodId,
    violates: bool,
    lifted: Option<Lifted>,
}

/// Why preemption does not help, and which plugin still refuses the pod.
type Hopeless = (Vec<String>, Option<PluginName>);

/// The victims on a node, or the reasons why preemption does not help there. The cluster is unchanged afterwards.
fn dry_run(cluster: &mut Cluster, question: &Question<'_>, node: NodeId) -> Result<Candidate, Hopeless> {
    let hopeless = |refusal: &Refusal| (words(refusal), Some(refusal.plugin));
    let mut lesser = lesser_pods(cluster, question, node);
    if lesser.is_empty() {
        return Err((vec![NO_VICTIMS.to_owned()], None));
    }
    if let Some(refusal) = question.lasting_refusal(cluster, node) {
        return Err(hopeless(&refusal));
    }
    for pod in &mut lesser {
        pod.lifted = cluster.lift(pod.pod);
    }
    let refusal = question.refusal(cluster, node);
    if refusal.is_none() {
        reprieve(cluster, question, node, &mut lesser);
    }
    let mut candidate = Candidate {
        node,
        victims: Vec::new(),
        violations: 0,
    };
    for pod in lesser {
        if let Some(lifted) = pod.lifted {
            cluster.put_back(lifted);
            candidate.victims.push(pod.pod);
            candidate.violations += usize::from(pod.violates);
        }
    }
    match refusal {
        Some(refusal) => Err(hopeless(&refusal)),
        None if candidate.victims.is_empty() => Err((vec![NO_VICTIMS.to_owned()], None)),
        None => Ok(candidate),
    }
}

/// The pods of lower priority on a node, most important first.
fn lesser_pods(cluster: &Cluster, question: &Question<'_>, node: NodeId) -> Vec<Lesser> {
    let priority = question.pod.footprint.priority;
    let pods = cluster.pods().of_node(cluster.nodes().name(node));
    let mut lesser: Vec<_> = pods.filter(|(_, pod)| pod.footprint.priority < priority).collect();
    lesser.sort_by_key(|(_, pod)| {
        (
            Reverse(pod.footprint.priority),
            pod.footprint.started,
            &pod.footprint.name,
        )
    });
    let footprints = lesser.iter().map(|(_, pod)| &*pod.footprint);
    let violations = cluster.budgets().violations(footprints);
    let lesser = lesser.iter().zip(violations);
    lesser
        .map(|((pod, _), violates)| Lesser {
            pod: *pod,
            violates,
            lifted: None,
        })
        .collect()
}

/// Returns the pods next to which the pod still fits: first those whose budgets would be violated, and more important
/// ones first.
fn reprieve(cluster: &mut Cluster, question: &Question<'_>, node: NodeId, lesser: &mut [Lesser]) {
    for violating in [true, false] {
        for pod in lesser.iter_mut().filter(|pod| pod.violates == violating) {
            let Some(lifted) = pod.lifted.take() else {
                continue;
            };
            cluster.put_back(lifted);
            if question.refusal(cluster, node).is_some() {
                pod.lifted = cluster.lift(pod.pod);
            }
        }
    }
}

/// The node to choose: the fewest violated budgets, the least important victims, and the first of equal ones.
#[must_use]
pub fn best(cluster: &Cluster, candidates: Vec<Candidate>) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let pods = candidate.victims.iter().filter_map(|pod| cluster.pods().get(*pod));
        let victims: Vec<_> = pods.map(|pod| &*pod.footprint).collect();
        let highest = victims.iter().map(|victim| victim.priority).max();
        // Negative priorities must not make more victims look better.
        let above_lowest = |priority: i32| i64::from(priority) - i64::from(i32::MIN) + 1;
        let sum: i64 = victims.iter().map(|victim| above_lowest(victim.priority)).sum();
        let most_important = victims.iter().filter(|victim| Some(victim.priority) == highest);
        let started = most_important.map(|victim| victim.started).min();
        (candidate.violations, highest, sum, victims.len(), Reverse(started))
    })
}

fn words(refusal: &Refusal) -> Vec<String> {
    refusal.reasons.iter().map(ToString::to_string).collect()
}
