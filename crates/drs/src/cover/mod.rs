//! From pairs of VMs that must not share a host to few rules; and from pods that need company to groups of VMs.
//!
//! - `terms`: what each term's rules are, alone and beside the others. `cliques`: one term's pairs into rules. `joint`: whether rules that
//!   are each fine can hold together. `groups`: which VMs to keep together. `guard`: how many members a rule may have. `hosts`: which
//!   hosts mandatory rules leave. `graph`.
//!
//! Nothing here knows of records, names or time.

pub(crate) mod cliques;
pub(crate) mod graph;
pub(crate) mod groups;
pub(crate) mod guard;
pub(crate) mod hosts;
pub(crate) mod joint;
pub(crate) mod terms;
