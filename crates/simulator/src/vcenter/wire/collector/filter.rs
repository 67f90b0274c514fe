//! A property filter: the state of the selected objects that the client knows, and the changes that it does not know
//! yet.
//!
//! In: the current [`Scope`]. Out: ObjectUpdates that lead from the client's state to the current state.
//!
//! Invariants:
//! - An object is reported as entering once, then modified, then leaving; unchanged values are not reported.
//! - The cost of a refresh depends on the number of touched objects, not of selected ones, unless the selection itself
//!   changed.

use std::collections::{BTreeMap, BTreeSet};

use super::select::{Selection, select};
use super::spec::FilterSpec;
use crate::vcenter::vim_fault::VimFault;
use crate::vcenter::wire::properties::{Read, Scope};
use crate::vcenter::wire::soap::localized_fault;
use crate::vcenter::wire::target::Target;
use crate::vcenter::wire::value::{Path, Value};

#[derive(Debug)]
pub(crate) struct Filter {
    pub partial_updates: bool,
    spec: FilterSpec,
    /// The inventory version up to which touches have been processed; `None` before the first refresh.
    seen: Option<u64>,
    selection: Selection,
    members: BTreeSet<Target>,
    /// The state that the client knows: for each object the values of its type's paths.
    known: BTreeMap<Target, Vec<Option<Value>>>,
    /// Members to check, and former members whose leaving is not reported yet.
    dirty: BTreeSet<Target>,
    leaving: BTreeSet<Target>,
    paths: BTreeMap<&'static str, Option<Vec<Path>>>,
}

impl Filter {
    pub fn new(spec: FilterSpec, partial_updates: bool) -> Filter {
        Filter {
            partial_updates,
            spec,
            seen: None,
            selection: Selection::default(),
            members: BTreeSet::new(),
            known: BTreeMap::new(),
            dirty: BTreeSet::new(),
            leaving: BTreeSet::new(),
            paths: BTreeMap::new(),
        }
    }

    /// Drops the client's state, so that everything is reported again.
    pub fn reset(&mut self) {
        self.seen = None;
        self.known.clear();
        self.leaving.clear();
    }

    /// Collects the objects to check.
    pub fn refresh(&mut self, scope: &Scope<'_>) {
        let version = scope.inventory.version();
        let touched = self.seen.and_then(|seen| scope.relations.touched_since(scope.inventory, seen));
        self.seen = Some(version);
        let Some(touched) = touched else {
            self.reselect(scope);
            self.dirty = self.members.clone();
            return;
        };
        let service = |target: &&Target| !matches!(target, Target::Inventory(_));
        let mut outdated = false;
        for object in touched.into_iter().map(Target::Inventory) {
            if self.members.contains(&object) {
                self.dirty.insert(object);
                outdated |= !scope.exists(object);
            }
            outdated = outdated || self.selection.is_outdated_at(scope, &self.spec, object);
        }
        // Managers, views and collectors are not touched; there are few of them.
        for target in self.selection.followed.keys().filter(service) {
            outdated = outdated || self.selection.is_outdated_at(scope, &self.spec, *target);
        }
        for target in self.members.iter().filter(service) {
            self.dirty.insert(*target);
            outdated = outdated || !scope.exists(*target);
        }
        if outdated {
            self.reselect(scope);
        }
    }

    fn reselect(&mut self, scope: &Scope<'_>) {
        let selection = select(scope, &self.spec);
        let members: BTreeSet<Target> = selection.objects.iter().copied().collect();
        for gone in self.members.difference(&members) {
            self.dirty.remove(gone);
            if self.known.contains_key(gone) {
                self.leaving.insert(*gone);
            }
        }
        for new in members.difference(&self.members) {
            self.leaving.remove(new);
            self.dirty.insert(*new);
        }
        self.members = members;
        self.selection = selection;
    }

