//! How many running pods of a kind each node has, kept for the questions that were asked lately.
//!
//! Pods of one workload ask the same question over and over ("where are pods like me?"). The answer is worked out
//! once through the postings, and then kept up to date as pods come and go, so that a decision costs nothing
//! for each running pod.

use super::anchors::{Anchors, anchor};
use super::pods::Pods;
use crate::pod::Footprint;
use berth_core::label::LabelSelector;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use berth_core::trace::{Marks, Trace};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// How many questions are kept. Each costs a map of at most as many entries as nodes, and each workload with
/// affinity or spread constraints asks one to three of them.
const MAX_QUERIES: usize = 4096;

/// How many values the selectors of all kept questions may name. Each takes some 50 bytes, and workloads name a handful: this is
/// no limit to them, but a pod can name a hundred thousand.
const MAX_VALUES: usize = 1 << 20;

/// The namespaces of the pods in question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every namespace.
    All,
    /// Namespaces by name, in order and without repeats.
    Names(SmallVec<[Symbol; 1]>),
}

impl Trace for Scope {
    fn trace(&self, marks: &mut Marks) {
        match self {
            Self::All => {}
            Self::Names(names) => names.trace(marks),
        }
    }
}

/// Pods of some namespaces with some labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodClause {
    /// Their namespaces.
    pub scope: Scope,
    /// Their labels.
    pub selector: LabelSelector,
}

berth_core::trace!(PodClause { scope, selector });

impl PodClause {
    /// How many values and namespaces it names.
    fn values(&self) -> usize {
        let names = match &self.scope {
            Scope::All => 0,
            Scope::Names(names) => names.len(),
        };
        let requirements = self.selector.requirements().iter();
        names
            + requirements
                .map(|requirement| 1 + requirement.values().len())
                .sum::<usize>()
    }

    /// Whether a pod is meant.
    #[must_use]
    pub fn matches(&self, pod: &Footprint) -> bool {
        let in_scope = match &self.scope {
            Scope::All => true,
            Scope::Names(names) => names.contains(&pod.namespace),
        };
        in_scope && self.selector.matches(&pod.labels)
    }
}

/// A question: which pods match all of the clauses?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodQuery {
    /// At least one.
    pub clauses: SmallVec<[PodClause; 1]>,
    /// Leaves out pods that are being deleted.
    pub without_terminating: bool,
}

berth_core::trace!(PodQuery { clauses; without_terminating });

impl PodQuery {
    fn values(&self) -> usize {
        self.clauses.iter().map(PodClause::values).sum()
    }

    fn matches(&self, pod: &Footprint) -> bool {
        !(self.without_terminating && pod.terminating) && self.clauses.iter().all(|clause| clause.matches(pod))
    }

    /// The selector that finds the fewest pods.
    fn anchoring(&self) -> &LabelSelector {
        static ALL: std::sync::LazyLock<LabelSelector> = std::sync::LazyLock::new(LabelSelector::everything);
        let clauses = self.clauses.iter().map(|clause| &clause.selector);
        let anchored = clauses.filter(|selector| **selector == LabelSelector::Nothing || anchor(selector).is_some());
        anchored
            .min_by_key(|selector| anchor(selector).map_or(0, |(_, values)| values.len()))
            .unwrap_or(&ALL)
    }
}

/// A question that was asked. It is good for one decision: answers that nobody asks for are dropped at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryId(u32);

/// Numbers of pods by node; nodes without any are not listed.
pub type NodeCounts = FxHashMap<NodeId, u32>;

#[derive(Clone, Debug)]
struct Answer {
    query: PodQuery,
    by_node: NodeCounts,
    last_asked: u64,
}

berth_core::trace!(Answer { query; by_node, last_asked });

/// The questions asked lately, with their answers.
#[derive(Clone, Debug, Default)]
pub struct PodCounts {
    ids: FxHashMap<PodQuery, u32>,
    answers: Vec<Option<Answer>>,
    anchors: Anchors,
    asked: u64,
    /// How many values the questions name.
    values: usize,
    /// How often had been asked when answers were last tidied.
    tidied: u64,
}

