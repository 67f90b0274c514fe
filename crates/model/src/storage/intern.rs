//! String interning: strings that many objects share, as small numbers.
//!
//! In: label keys and values, namespace and node names. Out: a [`Symbol`] each, the same for the same string as long as
//! the string is in use. Uses are counted, because a cluster that runs jobs creates new label values every minute: an
//! unused string is dropped, and its number is reused for another string.
//!
//! Invariant: two symbols in use are equal exactly when their strings are.

use std::collections::HashMap;
use std::sync::Arc;

use crate::storage::finder::Finder;

/// An interned string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(u32);

impl Symbol {
    /// The symbol as an index: symbols are dense.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Maps strings to symbols: the table itself, or a [`Lookup`] that does not change the table.
pub(crate) trait Symbols {
    /// Returns the string's symbol and counts one more use.
    fn acquire(&mut self, text: &str) -> Symbol;
    /// Counts one more use of a symbol that is in use.
    fn retain(&mut self, symbol: Symbol);
    /// Releases one use of the symbol.
    fn release(&mut self, symbol: Symbol);
}

#[derive(Debug)]
struct Entry {
    text: Arc<str>,
    uses: u32,
}

/// The table of interned strings.
#[derive(Debug, Default)]
pub struct Interner {
    symbols: Finder<Symbol>,
    entries: Vec<Entry>,
    free: Vec<Symbol>,
}

impl Interner {
    /// Returns the string's symbol and counts one more use.
    pub fn acquire(&mut self, text: &str) -> Symbol {
        if let Some(symbol) = self.get(text) {
            self.entries[symbol.index()].uses += 1;
            return symbol;
        }
        let entry = Entry { text: text.into(), uses: 1 };
        let symbol = match self.free.pop() {
            Some(symbol) => {
                self.entries[symbol.index()] = entry;
                symbol
            }
            None => {
                let symbol = Symbol(u32::try_from(self.entries.len()).expect("fewer than 2^32 strings fit in memory"));
                self.entries.push(entry);
                symbol
            }
        };
        self.symbols.insert(symbol, |symbol| &*self.entries[symbol.index()].text);
        symbol
    }

    /// Releases one use of the symbol.
    pub fn release(&mut self, symbol: Symbol) {
        let Some(entry) = self.entries.get_mut(symbol.index()) else { return };
        match entry.uses {
            // Released once too often: the entry is already dropped.
            0 => {}
            1 => {
                entry.uses = 0;
                let text = std::mem::take(&mut entry.text);
                self.symbols.remove(symbol, &&*text);
                self.free.push(symbol);
            }
            _ => entry.uses -= 1,
        }
    }

    /// Counts one more use of a symbol that is in use.
    pub fn retain(&mut self, symbol: Symbol) {
        if let Some(entry) = self.entries.get_mut(symbol.index()) {
            entry.uses += 1;
        }
    }

    /// The string's symbol, if the string is in use.
    pub fn get(&self, text: &str) -> Option<Symbol> {
        self.symbols.find(&text, |symbol| *self.entries[symbol.index()].text == *text)
    }

    /// The string; empty for a symbol that is no longer in use.
    pub fn text(&self, symbol: Symbol) -> &str {
        self.entries.get(symbol.index()).map_or("", |entry| &entry.text)
    }

    /// The string, shared; empty for a symbol that is no longer in use.
    pub fn shared(&self, symbol: Symbol) -> Arc<str> {
        self.entries.get(symbol.index()).map(|entry| Arc::clone(&entry.text)).unwrap_or_default()
    }

    /// How many strings are in use.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    pub fn is_empty(&self) -> bool {
        self.symbols.len() == 0
    }
}

impl Symbols for Interner {
    fn acquire(&mut self, text: &str) -> Symbol {
        Interner::acquire(self, text)
    }

    fn retain(&mut self, symbol: Symbol) {
        Interner::retain(self, symbol);
    }

    fn release(&mut self, symbol: Symbol) {
        Interner::release(self, symbol);
    }
}

/// Finds symbols without counting uses. A string that is not in use gets a temporary symbol from the upper end of the
/// number range, which is unique within this lookup and differs from every symbol in use.
#[derive(Debug)]
pub(crate) struct Lookup<'a> {
    interner: &'a Interner,
    /// Strings not in use, numbered from 0. Tenants choose these strings and how many there are: hence a map, with
    /// std's keyed hash.
    unknown: HashMap<String, u32>,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(interner: &'a Interner) -> Self {
        Self { interner, unknown: HashMap::new() }
    }
}

impl Symbols for Lookup<'_> {
    fn acquire(&mut self, text: &str) -> Symbol {
        if let Some(known) = self.interner.get(text) {
            return known;
        }
        // One pod has fewer than 2^32 strings.
        let next = self.unknown.len() as u32;
        let number = match self.unknown.get(text) {
            Some(number) => *number,
            None => *self.unknown.entry(text.to_owned()).or_insert(next),
        };
        Symbol(u32::MAX - number)
    }

    fn retain(&mut self, _: Symbol) {}

    fn release(&mut self, _: Symbol) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_keeps_its_symbol_while_it_is_used() {
        let mut interner = Interner::default();
        let app = interner.acquire("app");
        let web = interner.acquire("web");
        assert_ne!(app, web);
        assert_eq!(interner.acquire("app"), app);
        interner.release(app);
        assert_eq!(interner.get("app"), Some(app));
        assert_eq!(interner.text(web), "web");
    }

    #[test]
    fn an_unused_string_is_dropped_and_its_number_is_reused() {
        let mut interner = Interner::default();
        let first = interner.acquire("job-1");
        interner.release(first);
        assert_eq!((interner.get("job-1"), interner.len(), interner.text(first)), (None, 0, ""));
        // Releasing once too often is harmless.
        interner.release(first);
        let second = interner.acquire("job-2");
        let third = interner.acquire("job-3");
        assert_eq!(second, first);
        assert_ne!(third, second);
        assert_eq!((interner.text(second), interner.text(third)), ("job-2", "job-3"));
    }

    #[test]
    fn a_lookup_finds_strings_in_use_and_distinguishes_the_others() {
        let mut interner = Interner::default();
        let app = interner.acquire("app");
        let mut lookup = Lookup::new(&interner);
        let [x, y] = ["x", "y"].map(|text| lookup.acquire(text));
        assert_eq!((lookup.acquire("app"), lookup.acquire("x")), (app, x));
        assert!(x != y && x != app && y != app);
        assert_eq!((interner.len(), interner.text(x)), (1, ""));
    }

    #[test]
    fn many_short_lived_strings_use_as_much_memory_as_one() {
        let mut interner = Interner::default();
        for run in 0..10_000 {
            let symbol = interner.acquire(&format!("job-{run}"));
            interner.release(symbol);
        }
        assert_eq!(interner.entries.len(), 1);
    }
}
