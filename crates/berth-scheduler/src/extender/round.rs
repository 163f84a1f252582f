//! The calls of one consultation, and what becomes of the answers. The rules are those of kube-scheduler.

use super::{Advice, Consultation, Extender, FailedNode, Matter, NodeVictims};
use crate::framework::MAX_NODE_SCORE;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// The best score that an extender gives.
const MAX_EXTENDER_SCORE: i64 = 10;

/// A call to an extender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The place of the extender in the list of the configuration.
    pub extender: usize,
    /// What it is asked for.
    pub request: Request,
}

/// What an extender is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Which nodes remain.
    Filter,
    /// How good they are.
    Prioritize,
    /// Which victims remain.
    Preempt,
}

/// The answer of an extender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To [`Request::Filter`].
    Filtered {
        /// The nodes that remain.
        nodes: Vec<String>,
        /// Refused nodes with their messages; evicting pods could help there.
        failed: Vec<(String, String)>,
        /// Refused nodes with their messages, whatever is evicted.
        unresolvable: Vec<(String, String)>,
    },
    /// To [`Request::Prioritize`]: nodes with their scores.
    Scores(Vec<(String, i64)>),
    /// To [`Request::Preempt`].
    Victims(Vec<NodeVictims>),
}

/// A consultation while its extenders are called one after the other.
#[derive(Debug)]
pub struct Round {
    extenders: Arc<[Extender]>,
    calls: VecDeque<Call>,
    nodes: Vec<String>,
    failed: FxHashMap<String, (String, bool)>,
    scores: FxHashMap<String, i64>,
    victims: Option<Vec<NodeVictims>>,
    broken: Option<String>,
}

impl Round {
    /// Begins a consultation of these extenders.
    #[must_use]
    pub fn new(extenders: &Arc<[Extender]>, consultation: &Consultation) -> Self {
        let asked = || {
            let known = consultation.extenders.iter();
            known.filter_map(|place| Some((*place, extenders.get(*place)?)))
        };
        let of = |request, wants: fn(&Extender) -> bool| {
            let chosen = asked().filter(move |(_, extender)| wants(extender));
            chosen.map(move |(extender, _)| Call { extender, request })
        };
        let (calls, nodes, victims) = match &consultation.matter {
            Matter::Nodes(nodes) => {
                let filters = of(Request::Filter, |extender| !extender.filter_verb.is_empty());
                let scores = of(Request::Prioritize, |extender| !extender.prioritize_verb.is_empty());
                (filters.chain(scores).collect(), nodes.clone(), None)
            }
            Matter::Victims(victims) => {
                let calls = of(Request::Preempt, Extender::preempts).collect();
                (calls, Vec::new(), Some(victims.clone()))
            }
        };
        Self {
            extenders: Arc::clone(extenders),
            calls,
            nodes,
            failed: FxHashMap::default(),
            scores: FxHashMap::default(),
            victims,
            broken: None,
        }
    }

    /// The next call to make; `None` if there is nothing more to ask.
    #[must_use]
    pub fn next_call(&self) -> Option<Call> {
        if self.broken.is_some() {
            return None;
        }
        let next = *self.calls.front()?;
        let is_idle = match next.request {
            Request::Filter => self.nodes.is_empty(),
            // A single node is not scored.
            Request::Prioritize => self.nodes.len() < 2,
            Request::Preempt => self.victims.as_ref().is_none_or(Vec::is_empty),
        };
        (!is_idle).then_some(next)
    }

    /// The nodes that remain.
    #[must_use]
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The nodes that can still be freed.
    #[must_use]
    pub fn victims(&self) -> &[NodeVictims] {
        self.victims.as_deref().unwrap_or_default()
    }

