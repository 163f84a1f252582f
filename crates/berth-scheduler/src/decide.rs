//! Finds the best node for a pod: every filter plugin narrows the nodes down, then they are scored.
//!
//! Verdicts and scores that depend only on the pod's class and the node are cached (see [`equivalence`]); the rest is
//! computed here. Every node is considered, unless the profile asks for a sample. State between pods is kept in a
//! [`Scratch`], so that a decision does not allocate per node.

use crate::chance::Chance;
use crate::cluster::Cluster;
use crate::diagnose::{self, Diagnosis};
use crate::equivalence::{self, Equivalence, SharingCounts, Verdicts};
use crate::extender::NodeAdvice;
use crate::framework::{Code, PluginName, PreFilter, Refusal};
use crate::nominated::{Nominated, Question};
use crate::plugins::{self, FilterState, Outlook, ScoreContext};
use crate::pod::Pod;
use crate::profile::Profile;
use crate::sampler::Sampler;
use crate::stopwatch::{ExtensionPoint, NoStopwatch, Stopwatch};
use berth_core::binder::NodeVolumes;
use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use smallvec::SmallVec;

/// The result for a pod.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It can run, and this is the best node.
    Place(Placement),
    /// It cannot run anywhere, for this reason.
    Refuse(Box<Diagnosis>),
}

impl Decision {
    /// The chosen node.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self {
            Self::Place(placement) => Some(placement.node),
            Self::Refuse(_) => None,
        }
    }
}

/// The best node for a pod, and its volumes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The node.
    pub node: NodeId,
    /// The volumes to bind or provision, in addition to those that the pod's claims are already bound to.
    pub volumes: NodeVolumes,
    /// Its total score.
    pub total: i64,
    /// Number of nodes that fit.
    pub fitting: usize,
}

/// The best node for a pod, before its volumes are determined.
#[derive(Clone, Copy, Debug)]
struct Choice {
    node: NodeId,
    total: i64,
    fitting: usize,
}

/// State between decisions: buffers, the sampling position, the random source for ties, and the verdicts that equivalent
/// pods share. The verdicts are about the nodes of one cluster: a scratch serves the cluster that it was first used with,
/// or a clone of both.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// The states of the filter plugins for the last pod.
    pub states: Vec<FilterState>,
    mask: NodeMask,
    nodes: Vec<NodeId>,
    scores: Vec<i64>,
    totals: Vec<i64>,
    sampler: Sampler,
    chance: Chance,
    equivalence: Equivalence,
}

// The states are those of the last pod: they are cleared before symbols are traced.
berth_core::trace!(Scratch { equivalence; states, mask, nodes, scores, totals, sampler, chance });

/// The parts of a [`Scratch`] that affect later decisions.
#[derive(Clone, Debug)]
pub(crate) struct Bookmark {
    chance: Chance,
    sampler: Sampler,
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
            sampler: Sampler::default(),
            chance: Chance::new(seed),
            equivalence: Equivalence::default(),
        }
    }

    /// How often equivalent pods shared verdicts, and the cost.
    #[must_use]
    pub fn sharing(&self) -> SharingCounts {
        self.equivalence.counts()
    }

    /// Drops the verdicts that equivalent pods share, and what they hold in the cluster. Decisions do not change, but
    /// take longer.
    pub fn forget_verdicts(&mut self, cluster: &mut Cluster) {
        self.equivalence.forget_all(cluster);
    }

    /// Drops the verdicts of classes without a pod since the last call, and the states of the last pod.
    pub(crate) fn tidy(&mut self, cluster: &mut Cluster) {
        self.states.clear();
        self.equivalence.tidy(cluster);
    }

    /// The next random number.
    fn next_number(&mut self) -> u64 {
        self.chance.next_number()
    }

    /// The state of randomness and sampling, to return to after trial decisions.
    pub(crate) fn bookmark(&self) -> Bookmark {
        Bookmark {
            chance: self.chance,
            sampler: self.sampler.clone(),
        }
    }

    /// Returns to a bookmark.
    pub(crate) fn return_to(&mut self, bookmark: Bookmark) {
        let Bookmark { chance, sampler } = bookmark;
        (self.chance, self.sampler) = (chance, sampler);
    }
}

/// The result of the plugins before any node is considered.
pub(crate) struct PreFiltered {
    /// The decisive refusal, if any.
    pub(crate) refusal: Option<Refusal>,
    /// Plugins that restrict the nodes, with the names of the remaining ones.
    pub(crate) only_nodes: Vec<(PluginName, Box<[Symbol]>)>,
}

/// Finds the best node for a pod.
pub fn decide(cluster: &mut Cluster, pod: &Pod, profile: &Profile, scratch: &mut Scratch) -> Decision {
    decide_beside(cluster, pod, profile, scratch, &Nominated::default())
}

