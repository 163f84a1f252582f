//! Node selectors, on interned strings: ORed terms of ANDed requirements.

use crate::api;
use crate::label::{LabelRequirement, Labels, value_set};
use crate::symbols::{Symbol, Symbols};
use crate::trace::{Marks, Trace};

/// A node selector. One without terms matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    terms: Box<[NodeSelectorTerm]>,
}

/// One term of a node selector. An empty one matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeSelectorTerm {
    requirements: Box<[NodeRequirement]>,
}

/// One requirement on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeRequirement {
    /// On its labels, as for any object.
    Label(LabelRequirement),
    /// The label is an integer greater than this one.
    Gt(Symbol, i64),
    /// The label is an integer less than this one.
    Lt(Symbol, i64),
    /// The name is one of these.
    NameIn(Box<[Symbol]>),
    /// The name is none of these.
    NameNotIn(Box<[Symbol]>),
    /// Cannot be satisfied: the requirement is invalid.
    Never,
}

impl NodeRequirement {
    fn on_label(symbols: &mut Symbols, requirement: &api::Requirement) -> Self {
        let number = || requirement.values.first().and_then(|value| value.parse().ok());
        match (requirement.operator.as_str(), number()) {
            ("Gt", Some(number)) => Self::Gt(symbols.intern(&requirement.key), number),
            ("Lt", Some(number)) => Self::Lt(symbols.intern(&requirement.key), number),
            _ => LabelRequirement::compile(symbols, requirement).map_or(Self::Never, Self::Label),
        }
    }

    fn on_field(symbols: &mut Symbols, requirement: &api::Requirement) -> Self {
        match (requirement.key.as_str(), requirement.operator.as_str()) {
            ("metadata.name", "In") => Self::NameIn(value_set(symbols, &requirement.values)),
            ("metadata.name", "NotIn") => Self::NameNotIn(value_set(symbols, &requirement.values)),
            _ => Self::Never,
        }
    }

    /// The listed values or names.
    fn values(&self) -> &[Symbol] {
        match self {
            Self::Label(requirement) => requirement.values(),
            Self::NameIn(names) | Self::NameNotIn(names) => names,
            Self::Gt(..) | Self::Lt(..) | Self::Never => &[],
        }
    }

    fn matches(&self, symbols: &Symbols, name: Symbol, labels: &Labels) -> bool {
        let integer = |key: Symbol| {
            labels
                .get(key)
                .and_then(|value| symbols.text(value).parse::<i64>().ok())
        };
        match self {
            Self::Label(requirement) => requirement.matches(labels),
            Self::Gt(key, number) => integer(*key).is_some_and(|found| found > *number),
            Self::Lt(key, number) => integer(*key).is_some_and(|found| found < *number),
            Self::NameIn(names) => names.contains(&name),
            Self::NameNotIn(names) => !names.contains(&name),
            Self::Never => false,
        }
    }
}

impl Trace for NodeRequirement {
    fn trace(&self, marks: &mut Marks) {
        match self {
            Self::Label(requirement) => requirement.trace(marks),
            Self::Gt(key, _) | Self::Lt(key, _) => key.trace(marks),
            Self::NameIn(names) | Self::NameNotIn(names) => names.trace(marks),
            Self::Never => {}
        }
    }
}

crate::trace!(NodeSelectorTerm { requirements });
crate::trace!(NodeSelector { terms });

impl NodeSelectorTerm {
    /// Compiles a term.
    #[must_use]
    pub fn new(symbols: &mut Symbols, term: &api::NodeSelectorTerm) -> Self {
        let labels = term
            .match_expressions
            .iter()
            .map(|requirement| NodeRequirement::on_label(symbols, requirement))
            .collect::<Vec<_>>();
        let fields = term
            .match_fields
            .iter()
            .map(|requirement| NodeRequirement::on_field(symbols, requirement));
        Self::of(labels.into_iter().chain(fields.collect::<Vec<_>>()))
    }

    /// A term of requirements.
    #[must_use]
    pub fn of(requirements: impl IntoIterator<Item = NodeRequirement>) -> Self {
        let mut requirements: Vec<_> = requirements.into_iter().collect();
        requirements.sort_unstable();
        requirements.dedup();
        Self {
            requirements: requirements.into(),
        }
    }

    /// The requirements.
    #[must_use]
    pub fn requirements(&self) -> &[NodeRequirement] {
        &self.requirements
    }

    /// Whether a node satisfies all requirements; an empty list matches no node.
    #[must_use]
    pub fn matches(&self, symbols: &Symbols, name: Symbol, labels: &Labels) -> bool {
        !self.requirements.is_empty()
            && self
                .requirements
                .iter()
                .all(|requirement| requirement.matches(symbols, name, labels))
    }
}

