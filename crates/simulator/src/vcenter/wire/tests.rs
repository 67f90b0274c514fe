//! The wire as a client sees it: requests in process, on a paused clock.

mod client;
mod faults;
mod following;
mod mirror;
mod retrieving;
mod sessions;
