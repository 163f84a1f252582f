//! A dense set of nodes, for the loops that narrow "all nodes" down to "the nodes that fit".

use crate::nodes::{NodeId, Nodes};
use roaring::RoaringBitmap;

/// A set of nodes with one bit per node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMask {
    words: Vec<u64>,
}

impl NodeMask {
    /// All nodes of the cluster.
    #[must_use]
    pub fn all(nodes: &Nodes) -> Self {
        Self::of(nodes, nodes.all())
    }

    /// The nodes of a set.
    #[must_use]
    pub fn of(nodes: &Nodes, set: &RoaringBitmap) -> Self {
        let mut mask = Self {
            words: vec![0; nodes.column_length().div_ceil(64)],
        };
        for node in set {
            mask.insert(NodeId(node));
        }
        mask
    }

    /// An empty set with room for the nodes of the cluster.
    #[must_use]
    pub fn none(nodes: &Nodes) -> Self {
        Self {
            words: vec![0; nodes.column_length().div_ceil(64)],
        }
    }

    /// Becomes a copy of another set without reallocating.
    pub fn copy_from(&mut self, other: &Self) {
        self.words.clone_from(&other.words);
    }

    /// Adds a node, growing the mask if needed.
    pub fn grow_to(&mut self, node: NodeId) {
        let words = node.index() / 64 + 1;
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        self.insert(node);
    }

    /// The set as words of 64 nodes each.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The set as words of 64 nodes each, mutable.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// Adds a node. IDs beyond the length of the mask are ignored.
    pub fn insert(&mut self, node: NodeId) {
        if let Some(word) = self.words.get_mut(node.index() / 64) {
            *word |= 1 << (node.0 % 64);
        }
    }

    /// Removes a node.
    pub fn remove(&mut self, node: NodeId) {
        if let Some(word) = self.words.get_mut(node.index() / 64) {
            *word &= !(1 << (node.0 % 64));
        }
    }

    /// Whether a node is in the set.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.words
            .get(node.index() / 64)
            .is_some_and(|word| word >> (node.0 % 64) & 1 == 1)
    }

    /// Keeps the nodes for which a test holds.
    pub fn retain(&mut self, mut keep: impl FnMut(NodeId) -> bool) {
        for (index, word) in self.words.iter_mut().enumerate() {
            let mut left = *word;
            while left != 0 {
                let bit = left.trailing_zeros();
                left &= left - 1;
                if !keep(NodeId(index as u32 * 64 + bit)) {
                    *word &= !(1 << bit);
                }
            }
        }
    }

    /// Keeps the nodes that are in both sets.
    pub fn intersect(&mut self, other: &Self) {
        for (index, word) in self.words.iter_mut().enumerate() {
            *word &= other.words.get(index).copied().unwrap_or(0);
        }
    }

    /// Removes the nodes of a set.
    pub fn subtract(&mut self, set: &RoaringBitmap) {
        for node in set {
            self.remove(NodeId(node));
        }
    }

    /// Removes the nodes of another mask.
    pub fn remove_all(&mut self, other: &Self) {
        for (word, gone) in self.words.iter_mut().zip(&other.words) {
            *word &= !gone;
        }
    }

    /// How many nodes are in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The nodes of one word of the set, by id.
    pub fn in_word(&self, index: usize) -> impl Iterator<Item = NodeId> + use<> {
        let mut left = self.words.get(index).copied().unwrap_or(0);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let bit = left.trailing_zeros();
            left &= left - 1;
            Some(NodeId(index as u32 * 64 + bit))
        })
    }

    /// The nodes of the set, by id.
    pub fn iter(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.words.len()).flat_map(|index| self.in_word(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Symbols;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// A mask behaves like a set of numbers.
        #[test]
        fn is_a_set(first in proptest::collection::btree_set(0..200_u32, 0..60),
                    second in proptest::collection::btree_set(0..200_u32, 0..60)) {
            let (mut symbols, mut nodes) = (Symbols::default(), Nodes::default());
            for node in 0..200 {
                nodes.upsert(&mut symbols, &format!("n{node}"), &Default::default());
            }
            let mask = NodeMask::of(&nodes, &first.iter().copied().collect());
            let other = NodeMask::of(&nodes, &second.iter().copied().collect());
            let ids = |mask: &NodeMask| mask.iter().map(|node| node.0).collect::<BTreeSet<_>>();
            prop_assert_eq!(&ids(&mask), &first);
            prop_assert_eq!(mask.len(), first.len());
            let mut both = mask.clone();
            both.intersect(&other);
            prop_assert_eq!(ids(&both), &first & &second);
            let mut retained = mask.clone();
            retained.retain(|node| other.contains(node));
            prop_assert_eq!(&retained, &both);
            let mut less = NodeMask::none(&nodes);
            less.copy_from(&mask);
            less.remove_all(&other);
            prop_assert_eq!(ids(&less), &first - &second);
            let mut grown = NodeMask::default();
            first.iter().for_each(|node| grown.grow_to(NodeId(*node)));
            prop_assert_eq!(&ids(&grown), &first);
            let mut rest = mask;
            rest.subtract(&second.iter().copied().collect());
            prop_assert_eq!(ids(&rest), &first - &second);
        }
    }
}
