//! Interned strings: a label key, a namespace or a class is compared as a number.
//!
//! User-defined names come and go, so a string is kept only while it is used. Uses are not counted, because that would slow down
//! every decision. Instead the owner of the table periodically [marks](mod@crate::trace) what is in use, and [`Symbols::sweep`]
//! frees the rest. The number of a freed string is reused, so a symbol is valid until the next sweep that does not find it.

use crate::trace::Marks;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// An interned string. Equal symbols of one [`Symbols`] are equal strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

impl Symbol {
    /// The empty string, in every table.
    pub const EMPTY: Self = Self(0);

    /// Whether this is the empty string.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The number, as an index into columns.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The table of interned strings.
///
/// ```
/// use berth_core::symbols::Symbols;
/// let mut symbols = Symbols::default();
/// let zone = symbols.intern("zone-a");
/// assert_eq!(symbols.intern("zone-a"), zone);
/// assert_eq!(symbols.text(zone), "zone-a");
/// assert_eq!(symbols.get("zone-b"), None);
/// ```
#[derive(Clone, Debug)]
pub struct Symbols {
    /// By number; the empty string for unused numbers.
    texts: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, Symbol>,
    /// Unused numbers.
    free: Vec<u32>,
    /// Number of strings added since the last sweep.
    fresh: usize,
}

impl Default for Symbols {
    fn default() -> Self {
        let empty: Arc<str> = "".into();
        Self {
            texts: vec![Arc::clone(&empty)],
            ids: FxHashMap::from_iter([(empty, Symbol::EMPTY)]),
            free: Vec::new(),
            fresh: 0,
        }
    }
}

impl Symbols {
    /// The symbol of a string, new or known. It is valid until a [sweep](Self::sweep) does not find it in use.
    ///
    /// The table holds at most 2^32 strings, which at some 60 bytes each exceeds the memory of a process; beyond that,
    /// strings are treated as empty.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.ids.get(text) {
            return *symbol;
        }
        let text: Arc<str> = text.into();
        let id = if let Some(id) = self.free.pop() {
            self.texts[id as usize] = Arc::clone(&text);
            id
        } else {
            let Ok(id) = u32::try_from(self.texts.len()) else {
                return Symbol::EMPTY;
            };
            self.texts.push(Arc::clone(&text));
            id
        };
        self.fresh += 1;
        self.ids.insert(text, Symbol(id));
        Symbol(id)
    }

    /// Frees every string that was not marked. Their numbers will be reused.
    pub fn sweep(&mut self, marks: &Marks) {
        self.fresh = 0;
        let empty = Arc::clone(&self.texts[0]);
        for (id, text) in self.texts.iter_mut().enumerate().skip(1) {
            if !text.is_empty() && !marks.contains(Symbol(id as u32)) {
                self.ids.remove(text);
                *text = Arc::clone(&empty);
            }
        }
        let used = self.texts.iter().rposition(|text| !text.is_empty());
        self.texts.truncate(used.map_or(1, |last| last + 1));
        self.free.clear();
        // Low numbers are used first, so that the table can be truncated.
        let unused = self.texts.iter().enumerate().skip(1).rev();
        let unused = unused.filter(|(_, text)| text.is_empty());
        self.free.extend(unused.map(|(id, _)| id as u32));
        self.texts.shrink_to(2 * self.texts.len());
        self.ids.shrink_to(2 * self.ids.len());
        self.free.shrink_to(2 * self.free.len());
    }

    /// Number of strings added since the last [sweep](Self::sweep).
    #[must_use]
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none apart from the empty string, which always exists.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The symbol of a string that was interned before.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Symbol> {
        self.ids.get(text).copied()
    }

    /// The string of a symbol.
    #[must_use]
    pub fn text(&self, symbol: Symbol) -> &str {
        self.texts.get(symbol.index()).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn sweep(symbols: &mut Symbols, used: &[Symbol]) {
        let mut marks = Marks::default();
        used.trace(&mut marks);
        symbols.sweep(&marks);
    }

    #[test]
    fn a_text_stays_while_a_sweep_finds_it() {
        let mut symbols = Symbols::default();
        let [web, job, db] = ["web", "job-1", "db"].map(|text| symbols.intern(text));
        sweep(&mut symbols, &[web, db]);
        assert_eq!(
            ["web", "job-1", "db"].map(|text| symbols.get(text)),
            [Some(web), None, Some(db)]
        );
        assert_eq!((symbols.len(), symbols.fresh()), (3, 0));
        assert_eq!(symbols.intern("job-2"), job, "its number is used again");
        assert_eq!((symbols.text(job), symbols.text(db)), ("job-2", "db"));
        assert_eq!(symbols.fresh(), 1);
    }

    #[test]
    fn the_table_ends_with_its_last_text() {
        let mut symbols = Symbols::default();
        let first = symbols.intern("first");
        for number in 0..10_000 {
            symbols.intern(&number.to_string());
        }
        sweep(&mut symbols, &[first]);
        assert_eq!((symbols.len(), symbols.texts.len(), symbols.free.len()), (2, 2, 0));
        assert!(symbols.texts.capacity() < 100 && symbols.ids.capacity() < 100);
        assert_eq!(symbols.get(""), Some(Symbol::EMPTY));
        assert_eq!(symbols.intern("next").index(), 2);
    }
}
