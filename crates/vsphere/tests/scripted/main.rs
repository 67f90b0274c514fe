//! The adapter on a scripted vCenter and a clock that jumps.

mod inventory;
mod probe;
mod rules;
mod vcenter;
