//! From the world to DRS rules, so that DRS never undoes what the Kubernetes scheduler decided. Pure.
//!
//! - [`mod@wanted`]: which VMs pods want apart and together. `places`: which VM a pod runs on.
//! - `cover`, `graph`: edges between VMs into as few rules as possible, keeping the rules that exist.
//! - [`guard`]: how many members a rule may have. [`mod@plan`]: what to create, edit and delete, and why.
//! - `cluster`, `apart`, `together`, `classify`: the plan for one cluster. `explain`: the pods behind a rule.
//! - [`record`]: what Bridger owns. [`finding`]: what people should know. [`settings`].
//!
//! Invariants: the same world, record and moment give the same plan, whatever order events came in; a rule that the
//! record does not name is never in an action; each action names the pods that cause it.

mod apart;
mod classify;
mod cluster;
mod cover;
mod explain;
pub mod finding;
mod graph;
pub mod guard;
mod places;
pub mod plan;
pub mod record;
pub mod settings;
mod ties;
mod together;
pub mod wanted;

pub use finding::{Finding, PodRef};
pub use guard::Guard;
pub use plan::{Action, ActionKind, ClusterPlan, Plan, plan};
pub use record::{Owned, OwnedRule, RuleSort, UnixMillis, Unwanted};
pub use settings::DrsSettings;
pub use wanted::{Wanted, wanted};