/// Finds the best node for a pod without using the room that is reserved for nominated pods. If the node nominated for
/// the pod itself fits, it is chosen.
pub fn decide_beside(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    nominated: &Nominated<'_>,
) -> Decision {
    decide_timed(cluster, pod, profile, scratch, nominated, &mut NoStopwatch)
}

/// [`decide_beside`] that measures the plugins.
pub fn decide_timed(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    nominated: &Nominated<'_>,
    watch: &mut impl Stopwatch,
) -> Decision {
    decide_advised(cluster, pod, profile, scratch, nominated, None, watch)
}

/// [`decide_timed`] among the nodes that extenders left, if they were asked.
pub(crate) fn decide_advised(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    nominated: &Nominated<'_>,
    advice: Option<&NodeAdvice>,
    watch: &mut impl Stopwatch,
) -> Decision {
    let found = search(cluster, pod, profile, scratch, watch, |search, promised, watch| {
        search.find(nominated, advice, promised, watch)
    });
    match found {
        Ok(choice) => place_with_volumes(cluster, &scratch.states, choice),
        Err(mut nowhere) => {
            let refused = advice.iter().flat_map(|advice| advice.refused.iter().cloned());
            nowhere.promised.extend(refused);
            Decision::Refuse(Box::new(nowhere.diagnose(cluster, &scratch.states)))
        }
    }
}

/// The nodes that extenders are asked about: those that fit a pod, or the node nominated for it if that fits.
pub(crate) fn candidates(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    nominated: &Nominated<'_>,
    watch: &mut impl Stopwatch,
) -> Result<Vec<NodeId>, Box<Diagnosis>> {
    let found = search(cluster, pod, profile, scratch, watch, |search, promised, watch| {
        if search.verdicts.fitting() == 0 {
            return None;
        }
        watch.begin();
        search.narrow(nominated, None, promised, watch);
        (!search.scratch.nodes.is_empty()).then(|| search.scratch.nodes.clone())
    });
    found.map_err(|nowhere| Box::new(nowhere.diagnose(cluster, &scratch.states)))
}

/// [`decide_beside`] without the reasons of a refusal, which cost more than the search itself.
pub(crate) fn find(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    nominated: &Nominated<'_>,
) -> Option<Placement> {
    let watch = &mut NoStopwatch;
    let found = search(cluster, pod, profile, scratch, watch, |search, promised, watch| {
        search.find(nominated, None, promised, watch)
    });
    match place_with_volumes(cluster, &scratch.states, found.ok()?) {
        Decision::Place(placement) => Some(placement),
        Decision::Refuse(_) => None,
    }
}

/// The nodes that fit a pod, for callers that choose by something other than scores. The states of the filter plugins are in the
/// scratch.
pub(crate) fn fitting_nodes<'s>(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &'s mut Scratch,
    nominated: &Nominated<'_>,
) -> &'s [NodeId] {
    scratch.nodes.clear();
    let watch = &mut NoStopwatch;
    let _ = search(cluster, pod, profile, scratch, watch, |search, promised, watch| {
        (search.verdicts.fitting() > 0).then(|| search.narrow(nominated, None, promised, watch))
    });
    &scratch.nodes
}

/// The nodes that fit a pod, without the cached verdicts: for a cluster that is only supposed to be as it is, which the cache must
/// not learn.
pub(crate) fn fitting_if_so(cluster: &mut Cluster, pod: &Pod, profile: &Profile) -> NodeMask {
    let mut states = Vec::new();
    let pre_filtered = pre_filter(cluster, pod, profile, &mut states, &mut NoStopwatch);
    if pre_filtered.refusal.is_some() {
        return NodeMask::none(cluster.nodes());
    }
    let mut nodes = cluster.all_nodes().clone();
    for (_, names) in &pre_filtered.only_nodes {
        cluster.keep_named(names, &mut nodes);
    }
    states.iter().for_each(|state| state.narrow(cluster, &mut nodes));
    nodes
}

/// What is needed to describe why no node was found.
struct Nowhere {
    pre_filtered: PreFiltered,
    /// Nodes that would fit except for nominated pods there, or that extenders refused.
    promised: Vec<(NodeId, Refusal)>,
}

impl Nowhere {
    fn diagnose(self, cluster: &Cluster, states: &[FilterState]) -> Diagnosis {
        diagnose::diagnose(cluster, states, self.pre_filtered, &self.promised)
    }
}

