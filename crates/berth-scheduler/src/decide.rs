//! Finds the best node for a pod: the nodes are narrowed down by every filter plugin, then scored.
//!
//! Every node is looked at; there is no sampling. What is needed from pod to pod is kept in a [`Scratch`], so that a
//! decision does not allocate for each node.

use crate::cluster::Cluster;
use crate::diagnose::{self, Diagnosis};
use crate::framework::{Code, PluginName, PreFilter, Refusal};
use crate::nominated::{Nominated, Question};
use crate::plugins::{self, FilterState, ScoreContext};
use crate::pod::Pod;
use crate::profile::Profile;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;

/// What comes of a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It can run, and where it does best.
    Place(Placement),
    /// It can run nowhere, and why.
    Refuse(Box<Diagnosis>),
}

/// The best node for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// Its total score.
    pub total: i64,
    /// How many nodes fit.
    pub fitting: usize,
}

/// What decisions keep from pod to pod: buffers, and the source of chance that breaks ties.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// What the filter plugins found out about the last pod.
    pub states: Vec<FilterState>,
    mask: NodeMask,
    nodes: Vec<NodeId>,
    scores: Vec<i64>,
    totals: Vec<i64>,
    chance: u64,
}

impl Scratch {
    /// Empty buffers. The same seed and the same pods give the same decisions.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            states: Vec::new(),
            mask: NodeMask::default(),
            nodes: Vec::new(),
            scores: Vec::new(),
            totals: Vec::new(),
            chance: seed,
        }
    }

    /// The next number of the sequence that the seed starts (SplitMix64).
    fn next_number(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.chance ^ (self.chance >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What the plugins say before any node is looked at.
pub(crate) struct PreFiltered {
    /// The refusal that counts, if any.
    pub(crate) refusal: Option<Refusal>,
    /// Plugins that restrict the nodes, with the names of those that are left.
    pub(crate) only_nodes: Vec<(PluginName, Box<[Symbol]>)>,
}

/// Finds the best node for a pod.
pub fn decide(cluster: &mut Cluster, pod: &Pod, profile: &Profile, scratch: &mut Scratch) -> Decision {
    decide_beside(cluster, pod, profile, scratch, &Nominated::default())
}

/// Finds the best node for a pod that leaves the room alone that others wait for. The node on which room was made
/// for the pod itself is taken if it fits.
pub fn decide_beside(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    nominated: &Nominated<'_>,
) -> Decision {
    let mut promised = Vec::new();
    let pre_filtered = pre_filter(cluster, pod, profile, &mut scratch.states);
    scratch.nodes.clear();
    if pre_filtered.refusal.is_none() {
        scratch.mask.copy_from(cluster.all_nodes());
        for (_, names) in &pre_filtered.only_nodes {
            keep_only(cluster, names, &mut scratch.mask);
        }
        for state in &scratch.states {
            state.narrow(cluster, &mut scratch.mask);
        }
        let question = Question {
            pod,
            profile,
            states: &scratch.states,
            nominated,
        };
        for node in nominated.nodes() {
            if scratch.mask.contains(node)
                && let Some(refusal) = question.refusal_beside(cluster, node)
            {
                scratch.mask.remove(node);
                promised.push((node, refusal));
            }
        }
        match nominated.own.filter(|own| scratch.mask.contains(*own)) {
            Some(own) => scratch.nodes.push(own),
            None => scratch.nodes.extend(scratch.mask.iter()),
        }
    }
    if scratch.nodes.is_empty() {
        let diagnosis = diagnose::diagnose(cluster, &scratch.states, pre_filtered, &promised);
        return Decision::Refuse(Box::new(diagnosis));
    }
    score(cluster, pod, profile, scratch);
    Decision::Place(choose(scratch))
}

/// Asks every filter plugin about the pod. A refusal that nothing can resolve ends the asking, another one does not.
fn pre_filter(cluster: &mut Cluster, pod: &Pod, profile: &Profile, states: &mut Vec<FilterState>) -> PreFiltered {
    states.clear();
    let mut pre_filtered = PreFiltered {
        refusal: None,
        only_nodes: Vec::new(),
    };
    for plugin in &profile.filters {
        match plugins::pre_filter(*plugin, cluster, pod, profile) {
            PreFilter::Skip => {}
            PreFilter::Refused(refusal) => {
                let resolvable = refusal.code == Code::Unschedulable;
                if !resolvable {
                    pre_filtered.refusal = Some(refusal);
                    return pre_filtered;
                }
                pre_filtered.refusal.get_or_insert(refusal);
            }
            PreFilter::Ready { state, only_nodes } => {
                states.push(state);
                pre_filtered.only_nodes.extend(only_nodes.map(|nodes| (*plugin, nodes)));
            }
        }
    }
    pre_filtered
}

fn keep_only(cluster: &Cluster, names: &[Symbol], mask: &mut NodeMask) {
    let mut named = NodeMask::none(cluster.nodes());
    for node in names.iter().filter_map(|name| cluster.nodes().id(*name)) {
        named.insert(node);
    }
    mask.intersect(&named);
}

fn score(cluster: &mut Cluster, pod: &Pod, profile: &Profile, scratch: &mut Scratch) {
    scratch.totals.clear();
    scratch.totals.resize(scratch.nodes.len(), 0);
    if scratch.nodes.len() == 1 {
        return;
    }
    let mut context = ScoreContext {
        cluster,
        pod,
        profile,
        states: &scratch.states,
        nodes: &scratch.nodes,
    };
    for (plugin, weight) in &profile.scores {
        if plugins::score(*plugin, &mut context, &mut scratch.scores) {
            for (total, score) in scratch.totals.iter_mut().zip(&scratch.scores) {
                *total += weight * score;
            }
        }
    }
}

/// The highest total; of several, one by chance.
fn choose(scratch: &mut Scratch) -> Placement {
    let best = scratch.totals.iter().copied().max().unwrap_or(0);
    let equals = scratch.totals.iter().filter(|total| **total == best).count();
    let chosen = match equals {
        0 | 1 => 0,
        equals => (scratch.next_number() % equals as u64) as usize,
    };
    let mut fitting = scratch.nodes.iter().zip(&scratch.totals);
    let node = fitting.by_ref().filter(|(_, total)| **total == best).nth(chosen);
    Placement {
        node: node.map_or(NodeId(0), |(node, _)| *node),
        total: best,
        fitting: scratch.nodes.len(),
    }
}
