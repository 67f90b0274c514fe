//! From the world to DRS rules, so that DRS never undoes what the Kubernetes scheduler decided. Pure.
//!
//! Planning a cluster is one function, [`plan_cluster`], and goes through four rooms:
//! - [`input`]: that cluster's part of the world, copied: which VM a pod runs on, what terms require.
//! - `cover`: pairs of VMs that must not share a host into few rules.
//! - `reconcile`: what exists, what is owned, what shall be.
//! - [`mod@plan`]: guarded changes, their reasons, and findings.
//!
//! Beside them: [`record`], what Bridger owns; `finding`, what people should know; `settings`.
//!
//! Invariants: the same view, record and moment give the same plan; a rule that the record does not name is never in a change; each
//! change names the pods that cause it.

mod cover;
mod finding;
pub mod input;
pub mod plan;
mod reconcile;
pub mod record;
mod settings;

pub use finding::{Finding, PodRef, TooFewHosts, VmPairs};
pub use input::{ClusterKey, ClusterView, Fingerprint, Surroundings};
pub use plan::{
    Adopted, Change, ChangeKind, ClusterPlan, GroupChange, Plan, VmRef, adopt, cleanup, plan, plan_cluster, restore,
};
pub use record::{Record, RecordedGroups, RecordedRule, RuleType, Rules, UnixMillis, Unwanted};
pub use settings::{DrsSettings, Pinning};
