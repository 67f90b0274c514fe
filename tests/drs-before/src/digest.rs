//! Short names for what things say, the same in every process: of terms, of groups of VMs, of hosts.

use model::World;
use model::affinity::{Requirement, Selector, Term};
use model::intern::Symbol;
use sha2::{Digest, Sha256};

/// A short name for what a term says, the same in every process.
pub(crate) fn term_digest(world: &World, term: &Term) -> u64 {
    let text = |symbol: Symbol| world.interner().text(symbol);
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

/// 64 bits of a hash over parts.
pub(crate) fn digest(parts: &[&str]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// As it is recorded and part of names.
pub(crate) fn digest_text(digest: u64) -> String {
    format!("{digest:016x}")
}

pub(crate) fn parse_digest(text: &str) -> Option<u64> {
    (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok())?
}
