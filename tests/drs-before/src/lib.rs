//! From the world to DRS rules, so that DRS never undoes what the Kubernetes scheduler decided. Pure.
//!
//! - `planner`, [`mod@plan`]: what to create, edit and delete, and why; from scratch, or with what is kept from plan to plan.
//! - `places`: which VM a pod runs on. `gather`: what each term wants apart. `needs`: which pods need company. `pinning`,
//!   `pins`: which hosts pods accept. `wanted`: the pairs behind it.
//! - `cell`, `cover`, `graph`: the edges of one term into as few rules as possible, keeping the rules that exist. `cells`,
//!   `joint`: what terms have in common, and whether their rules can hold together.
//! - `cluster`, `following`, `classify`, `settle`, `together`, `ties`, `plan_cluster`, `telling`: the plan for one cluster. `explain`: the pods
//!   behind a rule. `guard`: how many members a rule may have.
//! - [`record`]: what Bridger owns. `ownership`: taking rules in, taking all away. `finding`: what people should know.
//!   `settings`. `digest`: short names.
//!
//! Invariants: the same world, record and moment give the same plan, whatever order events came in and whatever was planned
//! before; a rule that the record does not name is never in an action; each action names the pods that cause it.

mod cell;
mod cells;
mod classify;
mod cluster;
mod cover;
mod digest;
mod explain;
mod finding;
mod following;
mod gather;
mod graph;
mod guard;
mod joint;
mod needs;
mod ownership;
mod pinning;
mod pins;
mod places;
pub mod plan;
mod plan_cluster;
mod planner;
pub mod record;
mod record_text;
mod settings;
mod settle;
mod telling;
mod ties;
mod together;
mod touched;
mod wanted;

pub use finding::{Finding, PodRef};
pub use guard::Guard;
pub use ownership::{Adopted, adopt, cleanup};
pub use plan::{Action, ActionKind, ClusterPlan, GroupChange, Plan, VmRef, plan};
pub use planner::Planner;
pub use record::{Owned, OwnedGroups, OwnedRule, RuleSort, Rules, UnixMillis, Unwanted};
pub use settings::{DrsSettings, Pinning};
pub use wanted::{Wanted, wanted};