berth_core::trace!(PodCounts { answers; ids, anchors, asked, values, tidied });

impl PodCounts {
    /// The number of a question whose answer is kept from now on; see [`PodCounts::answer`].
    pub(super) fn ask(&mut self, pods: &Pods, query: &PodQuery) -> QueryId {
        self.asked += 1;
        if let Some(id) = self.ids.get(query).copied() {
            if let Some(answer) = &mut self.answers[id as usize] {
                answer.last_asked = self.asked;
            }
            return QueryId(id);
        }
        let values = query.values();
        if self.ids.len() >= MAX_QUERIES || self.values + values > MAX_VALUES {
            self.drop_older_half();
        }
        self.values += values;
        let mut by_node = NodeCounts::default();
        pods.for_each_candidate(query, |pod, node| {
            if query.matches(pod) {
                *by_node.entry(node).or_default() += 1;
            }
        });
        let free = self.answers.iter().position(Option::is_none);
        let id = free.unwrap_or(self.answers.len());
        if id == self.answers.len() {
            self.answers.push(None);
        }
        self.anchors.insert(id as u32, query.anchoring());
        self.answers[id] = Some(Answer {
            query: query.clone(),
            by_node,
            last_asked: self.asked,
        });
        self.ids.insert(query.clone(), id as u32);
        QueryId(id as u32)
    }

    /// The answer to a question.
    #[must_use]
    pub fn answer(&self, id: QueryId) -> &NodeCounts {
        static NONE: std::sync::LazyLock<NodeCounts> = std::sync::LazyLock::new(NodeCounts::default);
        let answer = self.answers.get(id.0 as usize).and_then(Option::as_ref);
        answer.map_or(&NONE, |answer| &answer.by_node)
    }

    fn drop_older_half(&mut self) {
        let mut ages: Vec<_> = self.answers.iter().flatten().map(|answer| answer.last_asked).collect();
        ages.sort_unstable();
        let median = ages.get(ages.len() / 2).copied().unwrap_or(0);
        self.drop_asked_before(median);
    }

    fn drop_asked_before(&mut self, number: u64) {
        for (id, slot) in self.answers.iter_mut().enumerate() {
            if let Some(answer) = slot.take_if(|answer| answer.last_asked < number) {
                self.ids.remove(&answer.query);
                self.anchors.remove(id as u32, answer.query.anchoring());
                self.values -= answer.query.values();
            }
        }
    }

    /// Drops the answers that nobody asked for since the last time.
    pub(super) fn tidy(&mut self) {
        self.drop_asked_before(self.tidied + 1);
        self.tidied = self.asked;
        let used = self.answers.iter().rposition(Option::is_some);
        self.answers.truncate(used.map_or(0, |last| last + 1));
    }

    /// Counts a pod on a node in every answer that it belongs to.
    pub(super) fn add(&mut self, pod: &Footprint, node: NodeId) {
        for id in self.anchors.candidates(&pod.labels) {
            if let Some(answer) = &mut self.answers[id as usize]
                && answer.query.matches(pod)
            {
                *answer.by_node.entry(node).or_default() += 1;
            }
        }
    }

    /// Counts a pod on a node no more.
    pub(super) fn remove(&mut self, pod: &Footprint, node: NodeId) {
        for id in self.anchors.candidates(&pod.labels) {
            if let Some(answer) = &mut self.answers[id as usize]
                && answer.query.matches(pod)
                && let Some(count) = answer.by_node.get_mut(&node)
            {
                *count -= 1;
                if *count == 0 {
                    answer.by_node.remove(&node);
                }
            }
        }
    }

    /// The questions and their answers, for comparing two clusters.
    pub(super) fn answers(&self) -> FxHashMap<&PodQuery, &NodeCounts> {
        let answers = self.answers.iter().flatten();
        answers.map(|answer| (&answer.query, &answer.by_node)).collect()
    }
}
