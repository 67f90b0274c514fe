//! Views: the lists of objects that a client has on the server.
//!
//! A container view follows the inventory, a list view contains what the client added. Both have a stamp that changes
//! with their content, so that a filter need not compare thousands of members.

use std::collections::BTreeSet;

use super::relations::Relations;
use super::schema;
use super::target::Target;
use crate::vcenter::inventory::{Inventory, MoRef};

#[derive(Debug)]
pub enum View {
    Container(ContainerView),
    List { members: Vec<Target>, stamp: u64 },
}

#[derive(Debug)]
pub struct ContainerView {
    pub container: MoRef,
    /// An empty list means every type.
    pub types: Vec<String>,
    pub recursive: bool,
    members: BTreeSet<MoRef>,
    seen: u64,
    stamp: u64,
}

impl ContainerView {
    #[must_use]
    pub fn new(
        container: MoRef,
        types: Vec<String>,
        recursive: bool,
        inventory: &Inventory,
        relations: &Relations,
    ) -> Self {
        let mut view = ContainerView { container, types, recursive, members: BTreeSet::new(), seen: 0, stamp: 0 };
        view.fill(relations);
        view.seen = inventory.version();
        view
    }

    fn fill(&mut self, relations: &Relations) {
        let candidates: BTreeSet<MoRef> = if self.recursive {
            relations.descendants(self.container)
        } else {
            relations.members(self.container).filter(|member| !matches!(member, MoRef::Task(_))).collect()
        };
        self.members = candidates.into_iter().filter(|member| self.wants(*member)).collect();
        self.stamp += 1;
    }

    fn wants(&self, object: MoRef) -> bool {
        self.types.is_empty() || self.types.iter().any(|wanted| schema::is_a(object.type_name(), wanted))
    }

    fn refresh(&mut self, inventory: &Inventory, relations: &Relations) {
        match relations.touched_since(inventory, self.seen) {
            None => self.fill(relations),
            Some(touched) => {
                for object in touched {
                    let inside = !matches!(object, MoRef::Task(_))
                        && self.wants(object)
                        && if self.recursive {
                            relations.descends(object, self.container)
                        } else {
                            relations.owners(object).contains(&self.container)
                        };
                    let changed = if inside { self.members.insert(object) } else { self.members.remove(&object) };
                    self.stamp += u64::from(changed);
                }
            }
        }
        self.seen = inventory.version();
    }
}

impl View {
    /// Updates the view; `relations` must already be up to date.
    pub fn refresh(&mut self, inventory: &Inventory, relations: &Relations) {
        match self {
            View::Container(view) => view.refresh(inventory, relations),
            View::List { members, stamp } => {
                let before = members.len();
                members.retain(|member| !matches!(member, Target::Inventory(object) if !inventory.exists(*object)));
                *stamp += u64::from(members.len() != before);
            }
        }
    }

    #[must_use]
    pub fn stamp(&self) -> u64 {
        match self {
            View::Container(view) => view.stamp,
            View::List { stamp, .. } => *stamp,
        }
    }

    #[must_use]
    pub fn members(&self) -> Vec<Target> {
        match self {
            View::Container(view) => view.members.iter().map(|member| Target::Inventory(*member)).collect(),
            View::List { members, .. } => members.clone(),
        }
    }
}
