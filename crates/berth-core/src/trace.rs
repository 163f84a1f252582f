//! Finds the symbols in use: every type that keeps symbols can be traced, and symbols that no trace finds are
//! [freed](crate::symbols::Symbols::sweep).
//!
//! A symbol kept in an untraced place could turn into another string. Types are therefore traced by [`trace!`](crate::trace!), which
//! lists every field: a new field does not compile until its author states whether it holds symbols.

use crate::model::{ClaimId, VolumeId};
use crate::nodes::{NodeId, SelectorId};
use crate::symbols::Symbol;
use roaring::RoaringBitmap;
use smallvec::{Array, SmallVec};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The symbols that are in use.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    words: Vec<u64>,
    count: usize,
}

impl Marks {
    /// Marks a symbol as in use.
    pub fn mark(&mut self, symbol: Symbol) {
        let word = symbol.index() / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (symbol.index() % 64);
        self.count += 1;
    }

    /// Whether a symbol is in use.
    #[must_use]
    pub fn contains(&self, symbol: Symbol) -> bool {
        let word = self.words.get(symbol.index() / 64);
        word.is_some_and(|word| word & (1 << (symbol.index() % 64)) != 0)
    }

    /// How many times symbols were marked: the cost of the trace.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

/// A value that may keep symbols.
pub trait Trace {
    /// Marks the symbols that it keeps.
    fn trace(&self, marks: &mut Marks);
}

impl Trace for Symbol {
    fn trace(&self, marks: &mut Marks) {
        marks.mark(*self);
    }
}

/// Implements [`Trace`] for a type: lists the fields that keep symbols and, after a semicolon, those that do not or keep only symbols
/// that the first ones keep too.
///
/// ```
/// use berth_core::symbols::{Symbol, Symbols};
/// use berth_core::trace::{Marks, Trace};
/// struct Port {
///     protocol: Symbol,
///     number: i32,
/// }
/// berth_core::trace!(Port { protocol; number });
///
/// let mut symbols = Symbols::default();
/// let port = Port { protocol: symbols.intern("TCP"), number: 80 };
/// let mut marks = Marks::default();
/// port.trace(&mut marks);
/// assert!(marks.contains(port.protocol));
/// ```
#[macro_export]
macro_rules! trace {
    ($type:ty { ; $($other:ident),* }) => {
        impl $crate::trace::Trace for $type {
            fn trace(&self, _: &mut $crate::trace::Marks) {
                let Self { $($other: _,)* } = self;
            }
        }
    };
    ($type:ty { $($traced:ident),+ $(; $($other:ident),*)? }) => {
        impl $crate::trace::Trace for $type {
            fn trace(&self, marks: &mut $crate::trace::Marks) {
                let Self { $($traced,)+ $($($other: _,)*)? } = self;
                $($crate::trace::Trace::trace($traced, marks);)+
            }
        }
    };
}

/// Types that keep no symbols, for fields next to some that do.
macro_rules! without_symbols {
    ($($type:ty),*) => {
        $(impl Trace for $type {
            fn trace(&self, _: &mut Marks) {}
        })*
    };
}

without_symbols!(
    str,
    u32,
    u64,
    i32,
    i64,
    usize,
    NodeId,
    SelectorId,
    VolumeId,
    ClaimId,
    RoaringBitmap
);

impl<T: Trace> Trace for [T] {
    fn trace(&self, marks: &mut Marks) {
        self.iter().for_each(|item| item.trace(marks));
    }
}

impl<T: Trace> Trace for Option<T> {
    fn trace(&self, marks: &mut Marks) {
        self.iter().for_each(|item| item.trace(marks));
    }
}

impl<T: Trace + ?Sized> Trace for Box<T> {
    fn trace(&self, marks: &mut Marks) {
        (**self).trace(marks);
    }
}

impl<T: Trace + ?Sized> Trace for Arc<T> {
    fn trace(&self, marks: &mut Marks) {
        (**self).trace(marks);
    }
}

impl<T: Trace> Trace for Vec<T> {
    fn trace(&self, marks: &mut Marks) {
        self.as_slice().trace(marks);
    }
}

impl<A: Array<Item: Trace>> Trace for SmallVec<A> {
    fn trace(&self, marks: &mut Marks) {
        self.as_slice().trace(marks);
    }
}

impl<A: Trace, B: Trace> Trace for (A, B) {
    fn trace(&self, marks: &mut Marks) {
        self.0.trace(marks);
        self.1.trace(marks);
    }
}

impl<A: Trace, B: Trace, C: Trace> Trace for (A, B, C) {
    fn trace(&self, marks: &mut Marks) {
        self.0.trace(marks);
        self.1.trace(marks);
        self.2.trace(marks);
    }
}

impl<K: Trace, V: Trace, S> Trace for HashMap<K, V, S> {
    fn trace(&self, marks: &mut Marks) {
        for (key, value) in self {
            key.trace(marks);
            value.trace(marks);
        }
    }
}

impl<K: Trace, S> Trace for HashSet<K, S> {
    fn trace(&self, marks: &mut Marks) {
        self.iter().for_each(|item| item.trace(marks));
    }
}

impl<K: Trace, V: Trace> Trace for BTreeMap<K, V> {
    fn trace(&self, marks: &mut Marks) {
        for (key, value) in self {
            key.trace(marks);
            value.trace(marks);
        }
    }
}

impl<K: Trace> Trace for BTreeSet<K> {
    fn trace(&self, marks: &mut Marks) {
        self.iter().for_each(|item| item.trace(marks));
    }
}
