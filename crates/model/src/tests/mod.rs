//! Tests of the whole world: plain situations, and properties against a reference that keeps facts in maps and matches
//! by looking at everything.

mod description;
mod generate;
mod policy;
mod properties;
mod reference;
mod scale;
mod scheduling;
mod situations;
