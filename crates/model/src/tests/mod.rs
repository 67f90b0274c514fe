//! Tests of the whole world: example cases, and properties against a reference that keeps facts in maps and matches by
//! brute force.

mod assumed;
mod description;
mod doubts;
mod generate;
mod placing;
mod placing_cases;
mod placing_worlds;
mod policy;
mod properties;
mod reference;
mod scale;
mod scheduling;
mod situations;
mod upstream;
mod volumes;
