//! Where a driver is asked to create a volume: requisite and preferred topology terms.
//!
//! A pure function of the claim's name, the class's allowed topologies, the selected node and the registered drivers.
//! The result follows the CSI convention for topology: a term is one segment of the cluster, requisite terms are where
//! the volume may be, preferred terms are the same ones, best first.
//!
//! This module must not depend on its users: CSI and built-in provisioners both read the result.

use berth_core::api::{CsiNode, Node, StringMap, TopologySelectorTerm};
use berth_core::migration::TopologyError;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One segment of the cluster: labels that its nodes share.
pub type Segment = BTreeMap<String, String>;

/// The topology requirement of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// The volume must be reachable from one of these.
    pub requisite: Vec<Segment>,
    /// All of them, best first.
    pub preferred: Vec<Segment>,
}

/// How strictly the selected node and the cluster restrict a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Only the selected node's own segment is acceptable.
    pub strict: bool,
    /// Claims without a selected node get all segments of the cluster.
    pub immediate: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            strict: false,
            immediate: true,
        }
    }
}

/// The inputs of a requirement.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The driver.
    pub driver: &'a str,
    /// The claim's name, by which volumes of a StatefulSet are spread.
    pub claim: &'a str,
    /// The node that the scheduler chose.
    pub selected_node: Option<&'a str>,
    /// Where the class allows volumes.
    pub allowed: &'a [TopologySelectorTerm],
    /// How strict to be.
    pub policy: Policy,
    /// The nodes by name.
    pub nodes: &'a BTreeMap<String, Node>,
    /// Registered drivers, by node.
    pub csi_nodes: &'a BTreeMap<String, CsiNode>,
}

/// Why no requirement can be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// The topology of the class is invalid.
    #[error(transparent)]
    Class(#[from] TopologyError),
    /// No drivers are registered on the selected node.
    #[error("node {node:?} has no CSINode object: no driver is registered there")]
    NoCsiNode {
        /// The node.
        node: String,
    },
    /// The driver is not on the selected node, or has no topology there.
    #[error("no topology key found for node {node:?}: driver {driver:?} is not registered there with topology keys")]
    NoTopologyKeys {
        /// The node.
        node: String,
        /// The driver.
        driver: String,
    },
    /// The selected node does not exist.
    #[error("node {node:?} does not exist")]
    NodeGone {
        /// The node.
        node: String,
    },
    /// The selected node lacks a label that its driver registered.
    #[error("node {node:?} has no label {key:?}, which driver {driver:?} registered as a topology key")]
    MissingLabel {
        /// The node.
        node: String,
        /// The label.
        key: String,
        /// The driver.
        driver: String,
    },
    /// The selected node is outside the allowed topologies of the class.
    #[error("node {node:?} ({segment}) is in none of the class's allowed topologies: {allowed}")]
    NotAllowed {
        /// The node.
        node: String,
        /// Its segment.
        segment: String,
        /// The allowed ones.
        allowed: String,
    },
    /// The driver is not registered on any node.
    #[error("no available topology: driver {driver:?} has not registered topology keys on any node")]
    NotRegistered {
        /// The driver.
        driver: String,
    },
    /// Keys are registered, but no node has the labels.
    #[error("no node has the topology labels {keys} of driver {driver:?}")]
    NoLabelledNode {
        /// The driver.
        driver: String,
        /// The keys.
        keys: String,
    },
}

/// Sorted labels. A class may list a key twice, so it is a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term(Vec<(String, String)>);

impl Term {
    fn new(mut pairs: Vec<(String, String)>) -> Self {
        pairs.sort_unstable();
        Self(pairs)
    }

    /// The node's labels with these keys, or the first missing key.
    fn of_labels<'k>(labels: &StringMap, keys: &'k [String]) -> Result<Self, &'k str> {
        let pairs = keys.iter().map(|key| match labels.get(key) {
            Some(value) => Ok((key.clone(), value.clone())),
            None => Err(key.as_str()),
        });
        Ok(Self::new(pairs.collect::<Result<_, _>>()?))
    }

    /// Whether every node of `other` is also one of this term.
    fn contains(&self, other: &Self) -> bool {
        self.0.iter().all(|pair| other.0.contains(pair))
    }

    /// Terms with fewer labels come first, then alphabetically.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.cmp(&other.0))
    }

    fn segment(&self) -> Segment {
        self.0.iter().cloned().collect()
    }
}

