//! Path elements and sets of paths: the content of `fieldsV1`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One step of a path into an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum PathElement {
    /// A field of a struct, or a key of a map.
    Field(String),
    /// The list element whose key fields have these values.
    Key(BTreeMap<String, Value>),
    /// The list element with this value.
    Value(Value),
    /// The list element at this position.
    Index(usize),
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            PathElement::Field(_) => 0,
            PathElement::Key(_) => 1,
            PathElement::Value(_) => 2,
            PathElement::Index(_) => 3,
        }
    }

    /// The form in `fieldsV1`: `f:name`, `k:{"name":"a"}`, `v:"a"`, `i:0`.
    pub(crate) fn encode(&self) -> String {
        match self {
            PathElement::Field(name) => format!("f:{name}"),
            PathElement::Key(keys) => {
                let keys: Map<String, Value> = keys.clone().into_iter().collect();
                format!("k:{}", Value::Object(keys))
            }
            PathElement::Value(value) => format!("v:{value}"),
            PathElement::Index(index) => format!("i:{index}"),
        }
    }

    /// Parses the form in `fieldsV1`; unknown forms are ignored.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let (form, rest) = text.split_once(':')?;
        match form {
            "f" => Some(PathElement::Field(rest.to_owned())),
            "k" => match serde_json::from_str(rest).ok()? {
                Value::Object(keys) => Some(PathElement::Key(keys.into_iter().collect())),
                _ => None,
            },
            "v" => serde_json::from_str(rest).ok().map(PathElement::Value),
            "i" => rest.parse().ok().map(PathElement::Index),
            _ => None,
        }
    }

    /// The form in messages: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
    pub(crate) fn display(&self) -> String {
        match self {
            PathElement::Field(name) => format!(".{name}"),
            PathElement::Key(keys) => {
                let keys: Vec<_> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
            PathElement::Value(value) => format!("[={value}]"),
            PathElement::Index(index) => format!("[{index}]"),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_rank = self.rank().cmp(&other.rank());
        by_rank.then_with(|| match (self, other) {
            (PathElement::Field(a), PathElement::Field(b)) => a.cmp(b),
            (PathElement::Index(a), PathElement::Index(b)) => a.cmp(b),
            // JSON values have no natural order; any stable one works.
            (a, b) => a.encode().cmp(&b.encode()),
        })
    }
}

/// A set of paths, as a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSet {
    nodes: BTreeMap<PathElement, SetNode>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct SetNode {
    /// Whether the path that ends here is in the set.
    member: bool,
    below: FieldSet,
}

impl SetNode {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds the path of this one element.
    pub(crate) fn insert(&mut self, element: PathElement) {
        self.nodes.entry(element).or_default().member = true;
    }

    /// Adds paths below an element.
    pub(crate) fn insert_below(&mut self, element: PathElement, below: FieldSet) {
        if !below.is_empty() {
            let node = self.nodes.entry(element).or_default();
            node.below = std::mem::take(&mut node.below).union(&below);
        }
    }

    /// Whether the path of this one element is in the set.
    pub(crate) fn has(&self, element: &PathElement) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    /// Whether the element, or anything below it, is in the set.
    pub(crate) fn touches(&self, element: &PathElement) -> bool {
        self.nodes.contains_key(element)
    }

    /// The paths below an element.
    pub(crate) fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.nodes.get(element).map(|node| &node.below)
    }

    /// The first elements of all paths.
    pub(crate) fn elements(&self) -> impl Iterator<Item = &PathElement> {
        self.nodes.keys()
    }

    /// Removes an element and everything below it.
    pub(crate) fn remove(&mut self, element: &PathElement) {
        self.nodes.remove(element);
    }

    /// Removes the path of this one element, not those below it.
    pub(crate) fn remove_member(&mut self, element: &PathElement) {
        if let Some(node) = self.nodes.get_mut(element) {
            node.member = false;
            if node.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// Changes the paths below an element.
    pub(crate) fn change_below(&mut self, element: &PathElement, change: impl FnOnce(&mut FieldSet)) {
        if let Some(node) = self.nodes.get_mut(element) {
            change(&mut node.below);
            if node.is_empty() {
                self.nodes.remove(element);
            }
        }
    }

    /// Every path of either set.
    pub(crate) fn union(mut self, other: &FieldSet) -> FieldSet {
        for (element, theirs) in &other.nodes {
            let ours = self.nodes.entry(element.clone()).or_default();
            ours.member |= theirs.member;
            ours.below = std::mem::take(&mut ours.below).union(&theirs.below);
        }
        self
    }

    /// The paths of both sets.
    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |ours, theirs| ours && theirs, |_, _| FieldSet::default())
    }

    /// The paths of this set that are not in the other.
    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        self.combine(other, |ours, theirs| ours && !theirs, |ours, _| ours.clone())
    }

    fn combine(
        &self,
        other: &FieldSet,
        member: impl Fn(bool, bool) -> bool + Copy,
        alone: impl Fn(&FieldSet, &FieldSet) -> FieldSet + Copy,
    ) -> FieldSet {
        let mut nodes = BTreeMap::new();
        let nothing = SetNode::default();
        for (element, ours) in &self.nodes {
            let theirs = other.nodes.get(element).unwrap_or(&nothing);
            let below = if theirs.below.is_empty() {
                alone(&ours.below, &theirs.below)
            } else {
                ours.below.combine(&theirs.below, member, alone)
            };
            let node = SetNode {
                member: member(ours.member, theirs.member),
                below,
            };
            if !node.is_empty() {
                nodes.insert(element.clone(), node);
            }
        }
        FieldSet { nodes }
    }

    /// Every path, in order, as messages write it.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &str, paths: &mut Vec<String>) {
        for (element, node) in &self.nodes {
            let path = format!("{prefix}{}", element.display());
            if node.member {
                paths.push(path.clone());
            }
            node.below.collect_paths(&path, paths);
        }
    }

    /// The `fieldsV1` form.
    pub(crate) fn encode(&self) -> Value {
        let mut fields = Map::new();
        for (element, node) in &self.nodes {
            let Value::Object(mut below) = node.below.encode() else {
                continue;
            };
            if node.member && !below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.encode(), Value::Object(below));
        }
        Value::Object(fields)
    }

    /// Parses the `fieldsV1` form. Unknown parts are ignored.
    pub(crate) fn decode(fields: &Value) -> FieldSet {
        let mut nodes = BTreeMap::new();
        for (text, value) in fields.as_object().into_iter().flatten() {
            let Some(element) = PathElement::decode(text) else {
                continue;
            };
            let below = FieldSet::decode(value);
            let member = below.is_empty() || value.get(".").is_some();
            nodes.insert(element, SetNode { member, below });
        }
        FieldSet { nodes }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sets_survive_encoding() {
        let fields = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"a\"": {}}, "f:labels": {"f:app": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:x": {"i:0": {}}},
        });
        let set = FieldSet::decode(&fields);
        assert_eq!(set.encode(), fields);
        assert_eq!(
            set.paths(),
            [
                ".metadata.finalizers",
                ".metadata.finalizers[=\"a\"]",
                ".metadata.labels.app",
                ".spec.ports[port=80,protocol=\"TCP\"]",
                ".spec.ports[port=80,protocol=\"TCP\"].port",
                ".spec.x[0]",
            ]
        );
    }

    #[test]
    fn sets_combine() {
        let check = |a: Value, b: Value, union: &[&str], intersection: &[&str], difference: &[&str]| {
            let (a, b) = (FieldSet::decode(&a), FieldSet::decode(&b));
            assert_eq!(a.clone().union(&b).paths(), union);
            assert_eq!(a.intersection(&b).paths(), intersection);
            assert_eq!(a.difference(&b).paths(), difference);
        };
        check(
            json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}}),
            json!({"f:b": {"f:c": {}, "f:d": {}}}),
            &[".a", ".b", ".b.c", ".b.d"],
            &[".b.c"],
            &[".a", ".b"],
        );
        check(json!({}), json!({"f:a": {}}), &[".a"], &[], &[]);
    }
}
