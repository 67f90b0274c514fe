//! Type erasure for plugins.
//!
//! In: a plugin with a typed state. Out: the same plugin behind an object-safe trait per point, with its state in a
//! [`Slot`]. Only this module recovers the type of a state. Invariant: a slot is only passed to the plugin that made
//! it.

use std::any::Any;

use model::{NodeId, PodId, World};

use crate::framework::change::{Change, ChangeKinds};
use crate::framework::cycle::Cycle;
use crate::framework::handle::Handle;
use crate::framework::plugin::{Plugin, Reads};
use crate::framework::points::{
    Bind, Concession, Doubt, Filter, NodeTrial, Normalized, Notified, Permit, PermitAnswer, PostBind, PostFilter,
    PostFilterAnswer, PreBind, PreEnqueue, PreFilter, PreScore, QueueSort, QueuedPod, RejectedNodes, Reserve, Score,
};
use crate::framework::sort_key::SortKey;
use crate::framework::status::{Rejections, Status};
use crate::framework::work::Work;
use model::NodeSet;

/// The state of one plugin during one cycle.
pub(crate) struct Slot(Box<dyn Any + Send>);

impl Slot {
    fn of<P: Plugin>(state: P::State) -> Self {
        Self(Box::new(state))
    }

    /// Stands for a state while its plugin has it.
    pub(crate) fn empty() -> Self {
        Self(Box::new(()))
    }

