//! The volume binder: what a scheduler asks about the volumes of a pod.

use crate::api;
use crate::node_selector::NodeSelector;
use crate::nodes::{NodeId, Nodes, SelectorId};
use crate::symbols::Symbols;

/// The state of the cluster that decisions about volumes read.
#[derive(Clone, Debug, Default)]
pub struct VolumeBinder {
    symbols: Symbols,
    nodes: Nodes,
}

impl VolumeBinder {
    /// The interned texts.
    #[must_use]
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// The interned texts, to intern more.
    pub fn symbols_mut(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Adds a node, or replaces what is known of it.
    pub fn upsert_node(&mut self, node: &api::Node) -> NodeId {
        self.nodes
            .upsert(&mut self.symbols, &node.metadata.name, &node.metadata.labels)
    }

    /// Removes a node.
    pub fn remove_node(&mut self, name: &str) -> Option<NodeId> {
        self.nodes.remove(&self.symbols, name)
    }

    /// Holds a selector over nodes, so that its node set is kept up to date.
    pub fn acquire_selector(&mut self, selector: &NodeSelector) -> SelectorId {
        self.nodes.acquire(&self.symbols, selector)
    }

    /// Lets go of a selector over nodes.
    pub fn release_selector(&mut self, selector: SelectorId) {
        self.nodes.release(selector);
    }
}