/// The labels of a segment in readable form.
#[must_use]
pub fn describe(segment: &Segment) -> String {
    if segment.is_empty() {
        return "everywhere".to_owned();
    }
    let pairs: Vec<_> = segment.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

fn describe_terms(terms: &[Term]) -> String {
    let terms: Vec<_> = terms.iter().map(|term| describe(&term.segment())).collect();
    terms.join(" or ")
}

/// The requirement for the driver. `None` means that nothing restricts the volume and no requirement is sent.
///
/// # Errors
/// If the selected node cannot be served, or the driver's topology is unknown.
pub fn requirement(question: &Question<'_>) -> Result<Option<Requirement>, RequirementError> {
    let selected = question
        .selected_node
        .map(|node| Selected::find(question, node))
        .transpose()?;
    let Some(mut requisite) = requisite_terms(question, selected.as_ref())? else {
        return Ok(None);
    };
    requisite.sort_by(Term::order);
    requisite.dedup();
    let first = match &selected {
        None => spread(question.claim) as usize % requisite.len(),
        Some(_) if question.policy.strict => 0,
        Some(selected) => requisite
            .iter()
            .position(|term| term.contains(&selected.term))
            .ok_or_else(|| selected.not_allowed(&requisite))?,
    };
    let requisite: Vec<_> = requisite.iter().map(Term::segment).collect();
    let mut preferred = requisite.clone();
    preferred.rotate_left(first);
    Ok(Some(Requirement { requisite, preferred }))
}

/// The selected node as the driver knows it.
struct Selected<'a> {
    node: &'a str,
    keys: &'a [String],
    term: Term,
}

impl<'a> Selected<'a> {
    fn find(question: &Question<'a>, node: &'a str) -> Result<Self, RequirementError> {
        let name = || node.to_owned();
        let driver = || question.driver.to_owned();
        let csi_node = question
            .csi_nodes
            .get(node)
            .ok_or_else(|| RequirementError::NoCsiNode { node: name() })?;
        let keys = topology_keys(csi_node, question.driver);
        if keys.is_empty() {
            return Err(RequirementError::NoTopologyKeys {
                node: name(),
                driver: driver(),
            });
        }
        let labels = &question
            .nodes
            .get(node)
            .ok_or_else(|| RequirementError::NodeGone { node: name() })?
            .metadata
            .labels;
        let term = Term::of_labels(labels, keys).map_err(|key| RequirementError::MissingLabel {
            node: name(),
            key: key.to_owned(),
            driver: driver(),
        })?;
        Ok(Self { node, keys, term })
    }

    fn not_allowed(&self, allowed: &[Term]) -> RequirementError {
        RequirementError::NotAllowed {
            node: self.node.to_owned(),
            segment: describe(&self.term.segment()),
            allowed: describe_terms(allowed),
        }
    }
}

fn requisite_terms(
    question: &Question<'_>,
    selected: Option<&Selected<'_>>,
) -> Result<Option<Vec<Term>>, RequirementError> {
    let allowed = flatten(question.allowed);
    let terms = match selected {
        Some(selected) if question.policy.strict => {
            if !question.allowed.is_empty() && !allowed.iter().any(|term| term.contains(&selected.term)) {
                return Err(selected.not_allowed(&allowed));
            }
            vec![selected.term.clone()]
        }
        _ if !question.allowed.is_empty() => allowed,
        Some(selected) => terms_of_cluster(question, selected.keys)?,
        None if question.policy.immediate => terms_of_cluster(question, registered_keys(question)?)?,
        None => return Ok(None),
    };
    // Empty allowed topologies restrict nothing.
    Ok((!terms.is_empty()).then_some(terms))
}

/// The terms of all nodes with these labels. A volume may span several of them, so the other ones count even if a node
/// was selected.
fn terms_of_cluster(question: &Question<'_>, keys: &[String]) -> Result<Vec<Term>, RequirementError> {
    let distinct: BTreeSet<Vec<(String, String)>> = question
        .nodes
        .values()
        .filter_map(|node| Term::of_labels(&node.metadata.labels, keys).ok())
        .map(|term| term.0)
        .collect();
    if distinct.is_empty() {
        return Err(RequirementError::NoLabelledNode {
            driver: question.driver.to_owned(),
            keys: keys.join(", "),
        });
    }
    Ok(distinct.into_iter().map(Term).collect())
}