    /// Takes the answer to the last call. Returns a problem that does not matter to the pod, for the log.
    pub fn answered(&mut self, answer: Result<Answer, String>) -> Option<String> {
        let call = self.calls.pop_front()?;
        let extenders = Arc::clone(&self.extenders);
        let extender = extenders.get(call.extender)?;
        let result = match answer {
            Ok(Answer::Filtered {
                nodes,
                failed,
                unresolvable,
            }) => self.filter(nodes, failed, unresolvable),
            Ok(Answer::Scores(scores)) => {
                self.score(scores, extender.weight);
                Ok(())
            }
            Ok(Answer::Victims(victims)) => self.spare(victims, extender.ignorable),
            Err(problem) => Err(problem),
        };
        let problem = result.err()?;
        let problem = format!("extender {:?}: {problem}", extender.url_prefix);
        // Scores are a preference: kube-scheduler, too, decides without them.
        if extender.ignorable || call.request == Request::Prioritize {
            return Some(problem);
        }
        self.broken = Some(problem);
        None
    }

    fn filter(
        &mut self,
        nodes: Vec<String>,
        failed: Vec<(String, String)>,
        unresolvable: Vec<(String, String)>,
    ) -> Result<(), String> {
        let asked: FxHashSet<&String> = self.nodes.iter().collect();
        if let Some(foreign) = nodes.iter().find(|node| !asked.contains(node)) {
            return Err(format!(
                "claims a filtered node {foreign:?} which is not found in the input node list"
            ));
        }
        // The second list takes precedence over the first.
        let lists = [(failed, true), (unresolvable, false)];
        for (list, resolvable) in lists {
            let of_asked = list.into_iter().filter(|(node, _)| asked.contains(node));
            let new: Vec<_> = of_asked.collect();
            self.failed
                .extend(new.into_iter().map(|(node, message)| (node, (message, resolvable))));
        }
        self.nodes = nodes;
        Ok(())
    }

    fn score(&mut self, scores: Vec<(String, i64)>, weight: i64) {
        let scale = weight.saturating_mul(MAX_NODE_SCORE / MAX_EXTENDER_SCORE);
        for (node, score) in scores {
            let total = self.scores.entry(node).or_default();
            *total = total.saturating_add(score.saturating_mul(scale));
        }
    }

    fn spare(&mut self, mut victims: Vec<NodeVictims>, ignorable: bool) -> Result<(), String> {
        let empty = victims.iter().find(|found| found.pods.is_empty());
        if let Some(empty) = empty.filter(|_| !ignorable) {
            return Err(format!("expected at least one victim pod on node {:?}", empty.node));
        }
        victims.retain(|found| !found.pods.is_empty());
        self.victims = Some(victims);
        Ok(())
    }

