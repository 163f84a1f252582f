//! Where volumes can be used: the nodes, and which of them have no attach slot left for a driver.

use crate::journal::Journal;
use crate::nodes::{NodeId, Nodes};
use crate::symbols::Symbol;
use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

/// The nodes, and which drivers are full on them.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) nodes: &'a Nodes,
    pub(crate) full: &'a FullNodes,
}

/// By driver, the nodes that cannot attach more of its volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FullNodes {
    by_driver: FxHashMap<Symbol, RoaringBitmap>,
    /// By node and driver: how many more volumes the node can attach, where there is a limit.
    room: FxHashMap<NodeId, FxHashMap<Symbol, i64>>,
    changes: Journal<NodeId>,
}

crate::trace!(FullNodes { by_driver, room; changes });

impl FullNodes {
    /// Forgets drivers that are not full on any node.
    pub(crate) fn tidy(&mut self) {
        self.by_driver.retain(|_, nodes| !nodes.is_empty());
    }

    pub(crate) fn contains(&self, driver: Symbol, node: NodeId) -> bool {
        let nodes = self.by_driver.get(&driver);
        nodes.is_some_and(|nodes| nodes.contains(node.0))
    }

    /// Whether a node limits the volumes of any driver.
    pub(crate) fn is_limited(&self, node: NodeId) -> bool {
        self.room.contains_key(&node)
    }

    /// How many more volumes of a driver a node can attach.
    pub(crate) fn room(&self, driver: Symbol, node: NodeId) -> i64 {
        let of_node = self.room.get(&node).and_then(|drivers| drivers.get(&driver));
        of_node.copied().unwrap_or(i64::MAX)
    }

    /// Sets how many more volumes of a driver a node can attach; `None` for no limit.
    pub(crate) fn set(&mut self, driver: Symbol, node: NodeId, room: Option<i64>) {
        match room {
            Some(room) => {
                self.room.entry(node).or_default().insert(driver, room);
            }
            None => {
                if let Some(drivers) = self.room.get_mut(&node) {
                    drivers.remove(&driver);
                    if drivers.is_empty() {
                        self.room.remove(&node);
                    }
                }
            }
        }
        let changed = if room.is_some_and(|room| room <= 0) {
            self.by_driver.entry(driver).or_default().insert(node.0)
        } else {
            let nodes = self.by_driver.get_mut(&driver);
            nodes.is_some_and(|nodes| nodes.remove(node.0))
        };
        if changed {
            self.changes.push(node);
        }
    }

    /// The nodes on which a driver became full, or has room again.
    pub(crate) fn changes(&self) -> &Journal<NodeId> {
        &self.changes
    }
}
