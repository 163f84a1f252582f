//! An ordered set that is a sorted list while it is small.
//!
//! A node has a handful of local volumes, and there may be a hundred thousand nodes: a list takes a fraction of the memory of a tree and of the time
//! to look through. A class of network volumes may have a hundred thousand of them in one set, and then it is a tree.

use std::collections::{BTreeSet, btree_set};
use std::slice;

/// So many are kept in a list: moving half of them costs no more than going down a tree.
const MAX_IN_LIST: usize = 64;

/// An ordered set.
#[derive(Clone, Debug)]
pub(crate) enum Ordered<T> {
    /// At most [`MAX_IN_LIST`], in order.
    List(Vec<T>),
    Tree(BTreeSet<T>),
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl<T: Ord> Ordered<T> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Tree(tree) => tree.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn insert(&mut self, element: T) {
        match self {
            Self::List(list) => {
                let Err(place) = list.binary_search(&element) else {
                    return;
                };
                if list.len() < MAX_IN_LIST {
                    list.insert(place, element);
                } else {
                    *self = Self::Tree(std::mem::take(list).into_iter().chain([element]).collect());
                }
            }
            Self::Tree(tree) => {
                tree.insert(element);
            }
        }
    }

    /// Tells whether it was there. A tree stays one until it is empty.
    pub(crate) fn remove(&mut self, element: &T) -> bool {
        match self {
            Self::List(list) => {
                let place = list.binary_search(element);
                place.map(|place| list.remove(place)).is_ok()
            }
            Self::Tree(tree) => tree.remove(element),
        }
    }

    /// All elements in order, if they are few.
    pub(crate) fn as_list(&self) -> Option<&[T]> {
        match self {
            Self::List(list) => Some(list),
            Self::Tree(_) => None,
        }
    }

    /// All elements, in order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        match self {
            Self::List(list) => Iter::List(list.iter()),
            Self::Tree(tree) => Iter::Tree(tree.range(..)),
        }
    }

    /// The elements that come no earlier than one that need not be there, in order.
    pub(crate) fn starting_at(&self, first: &T) -> Iter<'_, T> {
        match self {
            Self::List(list) => {
                let place = list.partition_point(|element| element < first);
                Iter::List(list[place..].iter())
            }
            Self::Tree(tree) => Iter::Tree(tree.range(first..)),
        }
    }
}

/// Elements in order.
#[derive(Clone, Debug)]
pub(crate) enum Iter<'a, T> {
    List(slice::Iter<'a, T>),
    Tree(btree_set::Range<'a, T>),
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        match self {
            Self::List(list) => list.next(),
            Self::Tree(tree) => tree.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It is the set that a tree is, however many there are.
        #[test]
        fn is_a_tree(steps in proptest::collection::vec((any::<bool>(), 0..200_u32), 0..400), first in 0..210_u32) {
            let (mut ordered, mut tree) = (Ordered::default(), BTreeSet::new());
            for (comes, element) in steps {
                // Twice as many come as go, so that some lists grow into trees.
                if comes || element % 2 == 0 {
                    ordered.insert(element);
                    tree.insert(element);
                } else {
                    prop_assert_eq!(ordered.remove(&element), tree.remove(&element));
                }
            }
            prop_assert_eq!((ordered.len(), ordered.is_empty()), (tree.len(), tree.is_empty()));
            prop_assert!(ordered.iter().eq(&tree));
            prop_assert!(ordered.as_list().is_none_or(|list| list.iter().eq(&tree)));
            prop_assert!(ordered.starting_at(&first).eq(tree.range(first..)));
        }
    }
}
