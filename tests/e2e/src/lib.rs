//! Kubernetes' own e2e suite, with Bridger or kube-scheduler as the only scheduler of a cluster without kubelets.
//!
//! In: the names of the tests that must run and pass (`groups/`), and the suite itself, e2e.test, one of the peers. Out:
//! one result for each name. Invariants: a test that is skipped, or that no longer exists, has not passed; a test of a
//! whole group that is in no list has not passed either.

pub mod cluster;
pub mod group;
pub mod report;
pub mod run;

pub use cluster::{Cluster, SchedulerKind};
pub use group::Group;
pub use report::{Report, Verdict};
