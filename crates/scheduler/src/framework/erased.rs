//! Type erasure for plugins.
//!
//! In: a plugin with a typed state. Out: the same plugin behind an object-safe trait per point, with its state in a
//! [`Slot`]. Only this module recovers the type of a state. Invariant: a slot is only passed to the plugin that made
//! it.

use std::any::Any;
use std::cmp::Ordering;

use model::{NodeId, PodId};

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{
    Bind, Concession, Filter, Normalized, Permit, PermitAnswer, PostBind, PostFilter, PostFilterAnswer, PreBind,
    PreEnqueue, PreFilter, PreScore, QueueSort, QueuedPod, Reserve, Score, Trials,
};
use crate::framework::status::{Rejections, Status};
use model::NodeSet;

/// The state of one plugin during one cycle.
pub(crate) struct Slot(Box<dyn Any + Send>);

impl Slot {
    fn of<P: Plugin>(state: P::State) -> Self {
        Self(Box::new(state))
    }

    fn get<P: Plugin>(&self) -> &P::State {
        self.0.downcast_ref().expect("a slot is passed to the plugin that made it")
    }

    fn get_mut<P: Plugin>(&mut self) -> &mut P::State {
        self.0.downcast_mut().expect("a slot is passed to the plugin that made it")
    }
}

pub(crate) trait AnyPlugin: Send + Sync {
    fn name(&self) -> &'static str;
    fn slot(&self) -> Slot;
    fn copy(&self, slot: &Slot) -> Slot;
    fn reset(&self, slot: &mut Slot);
    fn reads(&self) -> Reads;
    fn still_holds(&self, cycle: &Cycle<'_>, slot: &Slot) -> bool;
    fn scores_by_feasible(&self) -> bool;
    fn woken_by(&self) -> ChangeKinds;
    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool;
}

impl<P: Plugin> AnyPlugin for P {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn slot(&self) -> Slot {
        Slot::of::<P>(P::State::default())
    }

    fn copy(&self, slot: &Slot) -> Slot {
        Slot::of::<P>(slot.get::<P>().clone())
    }

    fn reset(&self, slot: &mut Slot) {
        *slot.get_mut::<P>() = P::State::default();
    }

    fn reads(&self) -> Reads {
        Plugin::reads(self)
    }

    fn still_holds(&self, cycle: &Cycle<'_>, slot: &Slot) -> bool {
        Plugin::still_holds(self, cycle, slot.get::<P>())
    }

    fn scores_by_feasible(&self) -> bool {
        Plugin::scores_by_feasible(self)
    }

    fn woken_by(&self) -> ChangeKinds {
        Plugin::woken_by(self)
    }

    fn helped_by(&self, waiting: &Cycle<'_>, change: &Change) -> bool {
        Plugin::helped_by(self, waiting, change)
    }
}

/// Declares the object-safe counterpart of a point and implements it for every plugin that extends the point. `slot
/// ref` and `slot mut` stand for a state that is read or written.
macro_rules! any {
    (@state $p:ident $slot:ident ref) => { $slot.get::<$p>() };
    (@state $p:ident $slot:ident mut) => { $slot.get_mut::<$p>() };
    (@slot ref) => { &Slot };
    (@slot mut) => { &mut Slot };
    ($any:ident for $point:ident { $(
        fn $method:ident($($before:ident: $before_type:ty),*; $slot:ident $access:tt; $($after:ident: $after_type:ty),*) -> $answer:ty;
    )+ }) => {
        pub(crate) trait $any: Send + Sync {
            $(fn $method(&self, $($before: $before_type,)* $slot: any!(@slot $access), $($after: $after_type),*) -> $answer;)+
        }

        impl<P: $point> $any for P {
            $(fn $method(&self, $($before: $before_type,)* $slot: any!(@slot $access), $($after: $after_type),*) -> $answer {
                $point::$method(self, $($before,)* any!(@state P $slot $access), $($after),*)
            })+
        }
    };
    ($any:ident for $point:ident { $(fn $method:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+ }) => {
        pub(crate) trait $any: Send + Sync {
            $(fn $method(&self, $($argument: $type),*) -> $answer;)+
        }

        impl<P: $point> $any for P {
            $(fn $method(&self, $($argument: $type),*) -> $answer {
                $point::$method(self, $($argument),*)
            })+
        }
    };
}

any!(AnyQueueSort for QueueSort {
    fn order(a: &QueuedPod, b: &QueuedPod) -> Ordering;
});
any!(AnyPreEnqueue for PreEnqueue {
    fn pre_enqueue(cycle: &Cycle<'_>) -> Status;
});
any!(AnyPreFilter for PreFilter {
    fn pre_filter(cycle: &Cycle<'_>; slot mut;) -> Result<Option<NodeSet>, Status>;
    fn add_pod(cycle: &Cycle<'_>; slot mut; added: PodId, node: NodeId) -> Status;
    fn remove_pod(cycle: &Cycle<'_>; slot mut; removed: PodId, node: NodeId) -> Status;
});
any!(AnyFilter for Filter {
    fn filter_all(cycle: &Cycle<'_>; slot ref; nodes: &NodeSet, rejections: &mut Rejections) -> ();
    fn may_yield(cycle: &Cycle<'_>; slot ref;) -> bool;
    fn yields(cycle: &Cycle<'_>; slot mut; left: &NodeSet) -> Option<Concession>;
    fn blockers(cycle: &Cycle<'_>; slot ref; nodes: &NodeSet) -> Vec<(NodeId, String)>;
});
any!(AnyPostFilter for PostFilter {
    fn post_filter(cycle: &Cycle<'_>, resolvable: &NodeSet, trials: &mut dyn Trials) -> PostFilterAnswer;
});
any!(AnyPreScore for PreScore {
    fn pre_score(cycle: &Cycle<'_>; slot mut; feasible: &NodeSet) -> Status;
});
any!(AnyScore for Score {
    fn score_all(cycle: &Cycle<'_>; slot ref; nodes: &NodeSet, scores: &mut [i64]) -> ();
    fn normalize(cycle: &Cycle<'_>; slot ref; feasible: &NodeSet, scores: &[i64], normalized: &mut [i64]) -> Normalized;
});
any!(AnyReserve for Reserve {
    fn reserve(cycle: &Cycle<'_>; slot mut; node: NodeId) -> Status;
    fn unreserve(; slot mut; pod: PodId, node: NodeId) -> ();
});
any!(AnyPermit for Permit {
    fn permit(cycle: &Cycle<'_>; slot mut; node: NodeId) -> PermitAnswer;
});
any!(AnyPreBind for PreBind {
    fn pre_bind(cycle: &Cycle<'_>; slot ref; node: NodeId) -> Result<bool, Status>;
});
any!(AnyBind for Bind {
    fn bind(cycle: &Cycle<'_>, node: NodeId) -> Status;
});
any!(AnyPostBind for PostBind {
    fn post_bind(cycle: &Cycle<'_>, node: NodeId) -> ();
});
