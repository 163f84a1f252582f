//! Whether labels and nodes match a selector.

use berth_core::api::{LabelSelector, NodeSelector, NodeSelectorTerm, PersistentVolume, Requirement, StringMap};

/// Whether labels match all parts of a selector.
pub(crate) fn matches_labels(selector: &LabelSelector, labels: &StringMap) -> bool {
    selector
        .match_labels
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
        && selector
            .match_expressions
            .iter()
            .all(|requirement| holds(requirement, labels.get(&requirement.key).map(String::as_str)))
}

/// Whether a volume can be reached from a node.
pub(crate) fn reaches(volume: &PersistentVolume, node: &str, labels: &StringMap) -> bool {
    volume
        .spec
        .node_affinity
        .as_ref()
        .and_then(|affinity| affinity.required.as_ref())
        .is_none_or(|required| matches_node(required, node, labels))
}

fn matches_node(selector: &NodeSelector, node: &str, labels: &StringMap) -> bool {
    selector
        .node_selector_terms
        .iter()
        .any(|term| matches_term(term, node, labels))
}

fn matches_term(term: &NodeSelectorTerm, node: &str, labels: &StringMap) -> bool {
    // An empty term matches nothing, as the API documents it.
    let empty = term.match_expressions.is_empty() && term.match_fields.is_empty();
    !empty
        && term
            .match_expressions
            .iter()
            .all(|requirement| holds(requirement, labels.get(&requirement.key).map(String::as_str)))
        && term
            .match_fields
            .iter()
            .all(|requirement| holds(requirement, (requirement.key == "metadata.name").then_some(node)))
}

fn holds(requirement: &Requirement, found: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|candidate| candidate == value);
    match (requirement.operator.as_str(), found) {
        ("In", Some(value)) => listed(value),
        ("NotIn", Some(value)) => !listed(value),
        ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
        ("Gt", Some(value)) => compare(value, &requirement.values, |found, bound| found > bound),
        ("Lt", Some(value)) => compare(value, &requirement.values, |found, bound| found < bound),
        // What is left asks for a label that is not there, or uses an operator that does not exist.
        _ => false,
    }
}

fn compare(found: &str, values: &[String], holds: impl Fn(i64, i64) -> bool) -> bool {
    match (found.parse(), values) {
        (Ok(found), [bound]) => bound.parse().is_ok_and(|bound| holds(found, bound)),
        _ => false,
    }
}
