//! The world both sides live in, as Bridger sees it. Pure: no I/O, no clock, no randomness, no async.
//!
//! - [`event`]: what adapters tell, in Bridger's own words.
//!
//! Invariants: [`event::Event`] is the only way state changes.

pub mod event;
