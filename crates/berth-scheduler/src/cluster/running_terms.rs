//! The distinct affinity terms of running pods, with the nodes of the pods that have them.
//!
//! An incoming pod is compared with distinct terms, about as many as there are workloads, not with every running pod.

use super::anchors::Anchors;
use crate::pod::{Footprint, PodTerm};
use berth_core::label::Labels;
use berth_core::nodes::NodeId;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The kind of a running pod's term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TermKind {
    /// Required affinity: matching pods should be near.
    Required,
    /// Required anti-affinity: matching pods must stay away.
    RequiredAnti,
    /// Preferred affinity.
    Preferred,
    /// Preferred anti-affinity.
    PreferredAnti,
}

/// How often the pods of a node have a term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// How many times.
    pub count: u32,
    /// The sum of the weights, 0 for required terms.
    pub weight: i64,
}

/// A distinct term of running pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningTerm {
    /// Its kind.
    pub kind: TermKind,
    /// The term.
    pub term: Arc<PodTerm>,
    /// Where the pods with this term are.
    pub by_node: FxHashMap<NodeId, Presence>,
}

/// All distinct terms of running pods.
#[derive(Clone, Debug, Default)]
pub struct RunningTerms {
    ids: FxHashMap<(TermKind, Arc<PodTerm>), u32>,
    terms: Vec<Option<RunningTerm>>,
    free: Vec<u32>,
    anchors: Anchors,
}

// A term is kept while a running pod has it, and that pod is kept too.
berth_core::trace!(RunningTerms { ; ids, terms, free, anchors });

impl RunningTerms {
    pub(super) fn add(&mut self, pod: &Footprint, node: NodeId) {
        for_each_term(pod, |kind, term, weight| {
            let id = self.id_of(kind, term);
            if let Some(running) = &mut self.terms[id as usize] {
                let presence = running.by_node.entry(node).or_default();
                presence.count += 1;
                presence.weight += weight;
            }
        });
    }

    pub(super) fn remove(&mut self, pod: &Footprint, node: NodeId) {
        for_each_term(pod, |kind, term, weight| {
            let key = (kind, Arc::clone(term));
            let Some(id) = self.ids.get(&key).copied() else {
                return;
            };
            let Some(running) = &mut self.terms[id as usize] else {
                return;
            };
            if let Some(presence) = running.by_node.get_mut(&node) {
                presence.count -= 1;
                presence.weight -= weight;
                if presence.count == 0 {
                    running.by_node.remove(&node);
                }
            }
            if running.by_node.is_empty() {
                self.terms[id as usize] = None;
                self.ids.remove(&key);
                self.anchors.remove(id, &term.selector);
                self.free.push(id);
            }
        });
    }

    fn id_of(&mut self, kind: TermKind, term: &Arc<PodTerm>) -> u32 {
        let key = (kind, Arc::clone(term));
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        let id = self.free.pop().unwrap_or(self.terms.len() as u32);
        if id as usize == self.terms.len() {
            self.terms.push(None);
        }
        self.anchors.insert(id, &term.selector);
        self.terms[id as usize] = Some(RunningTerm {
            kind,
            term: Arc::clone(term),
            by_node: FxHashMap::default(),
        });
        self.ids.insert(key, id);
        id
    }

    /// The terms that a pod matches, given the labels of its namespace.
    pub fn matching<'a>(
        &'a self,
        pod: &'a Footprint,
        namespace_labels: &'a Labels,
    ) -> impl Iterator<Item = &'a RunningTerm> + 'a {
        self.anchors
            .candidates(&pod.labels)
            .filter_map(|id| self.terms[id as usize].as_ref())
            .filter(|running| {
                running.term.covers_namespace(pod.namespace, namespace_labels)
                    && running.term.selector.matches(&pod.labels)
            })
    }

    /// The terms with their locations, to compare two clusters.
    pub(super) fn presences(&self) -> FxHashMap<(TermKind, &PodTerm), &FxHashMap<NodeId, Presence>> {
        let terms = self.terms.iter().flatten();
        terms
            .map(|running| ((running.kind, &*running.term), &running.by_node))
            .collect()
    }
}

fn for_each_term(pod: &Footprint, mut visit: impl FnMut(TermKind, &Arc<PodTerm>, i64)) {
    let Some(terms) = &pod.terms else {
        return;
    };
    for term in &terms.required {
        visit(TermKind::Required, term, 0);
    }
    for term in &terms.required_anti {
        visit(TermKind::RequiredAnti, term, 0);
    }
    for weighted in &terms.preferred {
        visit(TermKind::Preferred, &weighted.term, weighted.weight);
    }
    for weighted in &terms.preferred_anti {
        visit(TermKind::PreferredAnti, &weighted.term, weighted.weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_core::api;
    use berth_core::symbols::Symbols;

    #[test]
    fn weights_of_pods_with_the_same_term_add_up_and_go_again() {
        let pod = |weight: i32| -> api::Pod {
            let term = r#"{"labelSelector":{"matchLabels":{"app":"x"}},"topologyKey":"zone"}"#;
            let preferred = format!(r#"[{{"weight":{weight},"podAffinityTerm":{term}}}]"#);
            let affinity = format!(r#"{{"preferredDuringSchedulingIgnoredDuringExecution":{preferred}}}"#);
            let pod = format!(
                r#"{{"metadata":{{"labels":{{"app":"x"}}}},"spec":{{"affinity":{{"podAffinity":{affinity}}}}}}}"#
            );
            serde_json::from_str(&pod).unwrap()
        };
        let mut symbols = Symbols::default();
        let [light, heavy] = [pod(3), pod(40)].map(|pod| Footprint::new(&mut symbols, &pod));
        let (mut terms, node) = (RunningTerms::default(), NodeId(0));
        let no_labels = Labels::default();
        let weights = |terms: &RunningTerms| -> Vec<i64> {
            let matching = terms.matching(&light, &no_labels);
            matching.map(|running| running.by_node[&node].weight).collect()
        };
        terms.add(&light, node);
        terms.add(&heavy, node);
        assert_eq!(weights(&terms), [43]);
        terms.remove(&heavy, node);
        assert_eq!(weights(&terms), [3]);
        terms.remove(&light, node);
        assert_eq!(weights(&terms), [0_i64; 0]);
    }
}
