//! The digest of a term's content.
//!
//! In: a term and the strings of its symbols. Out: a digest. Invariants: the digest is the same in every process and
//! for every order of requirements, values and namespaces; rule records contain it, so the algorithm never changes.

use super::selector::{Requirement, Selector};
use super::term::Term;
use crate::storage::digest::digest;
use crate::storage::intern::{Interner, Symbol};

pub(super) fn term_digest(term: &Term, interner: &Interner) -> u64 {
    let text = |symbol: Symbol| interner.text(symbol);
    let selector = |selector: &Selector| -> String {
        let values = |values: &[Symbol]| {
            let mut values: Vec<&str> = values.iter().map(|value| text(*value)).collect();
            values.sort_unstable();
            values.join(",")
        };
        let mut parts: Vec<String> = selector
            .requirements()
            .iter()
            .map(|requirement| match requirement {
                Requirement::In(key, of) => format!("{} in {}", text(*key), values(of)),
                Requirement::NotIn(key, of) => format!("{} notin {}", text(*key), values(of)),
                Requirement::Exists(key) => format!("{} exists", text(*key)),
                Requirement::DoesNotExist(key) => format!("{} absent", text(*key)),
            })
            .collect();
        parts.sort_unstable();
        if *selector == Selector::Nothing { "nothing".to_owned() } else { parts.join(";") }
    };
    let mut names: Vec<&str> = term.namespaces.names.iter().map(|name| text(*name)).collect();
    names.sort_unstable();
    digest(&[
        text(term.topology_key),
        &selector(&term.selector),
        &names.join(","),
        &selector(&term.namespaces.selector),
    ])
}
