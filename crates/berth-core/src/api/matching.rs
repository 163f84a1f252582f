//! Label and node selector matching on plain strings, for callers that check few objects and need no interning.
//!
//! The compiled forms in [`label`](crate::label) and [`node_selector`](crate::node_selector) give the same results;
//! their tests compare both.

use super::{LabelSelector, NodeSelector, NodeSelectorTerm, Requirement, StringMap};

impl LabelSelector {
    /// Whether labels match all parts of the selector.
    #[must_use]
    pub fn matches(&self, labels: &StringMap) -> bool {
        let mut exact = self.match_labels.iter();
        exact.all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|one| one.holds_for_label(labels))
    }
}

impl NodeSelector {
    /// Whether one of the terms matches a node.
    #[must_use]
    pub fn matches(&self, name: &str, labels: &StringMap) -> bool {
        self.node_selector_terms.iter().any(|term| term.matches(name, labels))
    }
}

impl NodeSelectorTerm {
    fn matches(&self, name: &str, labels: &StringMap) -> bool {
        let empty = self.match_expressions.is_empty() && self.match_fields.is_empty();
        !empty
            && self.match_expressions.iter().all(|one| one.holds_for_label(labels))
            && self.match_fields.iter().all(|one| one.holds_for_name(name))
    }
}

impl Requirement {
    fn holds_for_label(&self, labels: &StringMap) -> bool {
        let found = labels.get(&self.key).map(String::as_str);
        match (self.operator.as_str(), found) {
            ("In", Some(value)) => self.lists(value),
            ("NotIn", Some(value)) => !self.lists(value),
            ("NotIn" | "DoesNotExist", None) | ("Exists", Some(_)) => true,
            ("Gt", Some(value)) => self.compares(value, |found, bound| found > bound),
            ("Lt", Some(value)) => self.compares(value, |found, bound| found < bound),
            // The requirement needs a label that is missing, or uses an unknown operator.
            _ => false,
        }
    }

    fn holds_for_name(&self, name: &str) -> bool {
        match (self.key.as_str(), self.operator.as_str()) {
            ("metadata.name", "In") => self.lists(name),
            ("metadata.name", "NotIn") => !self.lists(name),
            _ => false,
        }
    }

    fn lists(&self, value: &str) -> bool {
        self.values.iter().any(|listed| listed == value)
    }

    fn compares(&self, found: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|bound| bound.parse().ok());
        found
            .parse()
            .is_ok_and(|found| bound.is_some_and(|bound| holds(found, bound)))
    }
}
