//! Interned texts: a label key, a namespace or a class is compared as a number.
//!
//! A symbol that was interned is never freed. Only texts that recur are interned (label keys, values that selectors ask
//! for, namespaces, classes, drivers, node names); the names of pods, claims and volumes, which come and go by the
//! million, are not. Values of labels are in between: most recur, but some are new with every job. They are held while a pod
//! has them, and let go with the last one, unless somebody interned the same text.

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
    texts: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, Symbol>,
    /// By symbol: how many hold it, or [`FOR_GOOD`].
    holders: Vec<u32>,
    /// Symbols that nobody holds any more.
    free: Vec<u32>,
}

/// A symbol that stays, whoever holds it.
const FOR_GOOD: u32 = u32::MAX;

impl Default for Symbols {
    fn default() -> Self {
        let mut symbols = Self {
            texts: Vec::new(),
            ids: FxHashMap::default(),
            holders: Vec::new(),
            free: Vec::new(),
        };
        symbols.intern("");
        symbols
    }
}

impl Symbols {
    /// The symbol of a text, new or known. It stays for good.
    ///
    /// The table holds at most 2^32 texts, which at some 60 bytes each is far beyond the memory of
    /// a process that only ever interns what recurs; past that, texts are taken for empty.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.ids.get(text).copied() {
            self.keep(symbol);
            return symbol;
        }
        self.insert(text, FOR_GOOD)
    }

    /// The symbol of a text that may go again: once for each [`Self::release`].
    pub fn hold(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.ids.get(text).copied() {
            self.hold_again(symbol);
            return symbol;
        }
        self.insert(text, 1)
    }

    /// Holds a symbol once more that somebody holds.
    pub fn hold_again(&mut self, symbol: Symbol) {
        if let Some(holders) = self.holders.get_mut(symbol.0 as usize) {
            // One below the top stays there, and with it the text.
            *holders = holders.saturating_add(1);
        }
    }

    /// Keeps a symbol for good that somebody holds.
    pub fn keep(&mut self, symbol: Symbol) {
        if let Some(holders) = self.holders.get_mut(symbol.0 as usize) {
            *holders = FOR_GOOD;
        }
    }

    /// Lets go of a symbol that was held. With its last holder it will stand for another text.
    pub fn release(&mut self, symbol: Symbol) {
        let Some(holders) = self.holders.get_mut(symbol.0 as usize) else {
            return;
        };
        if *holders == FOR_GOOD || *holders == 0 {
            return;
        }
        *holders -= 1;
        if *holders == 0 {
            let text = std::mem::take(&mut self.texts[symbol.0 as usize]);
            self.ids.remove(&text);
            self.free.push(symbol.0);
        }
    }

    fn insert(&mut self, text: &str, holders: u32) -> Symbol {
        let text: Arc<str> = text.into();
        let id = if let Some(id) = self.free.pop() {
            self.texts[id as usize] = Arc::clone(&text);
            self.holders[id as usize] = holders;
            id
        } else {
            let Ok(id) = u32::try_from(self.texts.len()) else {
                return Symbol::EMPTY;
            };
            self.texts.push(Arc::clone(&text));
            self.holders.push(holders);
            id
        };
        self.ids.insert(text, Symbol(id));
        Symbol(id)
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
        self.texts.get(symbol.0 as usize).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_goes_with_its_last_holder() {
        let mut symbols = Symbols::default();
        let job = symbols.hold("job-1");
        assert_eq!(symbols.hold("job-1"), job);
        symbols.release(job);
        assert_eq!(symbols.get("job-1"), Some(job));
        symbols.release(job);
        assert_eq!(symbols.get("job-1"), None);
        assert_eq!(symbols.hold("job-2"), job, "its place is used again");
        assert_eq!(symbols.text(job), "job-2");
        assert_eq!(symbols.len(), 2);
    }

    #[test]
    fn a_text_that_was_interned_stays() {
        let mut symbols = Symbols::default();
        let web = symbols.hold("web");
        assert_eq!(symbols.intern("web"), web);
        symbols.release(web);
        symbols.release(web);
        assert_eq!(symbols.get("web"), Some(web));
        let db = symbols.intern("db");
        assert_eq!(symbols.hold("db"), db);
        symbols.release(db);
        assert_eq!(symbols.get("db"), Some(db));
    }
}
