//! The wire protocol from a client's view: requests in process, on a paused clock.

mod client;
mod faults;
mod following;
mod mirror;
mod retrieving;
mod sessions;
