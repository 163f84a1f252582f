//! Where volumes can be used: the nodes, and on which of them there is no room for one more volume of a driver.

use crate::journal::Journal;
use crate::nodes::{NodeId, Nodes};
use crate::symbols::Symbol;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

/// The nodes, with what is full on them.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) full: &'a FullNodes,
}

/// By driver, the nodes that can hold no more of its volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FullNodes {
    by_driver: FxHashMap<Symbol, RoaringBitmap>,
    changes: Journal<NodeId>,
}

impl FullNodes {
    pub(crate) fn contains(&self, driver: Symbol, node: NodeId) -> bool {
        let nodes = self.by_driver.get(&driver);
        nodes.is_some_and(|nodes| nodes.contains(node.0))
    }

    pub(crate) fn set(&mut self, driver: Symbol, node: NodeId, full: bool) {
        let changed = if full {
            self.by_driver.entry(driver).or_default().insert(node.0)
        } else {
            let nodes = self.by_driver.get_mut(&driver);
            nodes.is_some_and(|nodes| nodes.remove(node.0))
        };
        if changed {
            self.changes.push(node);
        }
    }

    /// The nodes on which something became full or no longer is.
    pub(crate) fn changes(&self) -> &Journal<NodeId> {
        &self.changes
    }
}
