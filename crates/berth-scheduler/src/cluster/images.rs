//! Which nodes hold which images.

use berth_core::mask::NodeMask;
use berth_core::nodes::NodeId;
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;

/// The nodes that hold an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    nodes: NodeMask,
    sizes: FxHashMap<NodeId, i64>,
}

impl Holders {
    /// Number of nodes that hold the image; at least one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sizes.len()
    }

    /// The size of the image on a node that holds it.
    #[must_use]
    pub fn size(&self, node: NodeId) -> Option<i64> {
        // Most nodes hold none of a pod's images; the set is checked faster than the map.
        self.nodes.contains(node).then(|| self.sizes.get(&node).copied())?
    }
}

/// The images on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    /// By image name.
    holders: FxHashMap<Symbol, Holders>,
    of_node: Vec<Box<[(Symbol, i64)]>>,
}

berth_core::trace!(Images { of_node; holders });

impl Images {
    pub(super) fn grow(&mut self, length: usize) {
        self.of_node.resize(length.max(self.of_node.len()), Box::default());
    }

    /// Sets the images of a node under all their names.
    pub(super) fn set(&mut self, node: NodeId, images: Box<[(Symbol, i64)]>) {
        let slot = &mut self.of_node[node.index()];
        if *slot == images {
            return;
        }
        let old = std::mem::replace(slot, images);
        for (name, _) in &old {
            if let Some(holders) = self.holders.get_mut(name) {
                holders.nodes.remove(node);
                holders.sizes.remove(&node);
                if holders.sizes.is_empty() {
                    self.holders.remove(name);
                }
            }
        }
        for (name, size) in &self.of_node[node.index()] {
            let holders = self.holders.entry(*name).or_default();
            holders.nodes.grow_to(node);
            holders.sizes.insert(node, *size);
        }
    }

    /// The nodes that hold an image.
    #[must_use]
    pub fn holders(&self, image: Symbol) -> Option<&Holders> {
        self.holders.get(&image)
    }
}