/// The keys that the driver registered on the first node where it has any. Drivers register the same keys everywhere;
/// during an upgrade, either answer is acceptable.
fn registered_keys<'a>(question: &Question<'a>) -> Result<&'a [String], RequirementError> {
    question
        .csi_nodes
        .values()
        .map(|csi_node| topology_keys(csi_node, question.driver))
        .find(|keys| !keys.is_empty())
        .ok_or_else(|| RequirementError::NotRegistered {
            driver: question.driver.to_owned(),
        })
}

/// The topology keys of a driver on a node; empty if it is not installed there.
#[must_use]
pub fn topology_keys<'a>(csi_node: &'a CsiNode, driver: &str) -> &'a [String] {
    csi_node
        .spec
        .drivers
        .iter()
        .find(|found| found.name == driver)
        .map_or(&[], |found| &found.topology_keys)
}

/// The allowed topologies as single segments: every combination of the values of each term.
#[must_use]
pub fn allowed_segments(allowed: &[TopologySelectorTerm]) -> Vec<Segment> {
    flatten(allowed).iter().map(Term::segment).collect()
}

fn flatten(allowed: &[TopologySelectorTerm]) -> Vec<Term> {
    let combinations = allowed.iter().flat_map(|selector| {
        let mut expressions = selector.match_label_expressions.iter();
        let first = expressions.next().map_or_else(Vec::new, |expression| {
            expression
                .values
                .iter()
                .map(|value| vec![(expression.key.clone(), value.clone())])
                .collect()
        });
        expressions.fold(first, |terms, expression| {
            let with_value = |value: &String| {
                let pair = (expression.key.clone(), value.clone());
                terms.iter().map(move |term| {
                    let mut longer = term.clone();
                    longer.push(pair.clone());
                    longer
                })
            };
            expression.values.iter().flat_map(with_value).collect()
        })
    });
    combinations.map(Term::new).collect()
}

/// A number from a claim's name by which the claims of a StatefulSet are spread evenly.
///
/// Claims of a StatefulSet are named CLAIM-SET-ORDINAL. Only SET is hashed, so that the claims of one pod stay
/// together, and the ordinal is added, so that consecutive pods use consecutive segments.
#[must_use]
pub fn spread(claim: &str) -> u32 {
    let (hashed, ordinal) = match claim.rsplit_once('-') {
        Some((prefix, ordinal)) if is_number(ordinal) => match ordinal.parse::<u32>() {
            Ok(ordinal) => (prefix.rsplit_once('-').map_or(prefix, |(_, set)| set), ordinal),
            Err(_) => (claim, 0),
        },
        _ => (claim, 0),
    };
    fnv1(hashed.as_bytes()).wrapping_add(ordinal)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn fnv1(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash: u32, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(*byte)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_pod_go_together_and_pods_follow_each_other() {
        assert_eq!(spread("data-web-0"), spread("logs-web-0"));
        assert_eq!(spread("data-web-1"), spread("data-web-0").wrapping_add(1));
        assert_eq!(spread("web-7"), spread("web-0").wrapping_add(7));
        // No ordinal: the whole name is hashed.
        assert_eq!(spread("data-web-"), fnv1(b"data-web-"));
        assert_eq!(spread("data-web-+1"), fnv1(b"data-web-+1"));
        assert_eq!(spread("data-web-99999999999"), fnv1(b"data-web-99999999999"));
        assert_eq!(spread("data"), fnv1(b"data"));
        assert_eq!(fnv1(b"a"), 0x050c_5d7e);
    }

    #[test]
    fn allowed_topologies_become_every_combination() {
        let allowed: Vec<TopologySelectorTerm> = serde_json::from_str(
            r#"[{"matchLabelExpressions":[{"key":"zone","values":["a","b"]},{"key":"rack","values":["1","2"]}]},
                {"matchLabelExpressions":[]},
                {"matchLabelExpressions":[{"key":"zone","values":["c"]}]}]"#,
        )
        .unwrap();
        let described: Vec<_> = allowed_segments(&allowed).iter().map(describe).collect();
        assert_eq!(
            described,
            [
                "rack=1,zone=a",
                "rack=1,zone=b",
                "rack=2,zone=a",
                "rack=2,zone=b",
                "zone=c"
            ]
        );
    }
}
