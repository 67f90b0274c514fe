//! Tests the rule writer against an in-memory vCenter, record store and Kubernetes, in virtual time.

mod convergence;
mod reports;
mod situations;
mod stage;
