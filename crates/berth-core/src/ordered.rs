//! An ordered set that is a sorted list while it is small.
//!
//! A node has a handful of local volumes, and there may be a hundred thousand nodes: a list takes a fraction of the memory and scan time of a tree.
//! A class of network volumes may have a hundred thousand of them in one set, which is then a tree.

use std::collections::{BTreeSet, btree_set};
use std::slice;

/// Maximum length of a list: moving half of this many elements costs no more than descending a tree.
const MAX_IN_LIST: usize = 64;

/// An ordered set.
#[derive(Clone, Debug)]
pub(crate) enum Ordered<T> {
    /// At most [`MAX_IN_LIST`] elements, sorted.
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

    /// Returns whether the element was present. A tree remains a tree until it is empty.
    pub(crate) fn remove(&mut self, element: &T) -> bool {
        match self {
            Self::List(list) => {
                let place = list.binary_search(element);
                place.map(|place| list.remove(place)).is_ok()
            }
            Self::Tree(tree) => tree.remove(element),
        }
    }

    /// All elements in order, if the set is a list.
    pub(crate) fn as_list(&self) -> Option<&[T]> {
        match self {
            Self::List(list) => Some(list),
            Self::Tree(_) => None,
        }
    }

    /// The first element.
    pub(crate) fn first(&self) -> Option<&T> {
        match self {
            Self::List(list) => list.first(),
            Self::Tree(tree) => tree.first(),
        }
    }

    /// The last element.
    pub(crate) fn last(&self) -> Option<&T> {
        match self {
            Self::List(list) => list.last(),
            Self::Tree(tree) => tree.last(),
        }
    }

    /// All elements, in order.
    pub(crate) fn iter(&self) -> Iter<'_, T> {
        match self {
            Self::List(list) => Iter::List(list.iter()),
            Self::Tree(tree) => Iter::Tree(tree.range(..)),
        }
    }

    /// The elements from this one on, in order. It need not be in the set.
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
        /// Behaves like a tree set of any size.
        #[test]
        fn is_a_tree(steps in proptest::collection::vec((any::<bool>(), 0..200_u32), 0..400), first in 0..210_u32) {
            let (mut ordered, mut tree) = (Ordered::default(), BTreeSet::new());
            for (comes, element) in steps {
                // Twice as many elements are added as removed, so that some lists grow into trees.
                if comes || element % 2 == 0 {
                    ordered.insert(element);
                    tree.insert(element);
                } else {
                    prop_assert_eq!(ordered.remove(&element), tree.remove(&element));
                }
            }
            prop_assert_eq!((ordered.len(), ordered.is_empty()), (tree.len(), tree.is_empty()));
            prop_assert!(ordered.iter().eq(&tree));
            prop_assert_eq!((ordered.first(), ordered.last()), (tree.first(), tree.last()));
            prop_assert!(ordered.as_list().is_none_or(|list| list.iter().eq(&tree)));
            prop_assert!(ordered.starting_at(&first).eq(tree.range(first..)));
        }
    }
}
