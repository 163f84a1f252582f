//! The nodes of the cluster, and the set of matching nodes for each distinct selector.
//!
//! The set of a selector is computed once and kept up to date when a node is added, removed or relabeled. No selector
//! is evaluated while a pod is scheduled. Both directions use an index by label, so that a hundred thousand local
//! volumes on as many nodes cost one lookup each, not a product.

use crate::api;
use crate::journal::Journal;
use crate::label::{LabelRequirement, Labels};
use crate::node_selector::{NodeRequirement, NodeSelector, NodeSelectorTerm};
use crate::symbols::{Symbol, Symbols};
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The ID of a node. IDs are dense and are reused after a node is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id as an index into columns of node values.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The ID of a distinct node selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SelectorId(u32);

impl SelectorId {
    /// Every node, including one without labels.
    pub const ALL: Self = Self(0);
}

#[derive(Clone, Debug)]
struct NodeEntry {
    name: Symbol,
    labels: Labels,
    /// Selectors that match this node, except [`SelectorId::ALL`].
    selectors: SmallVec<[SelectorId; 4]>,
}

#[derive(Clone, Debug, Default)]
struct SelectorEntry {
    selector: NodeSelector,
    nodes: RoaringBitmap,
    /// Number of holders; the selector is dropped with the last one.
    holders: u32,
}

crate::trace!(NodeEntry { name, labels; selectors });
crate::trace!(SelectorEntry { selector; nodes, holders });

/// The index entry of a term: a label pair, a name, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Anchor {
    Label(Symbol, Symbol),
    Name(Symbol),
}

/// The table of nodes and the node sets of selectors.
///
/// ```
/// use berth_core::{api, node_selector::NodeSelector, nodes::Nodes, symbols::Symbols};
/// let (mut symbols, mut nodes) = (Symbols::default(), Nodes::default());
/// let labels = [("zone".to_owned(), "a".to_owned())].into();
/// let node = nodes.upsert(&mut symbols, "n1", &labels);
/// let in_zone_a = NodeSelector::with_labels(&mut symbols, &labels);
/// let selector = nodes.acquire(&symbols, &in_zone_a);
/// assert!(nodes.matching(selector).contains(node.0));
/// nodes.remove(&symbols, "n1");
/// assert!(nodes.matching(selector).is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Nodes {
    entries: Vec<Option<NodeEntry>>,
    free: Vec<u32>,
    by_name: FxHashMap<Symbol, NodeId>,
    by_label: FxHashMap<(Symbol, Symbol), RoaringBitmap>,
    selectors: Vec<SelectorEntry>,
    free_selectors: Vec<u32>,
    selector_ids: FxHashMap<NodeSelector, SelectorId>,
    anchored: FxHashMap<Anchor, RoaringBitmap>,
    /// Selectors with a term that has no anchor.
    unanchored: RoaringBitmap,
    /// Nodes that were added, removed or relabeled.
    changes: Journal<NodeId>,
}

// The indexes contain only symbols of nodes and selectors.
crate::trace!(Nodes {
    entries, selectors; free, by_name, by_label, free_selectors, selector_ids, anchored, unanchored, changes
});

impl Default for Nodes {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            by_name: FxHashMap::default(),
            by_label: FxHashMap::default(),
            selectors: vec![SelectorEntry::default()],
            free_selectors: Vec::new(),
            selector_ids: FxHashMap::default(),
            anchored: FxHashMap::default(),
            unanchored: RoaringBitmap::new(),
            changes: Journal::default(),
        }
    }
}

impl Nodes {
    /// Adds a node or replaces its labels.
    pub fn upsert(&mut self, symbols: &mut Symbols, name: &str, labels: &api::StringMap) -> NodeId {
        let name = symbols.intern(name);
        let labels = Labels::new(symbols, labels);
        if let Some(id) = self.by_name.get(&name).copied() {
            if self.labels(id) != &labels {
                self.detach(id);
                self.attach(symbols, id, name, labels);
            }
            return id;
        }
        let id = NodeId(self.free.pop().unwrap_or(self.entries.len() as u32));
        if id.index() == self.entries.len() {
            self.entries.push(None);
        }
        self.by_name.insert(name, id);
        self.attach(symbols, id, name, labels);
        id
    }

