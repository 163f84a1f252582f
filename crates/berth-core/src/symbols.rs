//! Interned texts: a label key, a namespace or a class is compared as a number.
//!
//! What users name comes and goes, so a text stays only while somebody uses it. Nobody counts users: that would cost every
//! decision something. Instead whoever owns the table [marks](mod@crate::trace) what is in use now and then, and [`Symbols::sweep`]
//! frees the rest. The number of a freed text stands for another one later, so a symbol is good until the next sweep
//! that does not find it.

use crate::trace::Marks;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// An interned text. Equal symbols of one [`Symbols`] are equal texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

impl Symbol {
    /// The empty text, in every table.
    pub const EMPTY: Self = Self(0);

    /// Whether this is the empty text.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// The number, as an index into columns.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The table of interned texts.
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
    /// By number; the empty text for numbers that stand for nothing.
    texts: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, Symbol>,
    /// Numbers that stand for nothing.
    free: Vec<u32>,
    /// How many texts came since the last sweep.
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
    /// The symbol of a text, new or known. It is good until a [sweep](Self::sweep) does not find it in use.
    ///
    /// The table holds at most 2^32 texts, which at some 60 bytes each is beyond the memory of a process; past that, texts
    /// are taken for empty.
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

    /// Frees every text that was not marked. Their numbers will stand for other texts.
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
        // Low numbers are taken first, so that the table can be cut at its end.
        let unused = self.texts.iter().enumerate().skip(1).rev();
        let unused = unused.filter(|(_, text)| text.is_empty());
        self.free.extend(unused.map(|(id, _)| id as u32));
        self.texts.shrink_to(2 * self.texts.len());
        self.ids.shrink_to(2 * self.ids.len());
        self.free.shrink_to(2 * self.free.len());
    }

    /// How many texts came since the last [sweep](Self::sweep).
    #[must_use]
    pub fn fresh(&self) -> usize {
        self.fresh
    }

    /// How many texts there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none; the empty text is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The symbol of a text that was interned before.
    #[must_use]
    pub fn get(&self, text: &str) -> Option<Symbol> {
        self.ids.get(text).copied()
    }

    /// The text of a symbol.
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
