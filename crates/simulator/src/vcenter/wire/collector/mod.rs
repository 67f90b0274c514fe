//! The property collector: retrieving properties once, and following them through filters.
//!
//! A collector's state is the version of the last answer to its client. A wait with that version acknowledges it; a
//! wait with the previous version (the answer was lost) gets the same answer again; a wait with an empty version starts
//! from the beginning. Any other version is a fault, because the changes since then are unknown.

mod filter;
mod select;
mod spec;

use std::collections::BTreeMap;

pub(crate) use filter::Filter;
use filter::missing_property;
pub(crate) use spec::{FilterSpec, is_true};

use super::properties::{Read, Scope};
use super::target::{ClientObject, Target};
use super::value::Value;
use crate::vcenter::vim_fault::VimFault;

/// How many unfinished retrievals a collector stores; the oldest are dropped.
const RETRIEVALS_MAX: usize = 20;

#[derive(Debug, Default)]
pub(crate) struct Collector {
    pub filters: BTreeMap<u32, Filter>,
    /// Incremented by each CancelWaitForUpdates, so that earlier waits can detect it.
    pub cancels: u64,
    version: u64,
    /// The last answer, until the client acknowledges it.
    unacknowledged: Option<Updates>,
    /// By token: the remaining objects of a retrieval, and the page size.
    retrievals: BTreeMap<u32, (Vec<Value>, usize)>,
    next_token: u32,
}

/// The answer of one wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Updates {
    version: u64,
    /// Each filter's reference and its ObjectUpdates.
    pub filters: Vec<(Value, Vec<Value>)>,
    truncated: bool,
}

impl Updates {
    /// As an UpdateSet.
    pub fn into_value(self) -> Value {
        let filters = self
            .filters
            .into_iter()
            .map(|(filter, updates)| {
                let fields = vec![("filter", filter), ("objectSet", Value::list("ObjectUpdate", updates))];
                Value::object("PropertyFilterUpdate", fields)
            })
            .collect();
        Value::object(
            "UpdateSet",
            vec![
                ("version", Value::string(self.version.to_string())),
                ("filterSet", Value::list("PropertyFilterUpdate", filters)),
                ("truncated", Value::bool(self.truncated)),
            ],
        )
    }
}

impl Collector {
    /// Starts a wait. Returns the previous answer if it was lost.
    pub fn begin_wait(&mut self, version: &str) -> Result<Option<Updates>, VimFault> {
        if version.is_empty() {
            self.filters.values_mut().for_each(Filter::reset);
            self.unacknowledged = None;
            return Ok(None);
        }
        if version == self.version.to_string() {
            self.unacknowledged = None;
            return Ok(None);
        }
        match &self.unacknowledged {
            Some(last) if version == (last.version - 1).to_string() => Ok(Some(last.clone())),
            _ => Err(VimFault::InvalidCollectorVersion),
        }
    }

    /// The current updates, if any.
    pub fn poll(&mut self, scope: &Scope<'_>, max: usize) -> Option<Updates> {
        let mut filters = Vec::new();
        let mut count = 0;
        let mut truncated = false;
        for (number, filter) in &mut self.filters {
            filter.refresh(scope);
            let (updates, more) = filter.take(scope, max.saturating_sub(count));
            count += updates.len();
            truncated |= more;
            if !updates.is_empty() {
                let reference = scope.reference(Target::Client(ClientObject::PropertyFilter, *number));
                filters.push((Value::Ref(reference), updates));
            }
        }
        if filters.is_empty() {
            return None;
        }
        self.version += 1;
        let updates = Updates { version: self.version, filters, truncated };
        self.unacknowledged = Some(updates.clone());
        Some(updates)
    }

    /// Splits a retrieval after `max` objects; the rest is stored under a token.
    pub fn first_page(&mut self, mut objects: Vec<Value>, max: Option<usize>) -> Value {
        let page = max.unwrap_or(usize::MAX);
        let rest = if page < objects.len() { objects.split_off(page) } else { Vec::new() };
        let mut fields = Vec::new();
        if !rest.is_empty() {
            self.next_token += 1;
            fields.push(("token", Value::string(self.next_token.to_string())));
            self.retrievals.insert(self.next_token, (rest, page));
            if self.retrievals.len() > RETRIEVALS_MAX {
                self.retrievals.pop_first();
            }
        }
        fields.push(("objects", Value::list("ObjectContent", objects)));
        Value::object("RetrieveResult", fields)
    }

    /// The remaining objects of a token, and the page size.
    pub fn take_retrieval(&mut self, token: &str) -> Result<(Vec<Value>, usize), VimFault> {
        let wrong = || VimFault::InvalidArgument { property: "token".to_owned() };
        let number: u32 = token.parse().map_err(|_| wrong())?;
        self.retrievals.remove(&number).ok_or_else(wrong)
    }
}

/// The objects that the specs select, with the requested properties, as ObjectContents.
pub(crate) fn retrieve(scope: &Scope<'_>, specs: &[FilterSpec]) -> Result<Vec<Value>, VimFault> {
    let mut contents = Vec::new();
    for spec in specs {
        let gone = spec.objects.iter().find(|object| !scope.exists(object.object));
        if let Some(object) = gone.filter(|_| !spec.skip_missing) {
            return Err(not_found(scope, object.object));
        }
        let mut paths_by_type = BTreeMap::new();
        for target in select::select(scope, spec).objects {
            let type_name = target.type_name();
            let paths = paths_by_type.entry(type_name).or_insert_with(|| spec.paths_for(type_name));
            let Some(paths) = paths else { continue };
            let mut properties = Vec::with_capacity(paths.len());
            for path in paths.iter() {
                match scope.read(target, path) {
                    Read::Value(value) => properties.push(Value::object(
                        "DynamicProperty",
                        vec![("name", Value::string(&path.text)), ("val", value)],
                    )),
                    Read::Unset => (),
                    Read::Unknown => return Err(VimFault::InvalidProperty(path.text.clone())),
                }
            }
            contents.push(Value::object(
                "ObjectContent",
                vec![
                    ("obj", Value::Ref(scope.reference(target))),
                    ("propSet", Value::list("DynamicProperty", properties)),
                ],
            ));
        }
    }
    Ok(contents)
}

/// The answer for a caller without a session: for inventory objects that the caller names directly, each property is
/// reported as missing because of NotAuthenticated. Any spec that needs a traversal is a fault.
pub(crate) fn unauthenticated(scope: &Scope<'_>, specs: &[FilterSpec]) -> Result<Vec<Value>, VimFault> {
    let mut contents = Vec::new();
    for spec in specs {
        for object in &spec.objects {
            let paths = spec.paths_for(object.object.type_name()).unwrap_or_default();
            let named = matches!(object.object, Target::Inventory(_)) && !object.skip && object.traversals.is_empty();
            if !named || paths.is_empty() {
                return Err(VimFault::NotAuthenticated);
            }
            let missing = |path| missing_property(scope, object.object, path, &VimFault::NotAuthenticated);
            contents.push(Value::object(
                "ObjectContent",
                vec![
                    ("obj", Value::Ref(scope.reference(object.object))),
                    ("missingSet", Value::list("MissingProperty", paths.iter().map(missing).collect())),
                ],
            ));
        }
    }
    Ok(contents)
}

pub(crate) fn not_found(scope: &Scope<'_>, target: Target) -> VimFault {
    match target {
        Target::Inventory(object) => VimFault::ManagedObjectNotFound(object),
        _ => {
            let reference = scope.reference(target);
            VimFault::UnknownObject { type_name: reference.type_name.to_owned(), value: reference.value }
        }
    }
}
