//! Labels and label selectors, on interned strings.

use crate::api;
use crate::symbols::{Symbol, Symbols};
use crate::trace::{Marks, Trace};

/// The labels of an object, ordered by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Symbol, Symbol)]>);

impl Labels {
    /// Interns the labels of an object.
    #[must_use]
    pub fn new(symbols: &mut Symbols, labels: &api::StringMap) -> Self {
        let mut pairs: Vec<_> = labels
            .iter()
            .map(|(key, value)| (symbols.intern(key), symbols.intern(value)))
            .collect();
        pairs.sort_unstable();
        Self(pairs.into())
    }

    /// Only the labels with these keys.
    #[must_use]
    pub fn only(&self, keys: &[Symbol]) -> Self {
        let pairs = self.0.iter().copied();
        Self(pairs.filter(|(key, _)| keys.contains(key)).collect())
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: Symbol) -> Option<Symbol> {
        // Objects have about a dozen labels: a scan beats a search.
        self.0.iter().find(|(found, _)| *found == key).map(|(_, value)| *value)
    }

    /// All labels.
    pub fn iter(&self) -> impl Iterator<Item = (Symbol, Symbol)> + '_ {
        self.0.iter().copied()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Trace for Labels {
    fn trace(&self, marks: &mut Marks) {
        self.0.trace(marks);
    }
}

/// One requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelRequirement {
    /// The label exists with one of these values (sorted, no duplicates).
    In(Symbol, Box<[Symbol]>),
    /// The label does not exist, or has none of these values.
    NotIn(Symbol, Box<[Symbol]>),
    /// The label exists.
    Exists(Symbol),
    /// The label does not exist.
    DoesNotExist(Symbol),
}

impl LabelRequirement {
    /// The label's key.
    #[must_use]
    pub fn key(&self) -> Symbol {
        match self {
            Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::DoesNotExist(key) => *key,
        }
    }

    /// The listed values.
    #[must_use]
    pub fn values(&self) -> &[Symbol] {
        match self {
            Self::In(_, values) | Self::NotIn(_, values) => values,
            Self::Exists(_) | Self::DoesNotExist(_) => &[],
        }
    }

    /// Whether labels satisfy the requirement.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(*key).is_some_and(|value| values.contains(&value)),
            Self::NotIn(key, values) => labels.get(*key).is_none_or(|value| !values.contains(&value)),
            Self::Exists(key) => labels.get(*key).is_some(),
            Self::DoesNotExist(key) => labels.get(*key).is_none(),
        }
    }

    pub(crate) fn compile(symbols: &mut Symbols, requirement: &api::Requirement) -> Option<Self> {
        let key = symbols.intern(&requirement.key);
        Some(match requirement.operator.as_str() {
            "In" => Self::In(key, value_set(symbols, &requirement.values)),
            "NotIn" => Self::NotIn(key, value_set(symbols, &requirement.values)),
            "Exists" => Self::Exists(key),
            "DoesNotExist" => Self::DoesNotExist(key),
            _ => return None,
        })
    }
}

impl Trace for LabelRequirement {
    fn trace(&self, marks: &mut Marks) {
        self.key().trace(marks);
        self.values().trace(marks);
    }
}

/// Interned values, sorted and without duplicates, so that equal sets are equal values.
pub(crate) fn value_set(symbols: &mut Symbols, values: &[String]) -> Box<[Symbol]> {
    let mut set: Vec<_> = values.iter().map(|value| symbols.intern(value)).collect();
    set.sort_unstable();
    set.dedup();
    set.into()
}

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LabelSelector {
    /// Matches no object: the meaning of a missing selector in Kubernetes.
    #[default]
    Nothing,
    /// Matches the objects that satisfy all requirements; an empty list matches every object.
    All(Box<[LabelRequirement]>),
}

impl LabelSelector {
    /// The selector that matches every object.
    #[must_use]
    pub fn everything() -> Self {
        Self::All(Box::default())
    }

    /// Compiles a selector. A missing one matches nothing.
    ///
    /// Decoded objects have only valid operators; a requirement with an unknown one matches nothing.
    #[must_use]
    pub fn new(symbols: &mut Symbols, selector: Option<&api::LabelSelector>) -> Self {
        let Some(selector) = selector else {
            return Self::Nothing;
        };
        let mut requirements: Vec<LabelRequirement> = Vec::new();
        for (key, value) in &selector.match_labels {
            let value = symbols.intern(value);
            requirements.push(LabelRequirement::In(symbols.intern(key), [value].into()));
        }
        for requirement in &selector.match_expressions {
            match LabelRequirement::compile(symbols, requirement) {
                Some(compiled) => requirements.push(compiled),
                None => return Self::Nothing,
            }
        }
        Self::of(requirements)
    }

    /// A selector of requirements, all of which must hold.
    #[must_use]
    pub fn of(mut requirements: Vec<LabelRequirement>) -> Self {
        requirements.sort_unstable();
        requirements.dedup();
        Self::All(requirements.into())
    }

    /// Whether labels are selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| requirement.matches(labels)),
        }
    }

    /// The requirements; also empty for [`Self::Nothing`].
    #[must_use]
    pub fn requirements(&self) -> &[LabelRequirement] {
        match self {
            Self::Nothing => &[],
            Self::All(requirements) => requirements,
        }
    }
}

impl Trace for LabelSelector {
    fn trace(&self, marks: &mut Marks) {
        self.requirements().trace(marks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expected: bool) {
        let mut symbols = Symbols::default();
        let selector: Option<api::LabelSelector> = serde_json::from_str(selector).unwrap();
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let plain = selector.as_ref().is_some_and(|selector| selector.matches(&labels));
        assert_eq!(plain, expected, "{selector:?} on {labels:?}");
        let selector = LabelSelector::new(&mut symbols, selector.as_ref());
        let labels = Labels::new(&mut symbols, &labels);
        assert_eq!(selector.matches(&labels), expected, "{selector:?} on {labels:?}");
    }

    #[test]
    fn a_missing_selector_matches_nothing_and_an_empty_one_everything() {
        check("null", &[], false);
        check("{}", &[], true);
        check("{}", &[("a", "b")], true);
    }

    #[test]
    fn all_parts_must_match() {
        let selector =
            r#"{"matchLabels":{"app":"db"},"matchExpressions":[{"key":"tier","operator":"NotIn","values":["x"]}]}"#;
        check(selector, &[("app", "db")], true);
        check(selector, &[("app", "db"), ("tier", "x")], false);
        check(selector, &[("app", "web")], false);
    }

    #[test]
    fn operators() {
        let one = |operator: &str, values: &str| {
            format!(r#"{{"matchExpressions":[{{"key":"k","operator":"{operator}","values":{values}}}]}}"#)
        };
        check(&one("In", r#"["a","b"]"#), &[("k", "b")], true);
        check(&one("In", r#"["a"]"#), &[], false);
        check(&one("NotIn", r#"["a"]"#), &[], true);
        check(&one("NotIn", r#"["a"]"#), &[("k", "a")], false);
        check(&one("Exists", "[]"), &[("k", "")], true);
        check(&one("Exists", "[]"), &[], false);
        check(&one("DoesNotExist", "[]"), &[], true);
        check(&one("DoesNotExist", "[]"), &[("k", "a")], false);
    }
}