impl NodeSelector {
    /// Compiles a selector.
    #[must_use]
    pub fn new(symbols: &mut Symbols, selector: &api::NodeSelector) -> Self {
        let terms: Vec<_> = selector
            .node_selector_terms
            .iter()
            .map(|term| NodeSelectorTerm::new(symbols, term))
            .collect();
        Self::of(terms)
    }

    /// A selector of terms, one of which must match.
    #[must_use]
    pub fn of(mut terms: Vec<NodeSelectorTerm>) -> Self {
        terms.sort_unstable();
        terms.dedup();
        Self { terms: terms.into() }
    }

    /// Selects the nodes with these labels (`nodeSelector` of a pod).
    #[must_use]
    pub fn with_labels(symbols: &mut Symbols, labels: &api::StringMap) -> Self {
        let requirements: Vec<_> = labels
            .iter()
            .map(|(key, value)| {
                let value = symbols.intern(value);
                NodeRequirement::Label(LabelRequirement::In(symbols.intern(key), [value].into()))
            })
            .collect();
        Self::of(vec![NodeSelectorTerm::of(requirements)])
    }

    /// Selects the nodes in one of a class's allowed topologies.
    #[must_use]
    pub fn with_topologies(symbols: &mut Symbols, terms: &[api::TopologySelectorTerm]) -> Self {
        let compiled = terms
            .iter()
            .map(|term| {
                let requirements: Vec<_> = term
                    .match_label_expressions
                    .iter()
                    .map(|requirement| {
                        let values = value_set(symbols, &requirement.values);
                        NodeRequirement::Label(LabelRequirement::In(symbols.intern(&requirement.key), values))
                    })
                    .collect();
                NodeSelectorTerm::of(requirements)
            })
            .collect();
        Self::of(compiled)
    }

    /// The terms.
    #[must_use]
    pub fn terms(&self) -> &[NodeSelectorTerm] {
        &self.terms
    }

    /// The number of its requirements plus the values they list.
    #[must_use]
    pub fn size(&self) -> usize {
        let requirements = self.terms.iter().flat_map(|term| &term.requirements);
        requirements.map(|requirement| 1 + requirement.values().len()).sum()
    }

    /// Whether a node is selected.
    #[must_use]
    pub fn matches(&self, symbols: &Symbols, name: Symbol, labels: &Labels) -> bool {
        self.terms.iter().any(|term| term.matches(symbols, name, labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(terms: &str, labels: &[(&str, &str)], expected: bool) {
        let mut symbols = Symbols::default();
        let selector: api::NodeSelector = serde_json::from_str(&format!(r#"{{"nodeSelectorTerms":{terms}}}"#)).unwrap();
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(selector.matches("n1", &labels), expected, "{terms} on {labels:?}");
        let selector = NodeSelector::new(&mut symbols, &selector);
        let labels = Labels::new(&mut symbols, &labels);
        let name = symbols.intern("n1");
        assert_eq!(
            selector.matches(&symbols, name, &labels),
            expected,
            "{terms} on {labels:?}"
        );
    }

    #[test]
    fn terms_are_alternatives_and_empty_ones_match_nothing() {
        check("[]", &[("a", "b")], false);
        check("[{}]", &[("a", "b")], false);
        let two = r#"[{"matchExpressions":[{"key":"a","operator":"In","values":["x"]}]},
                      {"matchExpressions":[{"key":"b","operator":"Exists"}]}]"#;
        check(two, &[("a", "x")], true);
        check(two, &[("b", "")], true);
        check(two, &[("a", "y")], false);
    }

    #[test]
    fn numbers_compare_as_integers() {
        let gt = r#"[{"matchExpressions":[{"key":"cores","operator":"Gt","values":["9"]}]}]"#;
        check(gt, &[("cores", "10")], true);
        check(gt, &[("cores", "9")], false);
        check(gt, &[("cores", "many")], false);
        check(gt, &[], false);
        let lt = r#"[{"matchExpressions":[{"key":"cores","operator":"Lt","values":["9"]}]}]"#;
        check(lt, &[("cores", "-3")], true);
        check(lt, &[], false);
    }

    #[test]
    fn fields_select_by_name() {
        let fields = |operator: &str, name: &str| {
            format!(r#"[{{"matchFields":[{{"key":"metadata.name","operator":"{operator}","values":["{name}"]}}]}}]"#)
        };
        check(&fields("In", "n1"), &[], true);
        check(&fields("In", "n2"), &[], false);
        check(&fields("NotIn", "n2"), &[], true);
    }
}
