//! What the examples share. The tests are in `tests/`.

pub mod bench;
