//! Finds the objects that a filter spec selects.
//!
//! Out: the objects in the order in which they were found, and the traversals that were followed, so that a filter can
//! check cheaply whether a touched object changes the selection.
//!
//! Invariant: each traversal is followed once from each object, so circular specs terminate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::spec::{FilterSpec, Traversal};
use crate::vcenter::wire::properties::Scope;
use crate::vcenter::wire::schema;
use crate::vcenter::wire::target::{ClientObject, Target};

#[derive(Debug, Default)]
pub struct Selection {
    pub objects: Vec<Target>,
    pub followed: BTreeMap<Target, Vec<Followed>>,
}

/// One traversal from one object, and its result.
#[derive(Debug)]
pub struct Followed {
    /// The index of the filter spec's object, and of its traversal.
    traversal: (usize, usize),
    found: Found,
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Objects(Vec<Target>),
    /// A view's members, identified by its stamp: there may be thousands.
    ViewStamp(u64),
}

pub(crate) fn select(scope: &Scope<'_>, spec: &FilterSpec) -> Selection {
    let mut selection = Selection::default();
    let mut reported = BTreeSet::new();
    for (number, object) in spec.objects.iter().enumerate() {
        if !scope.exists(object.object) {
            continue;
        }
        if !object.skip && reported.insert(object.object) {
            selection.objects.push(object.object);
        }
        let mut taken = BTreeSet::new();
        let mut open: VecDeque<(Target, &[usize])> = VecDeque::from([(object.object, &object.first[..])]);
        while let Some((from, traversals)) = open.pop_front() {
            for at in traversals {
                let traversal = &object.traversals[*at];
                if !schema::is_a(from.type_name(), &traversal.type_name) || !taken.insert((from, *at)) {
                    continue;
                }
                let objects = follow(scope, from, traversal);
                for next in &objects {
                    if !scope.exists(*next) {
                        continue;
                    }
                    if !traversal.skip && reported.insert(*next) {
                        selection.objects.push(*next);
                    }
                    if !traversal.next.is_empty() {
                        open.push_back((*next, &traversal.next));
                    }
                }
                let found = view_stamp(scope, from).map_or(Found::Objects(objects), Found::ViewStamp);
                selection.followed.entry(from).or_default().push(Followed { traversal: (number, *at), found });
            }
        }
    }
    selection
}

impl Selection {
    /// Whether the same traversals from this object would now have another result.
    pub(crate) fn is_outdated_at(&self, scope: &Scope<'_>, spec: &FilterSpec, object: Target) -> bool {
        let Some(followed) = self.followed.get(&object) else { return false };
        if !scope.exists(object) {
            return true;
        }
        followed.iter().any(|followed| match &followed.found {
            Found::ViewStamp(stamp) => view_stamp(scope, object) != Some(*stamp),
            Found::Objects(objects) => {
                let (number, at) = followed.traversal;
                *objects != follow(scope, object, &spec.objects[number].traversals[at])
            }
        })
    }
}

fn view_stamp(scope: &Scope<'_>, target: Target) -> Option<u64> {
    match target {
        Target::Client(ClientObject::ContainerView | ClientObject::ListView, number) => {
            scope.session?.views.get(&number).map(crate::vcenter::wire::view::View::stamp)
        }
        _ => None,
    }
}

fn follow(scope: &Scope<'_>, from: Target, traversal: &Traversal) -> Vec<Target> {
    match from {
        // Avoids converting references to text: a view may contain thousands.
        Target::Client(ClientObject::ContainerView | ClientObject::ListView, number)
            if traversal.path.property == "view" && traversal.path.rest.is_empty() =>
        {
            let view = scope.session.and_then(|session| session.views.get(&number));
            view.map(crate::vcenter::wire::view::View::members).unwrap_or_default()
        }
        _ => scope.follow(from, &traversal.path),
    }
}
