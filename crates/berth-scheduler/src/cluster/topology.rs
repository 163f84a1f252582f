//! For each topology key in use, the domain of each node, as a column of small numbers.
//!
//! Columns are created when a key is first used and kept up to date with the nodes' labels.

use berth_core::nodes::{NodeId, Nodes};
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;

/// The number for "no domain".
const NOWHERE: u32 = u32::MAX;

/// One topology key on all nodes.
#[derive(Clone, Debug, Default)]
pub struct TopologyColumn {
    domain_of: Vec<u32>,
    /// The domain of each value. Numbers of removed values stay unused until the column is rebuilt.
    domains: FxHashMap<Symbol, u32>,
    /// Whether it was used since columns were last tidied.
    asked: bool,
}

berth_core::trace!(TopologyColumn { domains; domain_of, asked });

impl TopologyColumn {
    fn new(nodes: &Nodes, key: Symbol) -> Self {
        let mut column = Self::default();
        for node in nodes.ids() {
            column.set(nodes, key, node);
        }
        column.domain_of.resize(nodes.column_length(), NOWHERE);
        column
    }

    fn set(&mut self, nodes: &Nodes, key: Symbol, node: NodeId) {
        if self.domain_of.len() <= node.index() {
            self.domain_of.resize(node.index() + 1, NOWHERE);
        }
        let next = self.domains.len() as u32;
        let domain = nodes.labels(node).get(key);
        self.domain_of[node.index()] = domain.map_or(NOWHERE, |value| *self.domains.entry(value).or_insert(next));
    }

    /// The domain of a node; `None` if it lacks the key.
    #[must_use]
    pub fn domain(&self, node: NodeId) -> Option<usize> {
        match self.domain_of.get(node.index()) {
            None | Some(&NOWHERE) => None,
            Some(domain) => Some(*domain as usize),
        }
    }

    /// The largest domain number plus one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.domains.len()
    }

    /// Whether there are no domains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }
}

/// The topology keys in use.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    columns: FxHashMap<Symbol, TopologyColumn>,
}

berth_core::trace!(Topology { columns });

impl Topology {
    /// Ensures that a key has a column.
    pub fn ensure(&mut self, nodes: &Nodes, key: Symbol) {
        let column = self.columns.entry(key);
        column.or_insert_with(|| TopologyColumn::new(nodes, key)).asked = true;
    }

    /// Drops the columns that were not used since the last call.
    pub(super) fn tidy(&mut self) {
        self.columns.retain(|_, column| std::mem::take(&mut column.asked));
    }

    /// The column of a registered key.
    #[must_use]
    pub fn column(&self, key: Symbol) -> &TopologyColumn {
        static NONE: std::sync::LazyLock<TopologyColumn> = std::sync::LazyLock::new(TopologyColumn::default);
        self.columns.get(&key).unwrap_or(&NONE)
    }

    /// Applies the labels of a node that was added, changed or removed.
    pub(super) fn node_changed(&mut self, nodes: &Nodes, node: NodeId) {
        for (key, column) in &mut self.columns {
            column.set(nodes, *key, node);
            // Values of removed nodes would accumulate in a cluster whose nodes are replaced often.
            if column.domains.len() > 2 * column.domain_of.len() + 64 {
                *column = TopologyColumn::new(nodes, *key);
            }
        }
    }
}