    /// What the extenders say.
    #[must_use]
    pub fn advice(self) -> Advice {
        let Self {
            nodes,
            failed,
            scores,
            victims,
            broken,
            ..
        } = self;
        if let Some(problem) = broken {
            return Advice::Failed(problem);
        }
        if let Some(victims) = victims {
            return Advice::Victims(victims);
        }
        let left = nodes.into_iter().map(|node| {
            let score = scores.get(&node).copied().unwrap_or(0);
            (node, score)
        });
        let failed = failed.into_iter().map(|(node, (message, resolvable))| FailedNode {
            node,
            message,
            resolvable,
        });
        Advice::Nodes {
            left: left.collect(),
            failed: failed.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConsultationId;
    use super::*;
    use crate::scheduler::PodRef;

    fn filter(name: &str, ignorable: bool) -> Extender {
        Extender {
            url_prefix: name.to_owned(),
            filter_verb: "filter".to_owned(),
            ignorable,
            ..Extender::default()
        }
    }

    fn round(extenders: Vec<Extender>, matter: Matter) -> Round {
        let consultation = Consultation {
            id: ConsultationId(1),
            pod: pod("p"),
            extenders: (0..extenders.len()).collect(),
            matter,
        };
        Round::new(&extenders.into(), &consultation)
    }

    fn pod(name: &str) -> PodRef {
        PodRef {
            key: format!("default/{name}").into(),
            uid: name.to_owned(),
        }
    }

    fn names(nodes: &[&str]) -> Vec<String> {
        nodes.iter().map(|node| (*node).to_owned()).collect()
    }

    fn leaves(nodes: &[&str]) -> Result<Answer, String> {
        Ok(Answer::Filtered {
            nodes: names(nodes),
            failed: Vec::new(),
            unresolvable: Vec::new(),
        })
    }

    fn nodes(list: &[&str]) -> Matter {
        Matter::Nodes(names(list))
    }

    #[test]
    fn each_extender_sees_what_the_one_before_left_and_scores_are_added() {
        let scores = |name: &str, weight| Extender {
            url_prefix: name.to_owned(),
            prioritize_verb: "prioritize".to_owned(),
            weight,
            ..Extender::default()
        };
        let extenders = vec![filter("a", false), scores("b", 2), filter("c", false), scores("d", 1)];
        let mut round = round(extenders, nodes(&["n1", "n2", "n3", "n4"]));
        let mut calls = Vec::new();
        while let Some(call) = round.next_call() {
            calls.push((call.extender, call.request, round.nodes().len()));
            let answer = match call.extender {
                0 => Ok(Answer::Filtered {
                    nodes: names(&["n2", "n3", "n4"]),
                    failed: vec![("n1".to_owned(), "no".to_owned())],
                    unresolvable: vec![("n1".to_owned(), "never".to_owned())],
                }),
                2 => leaves(&["n2", "n4"]),
                _ => Ok(Answer::Scores(vec![("n2".to_owned(), 3), ("n9".to_owned(), 5)])),
            };
            assert_eq!(round.answered(answer), None);
        }
        assert_eq!(
            calls,
            [
                (0, Request::Filter, 4),
                (2, Request::Filter, 3),
                (1, Request::Prioritize, 2),
                (3, Request::Prioritize, 2)
            ]
        );
        let failed = vec![FailedNode {
            node: "n1".to_owned(),
            message: "never".to_owned(),
            resolvable: false,
        }];
        let left = vec![("n2".to_owned(), 90), ("n4".to_owned(), 0)];
        assert_eq!(round.advice(), Advice::Nodes { left, failed });
    }

    #[test]
    fn a_failure_ends_the_round_unless_the_extender_can_be_ignored() {
        let mut ignored = round(vec![filter("a", true)], nodes(&["n1"]));
        assert!(ignored.answered(Err("down".to_owned())).is_some());
        assert!(matches!(ignored.advice(), Advice::Nodes { left, .. } if left.len() == 1));
        for answer in [Err("down".to_owned()), leaves(&["n7"])] {
            let mut broken = round(vec![filter("a", false), filter("b", false)], nodes(&["n1"]));
            assert_eq!(broken.answered(answer), None);
            assert_eq!(broken.next_call(), None);
            assert!(matches!(broken.advice(), Advice::Failed(_)));
        }
    }

    #[test]
    fn no_node_left_and_a_single_node_are_not_asked_about() {
        let both = Extender {
            prioritize_verb: "prioritize".to_owned(),
            ..filter("a", false)
        };
        for left in [&["n1"][..], &[]] {
            let mut round = round(vec![both.clone(), filter("b", false)], nodes(&["n1", "n2"]));
            round.answered(leaves(left));
            assert_eq!(round.next_call().is_some(), !left.is_empty());
            round.answered(leaves(left));
            assert_eq!(round.next_call(), None);
        }
    }

    #[test]
    fn every_node_to_free_needs_a_victim() {
        let preempts = |ignorable| Extender {
            preempt_verb: "preempt".to_owned(),
            ..filter("a", ignorable)
        };
        let victims = |node: &str, pods: &[&str]| NodeVictims {
            node: node.to_owned(),
            pods: pods.iter().map(|name| pod(name)).collect(),
            violations: 0,
        };
        let asked = || Matter::Victims(vec![victims("n1", &["v"]), victims("n2", &["w"])]);
        let answer = || Ok(Answer::Victims(vec![victims("n1", &[]), victims("n2", &["w"])]));
        let mut strict = round(vec![preempts(false)], asked());
        assert_eq!(strict.next_call().map(|call| call.request), Some(Request::Preempt));
        strict.answered(answer());
        assert!(matches!(strict.advice(), Advice::Failed(problem) if problem.contains("\"n1\"")));
        let mut lenient = round(vec![preempts(true)], asked());
        lenient.answered(answer());
        assert_eq!(lenient.advice(), Advice::Victims(vec![victims("n2", &["w"])]));
    }
}