    /// Removes a node. Its ID will be reused.
    pub fn remove(&mut self, symbols: &Symbols, name: &str) -> Option<NodeId> {
        let id = self.by_name.remove(&symbols.get(name)?)?;
        self.detach(id);
        self.free.push(id.0);
        Some(id)
    }

    fn attach(&mut self, symbols: &Symbols, id: NodeId, name: Symbol, labels: Labels) {
        self.changes.push(id);
        for pair in labels.iter() {
            self.by_label.entry(pair).or_default().insert(id.0);
        }
        let mut candidates = self.unanchored.clone();
        let anchors = labels
            .iter()
            .map(|(key, value)| Anchor::Label(key, value))
            .chain([Anchor::Name(name)]);
        for anchor in anchors {
            if let Some(found) = self.anchored.get(&anchor) {
                candidates |= found;
            }
        }
        let mut selectors = SmallVec::new();
        for candidate in candidates {
            let entry = &mut self.selectors[candidate as usize];
            if entry.selector.matches(symbols, name, &labels) {
                entry.nodes.insert(id.0);
                selectors.push(SelectorId(candidate));
            }
        }
        self.selectors[0].nodes.insert(id.0);
        self.entries[id.index()] = Some(NodeEntry {
            name,
            labels,
            selectors,
        });
    }

    fn detach(&mut self, id: NodeId) {
        self.changes.push(id);
        let Some(entry) = self.entries[id.index()].take() else {
            return;
        };
        for pair in entry.labels.iter() {
            if let Some(nodes) = self.by_label.get_mut(&pair) {
                nodes.remove(id.0);
                if nodes.is_empty() {
                    self.by_label.remove(&pair);
                }
            }
        }
        for selector in entry.selectors {
            self.selectors[selector.0 as usize].nodes.remove(id.0);
        }
        self.selectors[0].nodes.remove(id.0);
    }

    /// The id of a node.
    #[must_use]
    pub fn id(&self, name: Symbol) -> Option<NodeId> {
        self.by_name.get(&name).copied()
    }

    /// The name of a node; empty for an unused ID.
    #[must_use]
    pub fn name(&self, id: NodeId) -> Symbol {
        self.entry(id).map_or(Symbol::EMPTY, |entry| entry.name)
    }

