//! Number of matching running pods on each node, cached for recent queries.
//!
//! Pods of one workload repeat the same query ("where are pods like me?"). The answer is computed once through the
//! postings, and then updated as pods are added and removed, so that a decision has no cost per running pod.

use super::anchors::{Anchors, anchor};
use super::pods::Pods;
use crate::pod::Footprint;
use berth_core::label::LabelSelector;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use berth_core::trace::{Marks, Trace};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Maximum number of cached queries. Each takes a map with at most one entry per node, and each workload with affinity
/// or spread constraints needs one to three of them.
const MAX_QUERIES: usize = 4096;

/// Maximum number of values in the selectors of all cached queries. Each takes some 50 bytes, and workloads have a handful: this
/// does not limit them, but a pod can list a hundred thousand.
const MAX_VALUES: usize = 1 << 20;

/// The namespaces of the pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every namespace.
    All,
    /// Namespaces by name, sorted and without duplicates.
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
    /// Number of values and namespaces it lists.
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

    /// Whether a pod matches.
    #[must_use]
    pub fn matches(&self, pod: &Footprint) -> bool {
        let in_scope = match &self.scope {
            Scope::All => true,
            Scope::Names(names) => names.contains(&pod.namespace),
        };
        in_scope && self.selector.matches(&pod.labels)
    }
}

/// A query: which pods match all of the clauses?
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodQuery {
    /// At least one.
    pub clauses: SmallVec<[PodClause; 1]>,
    /// Excludes pods that are being deleted.
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

    /// The selector that matches the fewest pods.
    fn anchoring(&self) -> &LabelSelector {
        static ALL: std::sync::LazyLock<LabelSelector> = std::sync::LazyLock::new(LabelSelector::everything);
        let clauses = self.clauses.iter().map(|clause| &clause.selector);
        let anchored = clauses.filter(|selector| **selector == LabelSelector::Nothing || anchor(selector).is_some());
        anchored
            .min_by_key(|selector| anchor(selector).map_or(0, |(_, values)| values.len()))
            .unwrap_or(&ALL)
    }
}

/// The ID of a registered query. It is valid for one decision: unused answers are dropped eventually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryId(u32);

/// Number of pods by node; nodes without any are not listed.
pub type NodeCounts = FxHashMap<NodeId, u32>;

#[derive(Clone, Debug)]
struct Answer {
    query: PodQuery,
    by_node: NodeCounts,
    last_asked: u64,
}

berth_core::trace!(Answer { query; by_node, last_asked });

/// Recent queries with their answers.
#[derive(Clone, Debug, Default)]
pub struct PodCounts {
    ids: FxHashMap<PodQuery, u32>,
    answers: Vec<Option<Answer>>,
    anchors: Anchors,
    asked: u64,
    /// Number of values in all queries.
    values: usize,
    /// The use count at the last tidying.
    tidied: u64,
}

berth_core::trace!(PodCounts { answers; ids, anchors, asked, values, tidied });

impl PodCounts {
    /// The ID of a query whose answer is cached from now on; see [`PodCounts::answer`].
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

    /// The answer to a query.
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

    /// Drops the answers that were not used since the last call.
    pub(super) fn tidy(&mut self) {
        self.drop_asked_before(self.tidied + 1);
        self.tidied = self.asked;
        let used = self.answers.iter().rposition(Option::is_some);
        self.answers.truncate(used.map_or(0, |last| last + 1));
    }

    /// Counts a pod on a node in every matching answer.
    pub(super) fn add(&mut self, pod: &Footprint, node: NodeId) {
        for id in self.anchors.candidates(&pod.labels) {
            if let Some(answer) = &mut self.answers[id as usize]
                && answer.query.matches(pod)
            {
                *answer.by_node.entry(node).or_default() += 1;
            }
        }
    }

    /// Stops counting a pod on a node.
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

    /// The queries and their answers, to compare two clusters.
    pub(super) fn answers(&self) -> FxHashMap<&PodQuery, &NodeCounts> {
        let answers = self.answers.iter().flatten();
        answers.map(|answer| (&answer.query, &answer.by_node)).collect()
    }
}
