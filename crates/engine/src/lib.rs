//! Owns the world and the event loop: what adapters tell goes in, what pure code decides goes out through the ports.

pub mod ports;
