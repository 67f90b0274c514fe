//! Computes DRS rules from the world, so that DRS never undoes what the Kubernetes scheduler decided. Pure.
//!
//! Planning a cluster is one function, [`plan_cluster`], with four stages:
//! - [`input`]: a copy of the cluster's part of the world: which VM a pod runs on, what terms require.
//! - `cover`: combines pairs of VMs that must not share a host into few rules.
//! - `reconcile`: compares observed, recorded and desired rules.
//! - [`mod@plan`]: guarded changes, their reasons, and findings.
//!
//! Also: [`record`], the owned rules; `finding`, what an administrator should know; `settings`.
//!
//! Invariants: the same view, record and time give the same plan; a change never affects a rule that is not in the
//! record; each change names the pods that cause it.

mod cover;
mod finding;
pub mod input;
pub mod plan;
mod reconcile;
pub mod record;
mod settings;

pub use finding::{Finding, RulePod, TooFewHosts, VmPairs};
pub use input::{ClusterCopy, ClusterKey, ClusterView, Fingerprint, NodeCopies, PlanScope, Surroundings};
pub use plan::{
    Adopted, ChangeKind, ClusterPlan, GroupChange, Plan, RuleChange, VmRef, adopt, cleanup, plan, plan_cluster, restore,
};
pub use record::{Record, RecordedGroups, RecordedRule, RecordedRules, RuleType, UnixMillis, Unwanted};
pub use settings::{AcrossNamespaces, DrsSettings, Pinning};
