//! Interned texts: a label key, a namespace or a class is compared as a number.
//!
//! A symbol is never freed. Only texts that recur are interned (label keys and values, namespaces,
//! classes, drivers, node names); the names of pods, claims and volumes, which come and go by the
//! million, are not.

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
}

impl Default for Symbols {
    fn default() -> Self {
        let mut symbols = Self {
            texts: Vec::new(),
            ids: FxHashMap::default(),
        };
        symbols.intern("");
        symbols
    }
}

impl Symbols {
    /// The symbol of a text, new or known.
    ///
    /// The table holds at most 2^32 texts, which at some 60 bytes each is far beyond the memory of
    /// a process that only ever interns what recurs; past that, texts are taken for empty.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.ids.get(text) {
            return *symbol;
        }
        let Ok(id) = u32::try_from(self.texts.len()) else {
            return Symbol::EMPTY;
        };
        let text: Arc<str> = text.into();
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, Symbol(id));
        Symbol(id)
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
