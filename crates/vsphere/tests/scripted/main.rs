//! The adapter on a scripted vCenter and a paused clock.

mod inventory;
mod placements;
mod probe;
mod rules;
mod vcenter;
