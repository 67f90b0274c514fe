//! The extension points, in the order in which they run for a pod.
//!
//! ```text
//! queue      PreEnqueue, QueueSort
//! scheduling PreFilter  Filter  (PostFilter)  PreScore  Score  Reserve  Permit      one pod at a time
//! binding    (wait)  PreBind  Bind  PostBind                                        many pods at a time
//! ```
//! A plugin implements the traits of the points it extends, and declares them in its registration. `Notified` is not part
//! of a cycle: it is called when a message for the plugin arrives.

mod bind;
mod filter;
mod notified;
mod queue;
mod reserve;
mod score;

pub use bind::{Bind, PostBind, PreBind};
pub use filter::{
    Concession, Doubt, Filter, NodeTrial, Nomination, PostFilter, PostFilterAnswer, PreFilter, RejectedNodes,
};
pub use notified::Notified;
pub use queue::{PreEnqueue, QueueSort, QueuedPod};
pub use reserve::{Permit, PermitAnswer, Reserve};
pub use score::{NODE_SCORE_MAX, Normalized, PreScore, Score, normalize_by_highest};
pub(crate) use score::{extremes, map_scores};