    /// The labels of a node; empty for an unused ID.
    #[must_use]
    pub fn labels(&self, id: NodeId) -> &Labels {
        static NONE: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);
        self.entry(id).map_or(&NONE, |entry| &entry.labels)
    }

    /// The held selectors that match a node, except [`SelectorId::ALL`].
    #[must_use]
    pub fn selectors_of(&self, id: NodeId) -> &[SelectorId] {
        self.entry(id).map_or(&[], |entry| &entry.selectors)
    }

    fn entry(&self, id: NodeId) -> Option<&NodeEntry> {
        self.entries.get(id.index()).and_then(Option::as_ref)
    }

    /// All nodes, by id.
    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.all().iter().map(NodeId)
    }

    /// The set of all nodes.
    #[must_use]
    pub fn all(&self) -> &RoaringBitmap {
        self.matching(SelectorId::ALL)
    }

    /// The largest ID in use plus one: the length for columns of node values.
    #[must_use]
    pub fn column_length(&self) -> usize {
        self.entries.len()
    }

    /// Increases whenever a node is added, removed or relabeled.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.changes.next()
    }

    /// The nodes that were added, removed or relabeled since an epoch, possibly with duplicates. `None` if the changes
    /// are no longer recorded.
    #[must_use]
    pub fn changed_since(&self, epoch: u64) -> Option<&[NodeId]> {
        self.changes.since(epoch)
    }

    /// The nodes where a label has this value.
    #[must_use]
    pub fn with_label(&self, key: Symbol, value: Symbol) -> Option<&RoaringBitmap> {
        self.by_label.get(&(key, value))
    }

    /// The nodes that a held selector matches.
    #[must_use]
    pub fn matching(&self, selector: SelectorId) -> &RoaringBitmap {
        &self.selectors[selector.0 as usize].nodes
    }

    /// Acquires a selector: from now on its node set is kept up to date. Equal selectors share one ID.
    pub fn acquire(&mut self, symbols: &Symbols, selector: &NodeSelector) -> SelectorId {
        if let Some(id) = self.selector_ids.get(selector).copied() {
            self.selectors[id.0 as usize].holders += 1;
            return id;
        }
        let id = self.free_selectors.pop().unwrap_or(self.selectors.len() as u32);
        if id as usize == self.selectors.len() {
            self.selectors.push(SelectorEntry::default());
        }
        let nodes = self.evaluate(symbols, selector);
        for node in &nodes {
            if let Some(entry) = &mut self.entries[node as usize] {
                entry.selectors.push(SelectorId(id));
            }
        }
        for term in selector.terms() {
            match anchors_of(term) {
                Some(anchors) => {
                    for anchor in anchors {
                        self.anchored.entry(anchor).or_default().insert(id);
                    }
                }
                None => {
                    self.unanchored.insert(id);
                }
            }
        }
        self.selectors[id as usize] = SelectorEntry {
            selector: selector.clone(),
            nodes,
            holders: 1,
        };
        self.selector_ids.insert(selector.clone(), SelectorId(id));
        SelectorId(id)
    }

    /// The size of a held selector; see [`NodeSelector::size`].
    #[must_use]
    pub fn selector_size(&self, id: SelectorId) -> usize {
        self.selectors[id.0 as usize].selector.size()
    }

    /// Adds a holder to a selector that is already held.
    pub fn hold(&mut self, id: SelectorId) {
        if id != SelectorId::ALL {
            self.selectors[id.0 as usize].holders += 1;
        }
    }

    /// Releases a selector. With its last holder it is dropped, and its ID will be reused. Returns whether that
    /// happened.
    pub fn release(&mut self, id: SelectorId) -> bool {
        if id == SelectorId::ALL {
            return false;
        }
        let entry = &mut self.selectors[id.0 as usize];
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders > 0 {
            return false;
        }
        let entry = std::mem::take(entry);
        for node in entry.nodes {
            if let Some(node) = &mut self.entries[node as usize] {
                node.selectors.retain(|selector| *selector != id);
            }
        }
        for anchor in entry.selector.terms().iter().filter_map(anchors_of).flatten() {
            if let Some(selectors) = self.anchored.get_mut(&anchor) {
                selectors.remove(id.0);
                if selectors.is_empty() {
                    self.anchored.remove(&anchor);
                }
            }
        }
        self.unanchored.remove(id.0);
        self.selector_ids.remove(&entry.selector);
        self.free_selectors.push(id.0);
        true
    }

    /// The nodes that a selector matches, recomputed through the index by label.
    #[must_use]
    pub fn evaluate(&self, symbols: &Symbols, selector: &NodeSelector) -> RoaringBitmap {
        let mut matching = RoaringBitmap::new();
        for term in selector.terms() {
            let matches = |node: &u32| {
                self.entry(NodeId(*node))
                    .is_some_and(|entry| term.matches(symbols, entry.name, &entry.labels))
            };
            match anchors_of(term) {
                Some(anchors) => {
                    for anchor in anchors {
                        match anchor {
                            Anchor::Label(key, value) => {
                                let nodes = self.with_label(key, value);
                                matching.extend(nodes.into_iter().flatten().filter(matches));
                            }
                            Anchor::Name(name) => {
                                matching.extend(self.id(name).map(|id| id.0).filter(matches));
                            }
                        }
                    }
                }
                None => matching.extend(self.all().iter().filter(matches)),
            }
        }
        matching
    }
}

