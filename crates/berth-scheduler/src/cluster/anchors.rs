//! Finds, among many label selectors, the few that can match given labels.
//!
//! A selector that requires one of some values of a label is indexed by those values; only the others are tried on
//! everything.

use berth_core::label::{LabelRequirement, LabelSelector, Labels};
use berth_core::symbols::Symbol;
use rustc_hash::FxHashMap;

/// Numbers of selectors, indexed by a label that they require.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Anchors {
    by_label: FxHashMap<(Symbol, Symbol), Vec<u32>>,
    unanchored: Vec<u32>,
}

// The owner of the index keeps the selectors.
berth_core::trace!(Anchors { ; by_label, unanchored });

/// The label that a selector requires: a key with its values.
pub(super) fn anchor(selector: &LabelSelector) -> Option<(Symbol, &[Symbol])> {
    selector
        .requirements()
        .iter()
        .filter_map(|requirement| match requirement {
            LabelRequirement::In(key, values) => Some((*key, &values[..])),
            _ => None,
        })
        .min_by_key(|(_, values)| values.len())
}

impl Anchors {
    pub(super) fn insert(&mut self, id: u32, selector: &LabelSelector) {
        match (selector, anchor(selector)) {
            (LabelSelector::Nothing, _) => {}
            (_, Some((key, values))) => {
                for value in values {
                    self.by_label.entry((key, *value)).or_default().push(id);
                }
            }
            (_, None) => self.unanchored.push(id),
        }
    }

    pub(super) fn remove(&mut self, id: u32, selector: &LabelSelector) {
        match anchor(selector) {
            Some((key, values)) => {
                for value in values {
                    if let Some(ids) = self.by_label.get_mut(&(key, *value)) {
                        ids.retain(|found| *found != id);
                        if ids.is_empty() {
                            self.by_label.remove(&(key, *value));
                        }
                    }
                }
            }
            None => self.unanchored.retain(|found| *found != id),
        }
    }

    /// The numbers of the selectors that may match labels, without duplicates.
    pub(super) fn candidates<'a>(&'a self, labels: &'a Labels) -> impl Iterator<Item = u32> + 'a {
        let anchored = labels.iter().filter_map(|pair| self.by_label.get(&pair)).flatten();
        anchored.chain(&self.unanchored).copied()
    }
}