/// Runs the filter plugins on a pod, and then searches among the nodes that the cached verdicts allow.
fn search<T, W: Stopwatch>(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    scratch: &mut Scratch,
    watch: &mut W,
    look: impl FnOnce(&mut Search<'_>, &mut Vec<(NodeId, Refusal)>, &mut W) -> Option<T>,
) -> Result<T, Nowhere> {
    let pre_filtered = pre_filter(cluster, pod, profile, &mut scratch.states, watch);
    let mut promised = Vec::new();
    if pre_filtered.refusal.is_none() {
        let Scratch {
            states, equivalence, ..
        } = &mut *scratch;
        let only_nodes = &pre_filtered.only_nodes;
        let (place, verdicts) = equivalence.verdicts_for(cluster, pod, profile, states, only_nodes, watch);
        let mut search = Search {
            cluster,
            pod,
            profile,
            scratch,
            verdicts: &verdicts,
        };
        let found = look(&mut search, &mut promised, watch);
        scratch.equivalence.put_back(place, verdicts);
        if let Some(found) = found {
            return Ok(found);
        }
    }
    Err(Nowhere { pre_filtered, promised })
}

/// Determines the volumes of a pod on the chosen node.
fn place_with_volumes(cluster: &Cluster, states: &[FilterState], choice: Choice) -> Decision {
    let Choice { node, total, fitting } = choice;
    let volumes =
        FilterState::volume_binding(states).map_or(Ok(NodeVolumes::default()), |state| state.volumes_on(cluster, node));
    match volumes {
        Ok(volumes) => Decision::Place(Placement {
            node,
            volumes,
            total,
            fitting,
        }),
        // The fast verdict and the detailed one agree, as a property test checks. If they ever do not, it is unknown
        // whether the pod fits: it is retried, and does not wait for an event.
        Err(refusal) => Decision::Refuse(Box::new(Diagnosis {
            node_count: cluster.all_nodes().len(),
            early: Some(Refusal {
                code: Code::Error,
                ..refusal
            }),
            nodes: Vec::new(),
        })),
    }
}

/// Runs the pre-filter of every plugin. An unresolvable refusal ends this, other refusals do not.
fn pre_filter(
    cluster: &mut Cluster,
    pod: &Pod,
    profile: &Profile,
    states: &mut Vec<FilterState>,
    watch: &mut impl Stopwatch,
) -> PreFiltered {
    states.clear();
    watch.begin();
    let mut pre_filtered = PreFiltered {
        refusal: None,
        only_nodes: Vec::new(),
    };
    for plugin in &profile.filters {
        let verdict = plugins::pre_filter(*plugin, cluster, pod, profile);
        watch.lap(*plugin, ExtensionPoint::PreFilter);
        match verdict {
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

/// The search for the best node of one pod, among those that the cached verdicts allow.
struct Search<'a> {
    cluster: &'a mut Cluster,
    pod: &'a Pod,
    profile: &'a Profile,
    scratch: &'a mut Scratch,
    verdicts: &'a Verdicts,
}

impl Search<'_> {
    /// The best node, or none. Nodes that would fit except for nominated pods are collected.
    fn find(
        &mut self,
        nominated: &Nominated<'_>,
        advice: Option<&NodeAdvice>,
        promised: &mut Vec<(NodeId, Refusal)>,
        watch: &mut impl Stopwatch,
    ) -> Option<Choice> {
        if self.verdicts.fitting() == 0 {
            return None;
        }
        watch.begin();
        let scorers = self.scorers();
        let is_plain = advice.is_none()
            && nominated.own.is_none()
            && nominated.others.is_empty()
            && nominated.avoided.is_empty()
            && self.profile.percentage_of_nodes_to_score.is_none()
            && !self.filters().any(|_| true);
        if is_plain && scorers.plugins.is_empty() {
            return self.best_kept(scorers.same);
        }
        self.narrow(nominated, advice, promised, watch);
        if self.scratch.nodes.is_empty() {
            return None;
        }
        self.score(&scorers, watch);
        if let Some(advice) = advice.filter(|_| self.scratch.nodes.len() > 1) {
            let Scratch { nodes, totals, .. } = &mut *self.scratch;
            for (node, total) in nodes.iter().zip(totals) {
                *total = total.saturating_add(advice.scores.get(node).copied().unwrap_or(0));
            }
        }
        Some(choose(self.scratch))
    }

    /// The best node by cached scores, if all other plugins give every node the same score.
    fn best_kept(&mut self, same: i64) -> Option<Choice> {
        let (best, equals) = self.verdicts.best();
        let place = match equals {
            0 | 1 => 0,
            equals => self.scratch.next_number() % equals,
        };
        let fitting = self.verdicts.fitting();
        Some(Choice {
            node: self.verdicts.nth_best(best, place)?,
            // A single node need not be scored.
            total: if fitting == 1 { 0 } else { best + same },
            fitting,
        })
    }

    /// The filter plugins that must be run for this pod.
    fn filters(&self) -> impl Iterator<Item = &FilterState> {
        let claims = self.verdicts.keep_claims();
        self.scratch.states.iter().filter(move |state| match state {
            FilterState::VolumeBinding(state) if claims => state.prepared().is_bound_to_nodes(),
            other => !equivalence::keeps_verdicts(other.plugin(), claims),
        })
    }

    /// Collects the nodes that fit. Nodes that extenders left are all considered: they come from a sample already.
    fn narrow(
        &mut self,
        nominated: &Nominated<'_>,
        advice: Option<&NodeAdvice>,
        promised: &mut Vec<(NodeId, Refusal)>,
        watch: &mut impl Stopwatch,
    ) {
        let mut mask = std::mem::take(&mut self.scratch.mask);
        mask.copy_from(self.verdicts.fits());
        for state in self.filters() {
            match state {
                FilterState::VolumeBinding(state) if self.verdicts.keep_claims() => {
                    state.narrow_by_bound(self.cluster, &mut mask);
                }
                other => other.narrow(self.cluster, &mut mask),
            }
            watch.lap(state.plugin(), ExtensionPoint::Filter);
        }
        if let Some(advice) = advice {
            mask.intersect(&advice.left);
        }
        let question = Question {
            pod: self.pod,
            profile: self.profile,
            states: &self.scratch.states,
            nominated,
        };
        for node in nominated.nodes() {
            if mask.contains(node)
                && let Some(refusal) = question.refusal_beside(self.cluster, node)
            {
                mask.remove(node);
                promised.push((node, refusal));
            }
        }
        if !nominated.avoided.is_empty() {
            let mut others = mask.clone();
            nominated.avoided.iter().for_each(|node| others.remove(*node));
            if others.iter().next().is_some() {
                mask = others;
            }
        }
        let nodes = &mut self.scratch.nodes;
        nodes.clear();
        match (nominated.own, self.profile.percentage_of_nodes_to_score) {
            (Some(own), _) if mask.contains(own) => nodes.push(own),
            (_, Some(percentage)) if advice.is_none() => {
                let sampler = &mut self.scratch.sampler;
                sampler.take(self.cluster.all_nodes(), &mask, percentage, nodes);
            }
            _ => nodes.extend(mask.iter()),
        }
        self.scratch.mask = mask;
    }

    /// The score plugins that must be run for this pod.
    fn scorers(&mut self) -> Scorers {
        let mut scorers = Scorers::default();
        for (plugin, weight) in &self.profile.scores {
            if equivalence::keeps_scores(*plugin, self.verdicts.keep_claims()) {
                continue;
            }
            match plugins::outlook(*plugin, self.cluster, self.pod, self.profile) {
                Outlook::Skips => {}
                Outlook::Same(score) => scorers.same += weight * score,
                Outlook::Each => scorers.plugins.push((*plugin, *weight)),
            }
        }
        scorers
    }

    fn score(&mut self, scorers: &Scorers, watch: &mut impl Stopwatch) {
        let Scratch {
            states,
            nodes,
            scores,
            totals,
            ..
        } = &mut *self.scratch;
        totals.clear();
        if nodes.len() == 1 {
            totals.push(0);
            return;
        }
        totals.extend(nodes.iter().map(|node| self.verdicts.total(*node) + scorers.same));
        let mut context = ScoreContext {
            cluster: self.cluster,
            pod: self.pod,
            profile: self.profile,
            states,
            nodes,
        };
        for (plugin, weight) in &scorers.plugins {
            if plugins::score(*plugin, &mut context, scores) {
                for (total, score) in totals.iter_mut().zip(&*scores) {
                    *total += weight * score;
                }
                watch.lap(*plugin, ExtensionPoint::Score);
            }
        }
    }
}

/// The score plugins that must be run for one pod.
#[derive(Default)]
struct Scorers {
    plugins: SmallVec<[(PluginName, i64); 4]>,
    /// What the others add to every node.
    same: i64,
}

/// The highest total; ties are broken randomly.
fn choose(scratch: &mut Scratch) -> Choice {
    let best = scratch.totals.iter().copied().max().unwrap_or(0);
    let equals = scratch.totals.iter().filter(|total| **total == best).count();
    let chosen = match equals {
        0 | 1 => 0,
        equals => (scratch.next_number() % equals as u64) as usize,
    };
    let mut fitting = scratch.nodes.iter().zip(&scratch.totals);
    let node = fitting.by_ref().filter(|(_, total)| **total == best).nth(chosen);
    Choice {
        node: node.map_or(NodeId(0), |(node, _)| *node),
        total: best,
        fitting: scratch.nodes.len(),
    }
}
