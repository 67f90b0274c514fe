//! Combines pairs of VMs that must not share a host into few rules, and pods with required affinity into groups of VMs.
//!
//! - `terms`: the rules of each term, alone and with the others. `cliques`: covers one term's pairs with rules.
//!   `joint`: whether rules that can each be satisfied can be satisfied together. `groups`: which VMs to keep on one
//!   host. `guard`: how many members a rule may have. `hosts`: which hosts mandatory rules leave. `graph`.
//!
//! Nothing here depends on records, names or time.

pub(crate) mod cliques;
pub(crate) mod graph;
pub(crate) mod groups;
pub(crate) mod guard;
pub(crate) mod hosts;
pub(crate) mod joint;
pub(crate) mod terms;
