//! Which nodes hold which images.

use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;

/// The images on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// Size by node, for each name of an image.
    holders: FxHashMap<Symbol, FxHashMap<NodeId, i64>>,
    of_node: Vec<Box<[(Symbol, i64)]>>,
}

impl Images {
    pub(super) fn grow(&mut self, length: usize) {
        self.of_node.resize(length.max(self.of_node.len()), Box::default());
    }

    /// Sets the images of a node by all their names.
    pub(super) fn set(&mut self, node: NodeId, images: Box<[(Symbol, i64)]>) {
        let slot = &mut self.of_node[node.index()];
        if *slot == images {
            return;
        }
        let old = std::mem::replace(slot, images);
        for (name, _) in &old {
            if let Some(nodes) = self.holders.get_mut(name) {
                nodes.remove(&node);
                if nodes.is_empty() {
                    self.holders.remove(name);
                }
            }
        }
        for (name, size) in &self.of_node[node.index()] {
            self.holders.entry(*name).or_default().insert(node, *size);
        }
    }

    /// The nodes that hold an image, with its size there.
    #[must_use]
    pub fn holders(&self, image: Symbol) -> Option<&FxHashMap<NodeId, i64>> {
        self.holders.get(&image)
    }
}
