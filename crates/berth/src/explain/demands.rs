//! What a pod's node selector and node affinity require of a node, and what a node lacks.

use berth_core::api::{Node, NodeSelector, NodeSelectorTerm, Pod, Requirement};
use berth_core::names::HOSTNAME;
use std::fmt;

/// The field of a node that affinity can select.
const NAME_FIELD: &str = "metadata.name";

/// Prefixes of labels that describe a node: host name, operating system, machine type, zone.
const FACTS: [&str; 5] = [
    "kubernetes.io",
    "beta.kubernetes.io",
    "node.kubernetes.io",
    "topology.kubernetes.io",
    "failure-domain.beta.kubernetes.io",
];

/// One requirement of a pod on the labels or the name of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    key: String,
    operator: String,
    values: Vec<String>,
}

/// How a node's label must change to satisfy a demand.
pub(super) enum Label<'d> {
    /// Set it to this value.
    Set(&'d str, &'d str),
    /// Remove it.
    Remove(&'d str),
}

impl Demand {
    fn of(requirement: &Requirement) -> Self {
        Self {
            key: requirement.key.clone(),
            operator: requirement.operator.clone(),
            values: requirement.values.clone(),
        }
    }

    fn is_met_by(&self, node: &Node, is_field: bool) -> bool {
        let requirement = Requirement {
            key: self.key.clone(),
            operator: self.operator.clone(),
            values: self.values.clone(),
        };
        let mut term = NodeSelectorTerm::default();
        match is_field {
            true => term.match_fields.push(requirement),
            false => term.match_expressions.push(requirement),
        }
        let selector = NodeSelector {
            node_selector_terms: vec![term],
        };
        selector.matches(&node.metadata.name, &node.metadata.labels)
    }

    /// The nodes that it lists, if it selects nodes by name.
    pub(super) fn named_nodes(&self) -> Option<&[String]> {
        let by_name = self.key == HOSTNAME || self.key == NAME_FIELD;
        (by_name && self.operator == "In").then_some(&self.values)
    }

    /// How a label of the node must change. `None` if the label describes the node, so that another value would be
    /// wrong.
    pub(super) fn label(&self) -> Option<Label<'_>> {
        let prefix = self.key.split_once('/').map_or("", |(prefix, _)| prefix);
        if self.key == NAME_FIELD || FACTS.contains(&prefix) {
            return None;
        }
        match self.operator.as_str() {
            "In" => Some(Label::Set(&self.key, self.values.first()?)),
            "Exists" => Some(Label::Set(&self.key, "")),
            "NotIn" | "DoesNotExist" => Some(Label::Remove(&self.key)),
            _ => None,
        }
    }

    /// What the node has instead, as text.
    fn found(&self, node: &Node) -> Option<String> {
        let has = node.metadata.labels.get(&self.key)?;
        Some(format!("{}={has}", self.key))
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        match (operator.as_str(), values.as_slice()) {
            ("In", [value]) => write!(f, "{key}={value}"),
            ("NotIn", [value]) => write!(f, "{key}!={value}"),
            ("In", values) => write!(f, "{key} in ({})", values.join(", ")),
            ("NotIn", values) => write!(f, "{key} not in ({})", values.join(", ")),
            ("Exists", _) => write!(f, "label {key}"),
            ("DoesNotExist", _) => write!(f, "no label {key}"),
            ("Gt", values) => write!(f, "{key} > {}", values.join(", ")),
            ("Lt", values) => write!(f, "{key} < {}", values.join(", ")),
            (operator, values) => write!(f, "{key} {operator} {}", values.join(", ")),
        }
    }
}

/// A demand that a node does not satisfy, and what the node has instead.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unmet {
    /// The demand.
    pub demand: Demand,
    /// What the node has instead; `None` if it has no such label.
    pub has: Option<String>,
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wants {}", self.demand)?;
        match &self.has {
            Some(has) => write!(f, ", has {has}"),
            None => Ok(()),
        }
    }
}

/// What a pod requires and a node lacks. One term of the affinity is enough: the one of which the node lacks the least.
pub(super) fn unmet(pod: &Pod, node: &Node) -> Vec<Unmet> {
    let selected = pod.spec.node_selector.iter().map(|(key, value)| Demand {
        key: key.clone(),
        operator: "In".to_owned(),
        values: vec![value.clone()],
    });
    let mut demands: Vec<Demand> = selected.filter(|demand| !demand.is_met_by(node, false)).collect();
    let affinity = pod.spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref());
    let terms = affinity.and_then(|affinity| affinity.required.as_ref());
    let lacking = |term: &NodeSelectorTerm| -> Vec<Demand> {
        let labels = term.match_expressions.iter().map(|one| (Demand::of(one), false));
        let fields = term.match_fields.iter().map(|one| (Demand::of(one), true));
        let unmet = labels
            .chain(fields)
            .filter(|(demand, is_field)| !demand.is_met_by(node, *is_field));
        unmet.map(|(demand, _)| demand).collect()
    };
    // An empty term selects no node.
    let asks = |term: &&NodeSelectorTerm| !term.match_expressions.is_empty() || !term.match_fields.is_empty();
    let terms = terms.into_iter().flat_map(|selector| &selector.node_selector_terms);
    let nearest = terms.filter(asks).map(lacking).min_by_key(Vec::len);
    for demand in nearest.into_iter().flatten() {
        if !demands.contains(&demand) {
            demands.push(demand);
        }
    }
    let unmet = demands.into_iter().map(|demand| Unmet {
        has: demand.found(node),
        demand,
    });
    unmet.collect()
}