    /// `None` if the slot is empty.
    pub(crate) fn try_get<P: Plugin>(&self) -> Option<&P::State> {
        self.0.downcast_ref()
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

any!(AnyPreEnqueue for PreEnqueue {
    fn pre_enqueue(cycle: &Cycle<'_>) -> Status;
});
any!(AnyPreFilter for PreFilter {
    fn pre_filter(cycle: &Cycle<'_>; slot mut;) -> Result<Option<NodeSet>, Status>;
    fn add_pod(cycle: &Cycle<'_>; slot mut; added: PodId, node: NodeId) -> Status;
    fn remove_pod(cycle: &Cycle<'_>; slot mut; removed: PodId, node: NodeId) -> Status;
});
any!(AnyPostFilter for PostFilter {
    fn post_filter(cycle: &Cycle<'_>; slot mut; rejected: &dyn RejectedNodes, handle: &mut Handle<'_>) -> PostFilterAnswer;
});
any!(AnyPreScore for PreScore {
    fn pre_score(cycle: &Cycle<'_>; slot mut; feasible: &NodeSet) -> Status;
});
any!(AnyScore for Score {
    fn score_all(cycle: &Cycle<'_>; slot ref; nodes: &NodeSet, scores: &mut [i64]) -> ();
    fn normalize(cycle: &Cycle<'_>; slot ref; feasible: &NodeSet, scores: &[i64], normalized: &mut [i64]) -> Normalized;
});
any!(AnyReserve for Reserve {
    fn reserve(cycle: &Cycle<'_>; slot mut; node: NodeId, handle: &mut Handle<'_>) -> Status;
    fn unreserve(; slot mut; pod: PodId, node: NodeId, handle: &mut Handle<'_>) -> ();
});
any!(AnyPermit for Permit {
    fn permit(cycle: &Cycle<'_>; slot mut; node: NodeId, handle: &mut Handle<'_>) -> PermitAnswer;
});
any!(AnyPostBind for PostBind {
    fn post_bind(cycle: &Cycle<'_>; slot ref; node: NodeId, handle: &mut Handle<'_>) -> ();
});

// The following convert a type of the plugin's own, or return something that borrows from the plugin.

pub(crate) trait AnyFilter: Send + Sync {
    fn filter_all(&self, cycle: &Cycle<'_>, slot: &Slot, nodes: &NodeSet, rejections: &mut Rejections);
    fn may_yield(&self, cycle: &Cycle<'_>, slot: &Slot) -> bool;
    fn yields(&self, cycle: &Cycle<'_>, slot: &mut Slot, left: &NodeSet) -> Option<Concession>;
    fn ignores_pods(&self) -> bool;
    fn node_trial<'a>(&'a self, cycle: &Cycle<'a>, slot: &'a Slot) -> Option<Box<dyn NodeTrial + 'a>>;
    fn blockers_elsewhere(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Vec<PodId>;
    fn doubt(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Option<Doubt>;
    fn blockers(&self, cycle: &Cycle<'_>, slot: &Slot, nodes: &NodeSet) -> Vec<(NodeId, String)>;
}

impl<P: Filter> AnyFilter for P {
    fn filter_all(&self, cycle: &Cycle<'_>, slot: &Slot, nodes: &NodeSet, rejections: &mut Rejections) {
        Filter::filter_all(self, cycle, slot.get::<P>(), nodes, rejections);
    }

    fn may_yield(&self, cycle: &Cycle<'_>, slot: &Slot) -> bool {
        Filter::may_yield(self, cycle, slot.get::<P>())
    }

    fn yields(&self, cycle: &Cycle<'_>, slot: &mut Slot, left: &NodeSet) -> Option<Concession> {
        Filter::yields(self, cycle, slot.get_mut::<P>(), left)
    }

    fn ignores_pods(&self) -> bool {
        Filter::ignores_pods(self)
    }

    fn node_trial<'a>(&'a self, cycle: &Cycle<'a>, slot: &'a Slot) -> Option<Box<dyn NodeTrial + 'a>> {
        Filter::node_trial(self, cycle, slot.get::<P>())
    }

    fn blockers_elsewhere(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Vec<PodId> {
        Filter::blockers_elsewhere(self, cycle, slot.get::<P>(), node)
    }

    fn doubt(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Option<Doubt> {
        Filter::doubt(self, cycle, slot.get::<P>(), node)
    }

    fn blockers(&self, cycle: &Cycle<'_>, slot: &Slot, nodes: &NodeSet) -> Vec<(NodeId, String)> {
        Filter::blockers(self, cycle, slot.get::<P>(), nodes)
    }
}

pub(crate) trait AnyQueueSort: Send + Sync {
    fn key(&self, cycle: &Cycle<'_>, queued: &QueuedPod) -> SortKey;
}

impl<P: QueueSort> AnyQueueSort for P {
    fn key(&self, cycle: &Cycle<'_>, queued: &QueuedPod) -> SortKey {
        SortKey::new(QueueSort::key(self, cycle, queued))
    }
}

pub(crate) trait AnyPreBind: Send + Sync {
    fn pre_bind_pre_flight(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Status;
    fn pre_bind(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Result<Option<Work>, Status>;
}

impl<P: PreBind> AnyPreBind for P {
    fn pre_bind_pre_flight(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Status {
        PreBind::pre_bind_pre_flight(self, cycle, slot.get::<P>(), node)
    }

    fn pre_bind(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Result<Option<Work>, Status> {
        Ok(PreBind::pre_bind(self, cycle, slot.get::<P>(), node)?.map(Work::new))
    }
}

pub(crate) trait AnyBind: Send + Sync {
    fn bind(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Result<Option<Work>, Status>;
}

impl<P: Bind> AnyBind for P {
    fn bind(&self, cycle: &Cycle<'_>, slot: &Slot, node: NodeId) -> Result<Option<Work>, Status> {
        Ok(Bind::bind(self, cycle, slot.get::<P>(), node)?.map(Work::new))
    }
}

pub(crate) trait AnyNotified: Send + Sync {
    /// A message of another type is ignored.
    fn notified(&self, world: &World, message: &Work, handle: &mut Handle<'_>);
}

impl<P: Notified> AnyNotified for P {
    fn notified(&self, world: &World, message: &Work, handle: &mut Handle<'_>) {
        if let Some(message) = message.get::<P::Message>() {
            Notified::notified(self, world, message, handle);
        }
    }
}
