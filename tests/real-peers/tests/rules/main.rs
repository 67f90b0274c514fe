//! Tests DRS rules from pod policy: `bridger run` and its commands with a real kube-apiserver and vcsim, checked with
//! govc.
//!
//! - `stories`: rules for pods, step by step. `respect`: changes by administrators, and a lost record.
//! - `tenants`: limits on the rules of each namespace. `trust`: a vCenter that is down, nodes that are uncertain, the record's namespace and role.
//! - `upgrade`: rules written by an earlier version.
//! - `churn`: random steps by several actors at once, with kills. `kill_points`: kills at every step of a pass. `failovers`: of the leader.
//!   `late_writes`: what it sent arrives when another leads, or a command has lost the lease.
//! - `stage`: the peers. `pods`: pod objects. `witness`: the cluster's rules as govc shows them.

mod churn;
mod failovers;
mod kill_points;
mod late_writes;
mod pods;
mod respect;
mod stage;
mod stories;
mod tenants;
mod trust;
mod upgrade;
mod witness;
