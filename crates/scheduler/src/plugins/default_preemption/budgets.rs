//! Which pods of a node a PodDisruptionBudget protects.
//!
//! In: the pods of lower priority on a node, the most important first. Out: for each whether its eviction would exceed a
//! budget, if the pods before it are evicted too. Each node is counted by itself, from what the budgets allow now.

use model::scheduling::DisruptionBudget;
use model::{PodId, World};

pub(super) struct Budgets<'a> {
    world: &'a World,
    has_any: bool,
    /// How many evictions each budget that covers a pod of this node still allows. A node has few.
    left: Vec<(*const DisruptionBudget, i32)>,
    /// A budget is about a pod of this node, whether or not it counts the pod's eviction already.
    is_any_selected: bool,
}

impl<'a> Budgets<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        Self { world, has_any: world.has_disruption_budgets(), left: Vec::new(), is_any_selected: false }
    }

    /// Begins with another node.
    pub(super) fn begin(&mut self) {
        self.left.clear();
        self.is_any_selected = false;
    }

    /// Whether what budgets allow matters for the pods that were counted.
    pub(super) fn matter(&self) -> bool {
        self.is_any_selected
    }

    /// Counts the pod's eviction. Whether a budget that covers it allows no more.
    pub(super) fn is_used_up_by(&mut self, pod: PodId) -> bool {
        if !self.has_any {
            return false;
        }
        let Some(namespace) = self.world.pod(pod).map(|pod| pod.namespace) else { return false };
        let mut is_used_up = false;
        for budget in self.world.disruption_budgets(namespace).filter(|budget| budget.selects(self.world, pod)) {
            self.is_any_selected = true;
            if !budget.covers(self.world, pod) {
                continue;
            }
            // Each budget is one object of the world, which does not change meanwhile.
            let at = self.left.iter().position(|(known, _)| std::ptr::eq(*known, budget)).unwrap_or_else(|| {
                self.left.push((budget, budget.disruptions_allowed));
                self.left.len() - 1
            });
            let left = &mut self.left[at].1;
            *left = left.saturating_sub(1);
            is_used_up |= *left < 0;
        }
        is_used_up
    }
}
