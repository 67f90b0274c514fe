//! PodDisruptionBudgets: which pods should not be evicted now.
//!
//! In: budgets as they are added, changed and removed. Out: the budgets of a namespace, and whether one covers a pod.
//!
//! Invariants: a budget covers only pods of its own namespace; an empty selector covers all of them, no selector none.
//! A stored budget holds one use of each of its symbols.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use super::facts::DisruptionBudgetFacts;
use crate::affinity::Selector;
use crate::storage::arena::PodId;
use crate::storage::intern::{Interner, Symbol};
use crate::world::World;
use crate::world::sync::Generation;

/// A budget.
#[derive(Debug)]
pub struct DisruptionBudget {
    selector: Selector,
    /// How many of its pods may be evicted now.
    pub disruptions_allowed: i32,
    disrupted_pods: BTreeSet<String>,
    generation: Generation,
}

impl DisruptionBudget {
    fn allows_as(&self, facts: &DisruptionBudgetFacts) -> bool {
        self.disruptions_allowed == facts.disruptions_allowed && self.disrupted_pods == facts.disrupted_pods
    }

    /// Whether the budget is about the pod, which is in its namespace.
    pub fn selects(&self, world: &World, pod: PodId) -> bool {
        world.pod_profile_labels(pod).is_some_and(|labels| self.selector.matches(labels.pairs()))
    }

    /// Whether evicting the pod, which is in the budget's namespace, uses up a part of the budget. A pod whose eviction
    /// the budget counts already does not.
    pub fn covers(&self, world: &World, pod: PodId) -> bool {
        self.selects(world, pod) && world.pod(pod).is_some_and(|known| !self.disrupted_pods.contains(&*known.name))
    }
}

#[derive(Debug, Default)]
pub(crate) struct DisruptionBudgets {
    /// Sorted by name, so that equal worlds list them in the same order.
    by_namespace: FxHashMap<Symbol, BTreeMap<Box<str>, DisruptionBudget>>,
    changes: BudgetChanges,
}

/// How often budgets changed. Equal numbers mean equal budgets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetChanges {
    /// Which pods have a budget.
    pub selectors: u64,
    /// What a budget allows.
    pub allowances: u64,
}

impl DisruptionBudgets {
    pub(crate) fn apply(&mut self, facts: &DisruptionBudgetFacts, generation: Generation, interner: &mut Interner) {
        // Acquire before releasing: strings that stay keep their symbols.
        let namespace = interner.acquire(&facts.namespace);
        let selector = Selector::acquire(facts.selector.as_ref(), interner);
        let known = self.by_namespace.get(&namespace).and_then(|budgets| budgets.get(facts.name.as_str()));
        let BudgetChanges { selectors, allowances } = self.changes;
        let changes = match known.filter(|known| known.selector == selector) {
            None => BudgetChanges { selectors: selectors + 1, allowances },
            Some(known) if known.allows_as(facts) => self.changes,
            Some(_) => BudgetChanges { selectors, allowances: allowances + 1 },
        };
        self.remove(namespace, &facts.name, interner);
        self.changes = changes;
        let (disruptions_allowed, disrupted_pods) = (facts.disruptions_allowed, facts.disrupted_pods.clone());
        let budget = DisruptionBudget { selector, disruptions_allowed, disrupted_pods, generation };
        self.by_namespace.entry(namespace).or_default().insert(facts.name.as_str().into(), budget);
    }

    pub(crate) fn remove(&mut self, namespace: Symbol, name: &str, interner: &mut Interner) {
        let Some(budgets) = self.by_namespace.get_mut(&namespace) else { return };
        let Some(budget) = budgets.remove(name) else { return };
        self.changes.selectors += 1;
        if budgets.is_empty() {
            self.by_namespace.remove(&namespace);
        }
        budget.selector.release(interner);
        interner.release(namespace);
    }

    /// Removes the budgets that the relist of this generation did not contain.
    pub(crate) fn sweep(&mut self, generation: Generation, interner: &mut Interner) {
        let all = self.by_namespace.iter().flat_map(|(namespace, budgets)| {
            budgets.iter().map(|(name, budget)| (*namespace, name.clone(), budget.generation))
        });
        let gone: Vec<_> = all.filter(|(_, _, seen)| *seen != generation).collect();
        for (namespace, name, _) in gone {
            self.remove(namespace, &name, interner);
        }
    }
}

impl World {
    /// The budgets of a namespace, sorted by name.
    pub fn disruption_budgets(&self, namespace: Symbol) -> impl Iterator<Item = &DisruptionBudget> {
        self.scheduling.budgets.by_namespace.get(&namespace).into_iter().flat_map(BTreeMap::values)
    }

    pub fn budget_changes(&self) -> BudgetChanges {
        self.scheduling.budgets.changes
    }

    /// Whether any pod has a budget that may cover it.
    pub fn has_disruption_budgets(&self) -> bool {
        !self.scheduling.budgets.by_namespace.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, Labels, PodFacts, RequirementFacts, SelectorFacts, Source};

    fn budget(namespace: &str, name: &str, selector: Option<SelectorFacts>) -> DisruptionBudgetFacts {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        DisruptionBudgetFacts { namespace, name, selector, disruptions_allowed: 1, ..DisruptionBudgetFacts::default() }
    }

    fn pod(namespace: &str, name: &str, labels: Labels) -> Event {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Event::PodApplied(PodFacts { namespace, uid: name.clone(), name, labels, ..PodFacts::default() })
    }

    fn web() -> Labels {
        Labels::from([("app".to_owned(), "web".to_owned())])
    }

    fn covering(world: &World, namespace: &str, name: &str) -> usize {
        let pod = world.pod_id(namespace, name).expect("a pod");
        let namespace = world.pod(pod).expect("a pod").namespace;
        world.disruption_budgets(namespace).filter(|budget| budget.covers(world, pod)).count()
    }

    #[test]
    fn a_budget_covers_the_pods_that_its_selector_matches_in_its_namespace() {
        let mut world = World::default();
        for (namespace, name, labels) in
            [("a", "web", web()), ("a", "plain", Labels::new()), ("a", "gone", web()), ("b", "web", web())]
        {
            world.apply(pod(namespace, name, labels));
        }
        assert!(!world.has_disruption_budgets());
        let by_label = SelectorFacts { labels: web(), expressions: Vec::<RequirementFacts>::new() };
        let disrupted = DisruptionBudgetFacts {
            disrupted_pods: ["gone".to_owned()].into(),
            ..budget("a", "by-label", Some(by_label))
        };
        for facts in [disrupted, budget("a", "all", Some(SelectorFacts::default())), budget("a", "none", None)] {
            world.apply(Event::DisruptionBudgetApplied(facts));
        }
        let counts = |world: &World| {
            [("a", "web"), ("a", "plain"), ("a", "gone"), ("b", "web")]
                .map(|(namespace, name)| covering(world, namespace, name))
        };
        assert_eq!(counts(&world), [2, 1, 1, 0]);
        let (namespace, name) = ("a".to_owned(), "all".to_owned());
        world.apply(Event::DisruptionBudgetDeleted { namespace, name });
        assert_eq!(counts(&world), [1, 0, 0, 0]);
        world.apply(Event::RelistBegan(Source::DisruptionBudgets));
        world.apply(Event::DisruptionBudgetApplied(budget("b", "new", Some(SelectorFacts::default()))));
        world.apply(Event::RelistEnded(Source::DisruptionBudgets));
        assert_eq!(counts(&world), [0, 0, 0, 1]);
    }
}
