//! The writer of rules on an outside in memory, in virtual time.

mod convergence;
mod situations;
mod stage;
