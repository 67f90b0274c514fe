//! Code shared by the examples. The tests are in `tests/`.

pub mod bench;
