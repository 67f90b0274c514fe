//! Faults of a watch: cut, silent, gone, duplicate and reordered events.
//!
//! They are checked when a watch starts and when it has events to send, so that a fault added later also affects open
//! watches.

use std::time::Duration;

use serde_json::Value;

use crate::clock::SimTime;
use crate::fault::{Fault, Faults, Side};

/// The effect of the faults on one round of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interference {
    None,
    Silent(Duration),
    Gone,
    /// Each event twice, or in a different order, or both.
    Shuffle {
        duplicate: bool,
        reorder: bool,
    },
}

/// The faults of one watch.
#[derive(Debug)]
pub struct WatchFaults {
    method: String,
    /// After this many events the stream is cut.
    events_until_cut: Option<u32>,
    begun: bool,
    /// Whether the silent period has ended. The events after it are then delivered.
    was_silent: bool,
}

impl WatchFaults {
    /// `method` is the name in fault rules: `watch pods`.
    #[must_use]
    pub fn new(method: &str) -> WatchFaults {
        WatchFaults { method: method.to_owned(), events_until_cut: None, begun: false, was_silent: false }
    }

    pub fn strike(&mut self, faults: &mut Faults, now: SimTime, active: bool, events: usize) -> Interference {
        let first = !std::mem::replace(&mut self.begun, true);
        if !active && !first {
            return Interference::None;
        }
        let method = self.method.clone();
        let mut strike = |applies: fn(&Fault) -> bool| faults.strike(now, Side::Kubernetes, &method, applies);
        if strike(|fault| matches!(fault, Fault::WatchGone)).is_some() {
            return Interference::Gone;
        }
        if self.events_until_cut.is_none()
            && let Some(Fault::WatchCut { after_events }) = strike(|fault| matches!(fault, Fault::WatchCut { .. }))
        {
            self.events_until_cut = Some(after_events);
        }
        if !std::mem::take(&mut self.was_silent)
            && let Some(Fault::WatchStale { millis }) = strike(|fault| matches!(fault, Fault::WatchStale { .. }))
        {
            self.was_silent = true;
            return Interference::Silent(Duration::from_millis(millis));
        }
        let duplicate = events > 0 && strike(|fault| matches!(fault, Fault::DuplicateEvents)).is_some();
        let reorder = events > 1 && strike(|fault| matches!(fault, Fault::ReorderedEvents)).is_some();
        if duplicate || reorder { Interference::Shuffle { duplicate, reorder } } else { Interference::None }
    }

    /// The order in which a round's events are sent, as indices.
    #[must_use]
    pub fn arrange(&self, objects: &[&Value], interference: &Interference) -> Vec<usize> {
        let mut order: Vec<usize> = (0..objects.len()).collect();
        let Interference::Shuffle { duplicate, reorder } = *interference else { return order };
        if reorder {
            // Objects in reverse order of their first events; the events of one object stay in order.
            let mut first = std::collections::BTreeMap::new();
            for (position, object) in objects.iter().enumerate() {
                first.entry(object["metadata"]["uid"].to_string()).or_insert(position);
            }
            order.sort_by_key(|index| std::cmp::Reverse(first.get(&objects[*index]["metadata"]["uid"].to_string())));
        }
        if duplicate {
            order = order.into_iter().flat_map(|index| [index, index]).collect();
        }
        order
    }

    /// Counts an event that is about to be sent. Returns whether the stream is cut before it.
    pub fn cuts_before_next_event(&mut self) -> bool {
        match &mut self.events_until_cut {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    #[must_use]
    pub fn cuts_when_idle(&self) -> bool {
        self.events_until_cut == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reordering_keeps_each_objects_own_order() {
        let object = |uid: &str| json!({ "metadata": { "uid": uid } });
        let (a, b) = (object("a"), object("b"));
        let faults = WatchFaults::new("watch pods");
        let objects = [&a, &b, &a];
        let order = |duplicate, reorder| faults.arrange(&objects, &Interference::Shuffle { duplicate, reorder });
        assert_eq!(order(false, true), [1, 0, 2]);
        assert_eq!(order(true, false), [0, 0, 1, 1, 2, 2]);
        assert_eq!(faults.arrange(&objects, &Interference::None), [0, 1, 2]);
    }

    #[test]
    fn the_cut_is_after_the_configured_events() {
        let mut faults = WatchFaults::new("watch pods");
        faults.events_until_cut = Some(2);
        let cuts: Vec<bool> = (0..3).map(|_| faults.cuts_before_next_event()).collect();
        assert_eq!(cuts, [false, false, true]);
    }
}