    /// The next updates, at most `max`, and whether there are more.
    pub fn take(&mut self, scope: &Scope<'_>, max: usize) -> (Vec<Value>, bool) {
        let mut updates = Vec::new();
        while let Some(target) = self.leaving.first().copied() {
            if updates.len() == max {
                return (updates, true);
            }
            self.leaving.remove(&target);
            self.known.remove(&target);
            updates.push(object_update("leave", scope, target, Vec::new(), Vec::new()));
        }
        while let Some(target) = self.dirty.first().copied() {
            let type_name = target.type_name();
            let paths = self.paths.entry(type_name).or_insert_with(|| self.spec.paths_for(type_name));
            let Some(paths) = paths else {
                self.dirty.remove(&target);
                continue;
            };
            let mut missing = Vec::new();
            let values: Vec<Option<Value>> = paths
                .iter()
                .map(|path| match scope.read(target, path) {
                    Read::Value(value) => Some(value),
                    Read::Unset => None,
                    Read::Unknown => {
                        let fault = VimFault::InvalidProperty(path.text.clone());
                        missing.push(missing_property(scope, target, path, &fault));
                        None
                    }
                })
                .collect();
            let known = self.known.get(&target);
            let changes = changes(paths, known, &values, self.partial_updates);
            if known.is_some() && changes.is_empty() {
                self.dirty.remove(&target);
                continue;
            }
            // There is at least one more update, so this page is not the last.
            if updates.len() == max {
                return (updates, true);
            }
            let kind = if known.is_none() { "enter" } else { "modify" };
            updates.push(object_update(kind, scope, target, changes, missing));
            self.known.insert(target, values);
            self.dirty.remove(&target);
        }
        (updates, false)
    }

    /// The fault for a path that no selected object has. Checks one object of each type.
    pub fn check(&self, scope: &Scope<'_>) -> Result<(), VimFault> {
        let mut checked = BTreeSet::new();
        for target in select(scope, &self.spec).objects {
            if checked.insert(target.type_name()) {
                for path in self.spec.paths_for(target.type_name()).unwrap_or_default() {
                    if scope.read(target, &path) == Read::Unknown {
                        return Err(VimFault::InvalidProperty(path.text));
                    }
                }
            }
        }
        Ok(())
    }
}

fn object_update(kind: &str, scope: &Scope<'_>, target: Target, changes: Vec<Value>, missing: Vec<Value>) -> Value {
    Value::object(
        "ObjectUpdate",
        vec![
            ("kind", Value::of("ObjectUpdateKind", kind)),
            ("obj", Value::Ref(scope.reference(target))),
            ("changeSet", Value::list("PropertyChange", changes)),
            ("missingSet", Value::list("MissingProperty", missing)),
        ],
    )
}

pub(super) fn missing_property(scope: &Scope<'_>, target: Target, path: &Path, fault: &VimFault) -> Value {
    let fault = localized_fault(fault, Some(&scope.reference(target)));
    Value::object("MissingProperty", vec![("path", Value::string(&path.text)), ("fault", fault)])
}

fn changes(paths: &[Path], known: Option<&Vec<Option<Value>>>, values: &[Option<Value>], partial: bool) -> Vec<Value> {
    let mut changes = Vec::new();
    for (at, (path, value)) in paths.iter().zip(values).enumerate() {
        let before = known.map(|known| &known[at]);
        match (before, value) {
            (None, None) => (),
            (Some(before), value) if before == value => (),
            (Some(Some(before)), Some(value)) if partial => nested_changes(&path.text, before, value, &mut changes),
            _ => changes.push(assign(&path.text, value.as_ref())),
        }
    }
    changes
}

/// The innermost properties below `path` that differ.
fn nested_changes(path: &str, before: &Value, value: &Value, changes: &mut Vec<Value>) {
    if before == value {
        return;
    }
    let (Value::Object(old), Value::Object(new)) = (before, value) else {
        changes.push(assign(path, Some(value)));
        return;
    };
    if old.type_name != new.type_name {
        changes.push(assign(path, Some(value)));
        return;
    }
    let find = |fields: &[(&'static str, Value)], name| fields.iter().find(|(field, _)| *field == name).cloned();
    for (name, value) in &new.fields {
        let nested = format!("{path}.{name}");
        match find(&old.fields, *name) {
            Some((_, before)) if before != Value::Unset && *value != Value::Unset => {
                nested_changes(&nested, &before, value, changes);
            }
            Some((_, before)) if before == *value => (),
            _ => changes.push(assign(&nested, Some(value))),
        }
    }
    for (name, before) in &old.fields {
        if *before != Value::Unset && find(&new.fields, *name).is_none() {
            changes.push(assign(&format!("{path}.{name}"), None));
        }
    }
}

/// An assignment; `None` means that the property is now unset.
fn assign(path: &str, value: Option<&Value>) -> Value {
    Value::object(
        "PropertyChange",
        vec![
            ("name", Value::string(path)),
            ("op", Value::of("PropertyChangeOp", "assign")),
            ("val", value.cloned().unwrap_or(Value::Unset)),
        ],
    )
}
