//! The adapter on a scripted vCenter and a clock that jumps.

mod inventory;
mod placements;
mod probe;
mod rules;
mod vcenter;