/// The anchors that cover every node a term matches, if there are any.
fn anchors_of(term: &NodeSelectorTerm) -> Option<SmallVec<[Anchor; 2]>> {
    let mut best: Option<SmallVec<[Anchor; 2]>> = None;
    for requirement in term.requirements() {
        let anchors: SmallVec<[Anchor; 2]> = match requirement {
            NodeRequirement::Label(LabelRequirement::In(key, values)) => {
                values.iter().map(|value| Anchor::Label(*key, *value)).collect()
            }
            NodeRequirement::NameIn(names) => names.iter().map(|name| Anchor::Name(*name)).collect(),
            _ => continue,
        };
        if best.as_ref().is_none_or(|best| anchors.len() < best.len()) {
            best = Some(anchors);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(pairs: &[(u8, u8)]) -> api::StringMap {
        pairs.iter().map(|(k, v)| (format!("k{k}"), v.to_string())).collect()
    }

    fn requirement() -> impl Strategy<Value = api::Requirement> {
        (0..3_u8, 0..6_usize, proptest::collection::vec(0..3_u8, 1..3)).prop_map(|(key, operator, values)| {
            let operator = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"][operator];
            api::Requirement {
                key: format!("k{key}"),
                operator: operator.to_owned(),
                values: values.iter().map(u8::to_string).collect(),
            }
        })
    }

    fn selector() -> impl Strategy<Value = api::NodeSelector> {
        let term = (
            proptest::collection::vec(requirement(), 0..3),
            proptest::option::of(0..5_u8),
        )
            .prop_map(|(match_expressions, name)| api::NodeSelectorTerm {
                match_expressions,
                match_fields: name
                    .map(|name| api::Requirement {
                        key: "metadata.name".to_owned(),
                        operator: if name < 4 { "In" } else { "NotIn" }.to_owned(),
                        values: vec![format!("n{name}")],
                    })
                    .into_iter()
                    .collect(),
            });
        proptest::collection::vec(term, 0..3).prop_map(|node_selector_terms| api::NodeSelector { node_selector_terms })
    }

    #[derive(Clone, Debug)]
    enum Step {
        Upsert(u8, Vec<(u8, u8)>),
        Remove(u8),
        Acquire(api::NodeSelector),
        Release(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..6_u8, proptest::collection::vec((0..3_u8, 0..3_u8), 0..3)).prop_map(|(n, l)| Step::Upsert(n, l)),
            1 => (0..6_u8).prop_map(Step::Remove),
            2 => selector().prop_map(Step::Acquire),
            1 => (0..4_usize).prop_map(Step::Release),
        ]
    }

    proptest! {
        /// After any sequence of changes, the set of every held selector equals what a walk over all nodes finds.
        #[test]
        fn node_sets_stay_true(steps in proptest::collection::vec(step(), 1..40)) {
            let (mut symbols, mut nodes) = (Symbols::default(), Nodes::default());
            let mut held: Vec<(NodeSelector, SelectorId)> = Vec::new();
            for step in steps {
                match step {
                    Step::Upsert(name, pairs) => {
                        nodes.upsert(&mut symbols, &format!("n{name}"), &labels(&pairs));
                    }
                    Step::Remove(name) => {
                        nodes.remove(&symbols, &format!("n{name}"));
                    }
                    Step::Acquire(selector) => {
                        let selector = NodeSelector::new(&mut symbols, &selector);
                        let id = nodes.acquire(&symbols, &selector);
                        held.push((selector, id));
                    }
                    Step::Release(at) if at < held.len() => {
                        let (_, id) = held.swap_remove(at);
                        nodes.release(id);
                    }
                    Step::Release(_) => {}
                }
                for (selector, id) in &held {
                    let expected: RoaringBitmap = nodes
                        .ids()
                        .filter(|node| selector.matches(&symbols, nodes.name(*node), nodes.labels(*node)))
                        .map(|node| node.0)
                        .collect();
                    prop_assert_eq!(nodes.matching(*id), &expected);
                    for node in nodes.ids() {
                        prop_assert_eq!(nodes.selectors_of(node).contains(id), expected.contains(node.0));
                    }
                }
            }
        }
    }
}
