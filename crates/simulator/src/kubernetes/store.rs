//! Objects of every kind, as JSON, with versions and a window of past changes.
//!
//! One generic store: it knows a kind only as a row of [`kinds`](super::kinds) and does not interpret `spec`.
//!
//! Invariants:
//! - `resourceVersion` is one counter over all kinds; every change takes the next number and appends one [`Change`].
//! - A stored object always has name, uid, creationTimestamp and resourceVersion; a namespaced one also its namespace.
//! - As in a real kube-apiserver, an update that changes nothing takes no number and appends nothing.
//! - The window is bounded. A client that requests older changes gets [`Gone`] and must list again.

mod revision;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

use super::error::{ApiError, FieldError};
use super::kinds::{KINDS, KindId};
use crate::clock::SimTime;
use crate::seed::{Seed, Stream};
use revision::{same_desired_state, tidy_metadata};

/// Namespace (empty for cluster-scoped kinds) and name. Sorts in the list order of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    #[must_use]
    pub fn of(object: &Value) -> ObjectKey {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        ObjectKey { namespace: text("namespace"), name: text("name") }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// One change of one object. `before` lets a watch with a selector distinguish "modified" from "no longer selected".
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub kind: KindId,
    pub change_type: ChangeType,
    pub before: Option<Arc<Value>>,
    /// The object after the change; for a deletion the last state, with the deletion's version.
    pub object: Arc<Value>,
}

/// The requested changes are no longer retained: list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    pub oldest_version: u64,
}

/// How many past changes are retained for watches; those of large nodes take some 10 KB each.
pub const CHANGES_KEPT_DEFAULT: usize = 50_000;

/// A generated name has at most 63 characters: a longer prefix is cut before the suffix.
const GENERATED_PREFIX_CHARS_MAX: usize = 58;
/// How many suffixes are tried while the generated name is taken.
const GENERATION_ATTEMPTS: usize = 8;

#[derive(Debug)]
pub struct Store {
    objects: Vec<BTreeMap<ObjectKey, Arc<Value>>>,
    version: u64,
    changes: VecDeque<Change>,
    changes_max: usize,
    uids: Stream,
    suffixes: Stream,
}

impl Store {
    #[must_use]
    pub fn new(seed: Seed) -> Store {
        Store {
            objects: KINDS.iter().map(|_| BTreeMap::new()).collect(),
            version: 0,
            changes: VecDeque::new(),
            changes_max: CHANGES_KEPT_DEFAULT,
            uids: seed.stream("kubernetes uid"),
            suffixes: seed.stream("kubernetes generateName"),
        }
    }

    /// The version of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    #[must_use]
    pub fn get(&self, kind: KindId, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects[kind.index()].get(&ObjectKey::new(namespace, name))
    }

    /// All objects of a kind, or those of one namespace, ordered by namespace and name.
    pub fn list<'a>(&'a self, kind: KindId, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Value>> {
        let first = ObjectKey::new(namespace.unwrap_or_default(), "");
        self.objects[kind.index()]
            .range(first..)
            .take_while(move |(key, _)| namespace.is_none_or(|wanted| key.namespace == wanted))
            .map(|(_, object)| object)
    }

    /// Like [`Store::list`], starting after the key `after`: the next page.
    pub fn list_after<'a>(
        &'a self,
        kind: KindId,
        namespace: Option<&'a str>,
        after: &ObjectKey,
    ) -> impl Iterator<Item = &'a Arc<Value>> {
        // Clients can also invent continue tokens: a start before the namespace begins with the namespace.
        let start = match namespace {
            Some(wanted) if after.namespace.as_str() < wanted => Bound::Included(ObjectKey::new(wanted, "")),
            _ => Bound::Excluded(after.clone()),
        };
        self.objects[kind.index()]
            .range((start, Bound::Unbounded))
            .take_while(move |(key, _)| namespace.is_none_or(|wanted| key.namespace == wanted))
            .map(|(_, object)| object)
    }

    #[must_use]
    pub fn count(&self, kind: KindId) -> usize {
        self.objects[kind.index()].len()
    }

    /// Stores a new object; fills in apiVersion, kind, uid, creationTimestamp, and the name from `generateName`.
    pub fn create(&mut self, kind: KindId, object: Value, now: SimTime) -> Result<Arc<Value>, ApiError> {
        let object = self.prepare(kind, object, now)?;
        Ok(self.commit(kind, ObjectKey::of(&object), None, object))
    }

    /// What [`Store::create`] would store, without a version. Stores nothing: a dry run.
    pub fn prepare(&mut self, kind: KindId, mut object: Value, now: SimTime) -> Result<Value, ApiError> {
        let row = kind.kind();
        object["apiVersion"] = json!(row.api_version());
        object["kind"] = json!(row.kind);
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        if object["metadata"]["name"].as_str().unwrap_or_default().is_empty() {
            let Some(prefix) = object["metadata"]["generateName"].as_str().filter(|prefix| !prefix.is_empty()) else {
                let error = FieldError::required("metadata.name", "name or generateName is required");
                return Err(ApiError::invalid(kind, "", vec![error]));
            };
            let prefix: String = prefix.chars().take(GENERATED_PREFIX_CHARS_MAX).collect();
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let mut name = format!("{prefix}{}", self.suffixes.name_suffix());
            for _ in 1..GENERATION_ATTEMPTS {
                if self.get(kind, &namespace, &name).is_none() {
                    break;
                }
                name = format!("{prefix}{}", self.suffixes.name_suffix());
            }
            object["metadata"]["name"] = json!(name);
        }
        let key = ObjectKey::of(&object);
        if self.objects[kind.index()].contains_key(&key) {
            return Err(ApiError::AlreadyExists { resource: resource_name(kind), name: key.name });
        }
        object["metadata"]["uid"] = json!(self.uids.uuid().to_string());
        object["metadata"]["creationTimestamp"] = json!(now.rfc3339_seconds());
        if row.counts_generation {
            object["metadata"]["generation"] = json!(1);
        }
        Ok(object)
    }

    /// Replaces an object. If `metadata.resourceVersion` is set, it must be the current one (409 otherwise). uid,
    /// creationTimestamp and deletionTimestamp stay unchanged.
    pub fn update(&mut self, kind: KindId, object: Value) -> Result<Arc<Value>, ApiError> {
        let (before, object) = self.revise(kind, object)?;
        if object == *before {
            return Ok(before);
        }
        Ok(self.commit(kind, ObjectKey::of(&object), Some(before), object))
    }

    /// The object before and after an [`Store::update`], with its previous version. Stores nothing: a dry run.
    pub fn revise(&self, kind: KindId, mut object: Value) -> Result<(Arc<Value>, Value), ApiError> {
        let key = ObjectKey::of(&object);
        let before = self.existing(kind, &key)?;
        object["apiVersion"] = json!(kind.kind().api_version());
        object["kind"] = json!(kind.kind().kind);
        let conflict = |why: &str| ApiError::Conflict {
            resource: resource_name(kind),
            name: key.name.clone(),
            why: why.to_owned(),
        };
        let wanted = &object["metadata"]["resourceVersion"];
        if !wanted.is_null() && wanted != "" && *wanted != before["metadata"]["resourceVersion"] {
            return Err(conflict(
                "the object has been modified; please apply your changes to the latest version and try again",
            ));
        }
        let uid = &object["metadata"]["uid"];
        if !uid.is_null() && uid != "" && *uid != before["metadata"]["uid"] {
            return Err(conflict("Precondition failed: UID in precondition does not match UID in object meta"));
        }
        for field in [
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "generation",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ] {
            match before["metadata"].get(field) {
                Some(value) => object["metadata"][field] = value.clone(),
                None => {
                    object["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
                }
            }
        }
        tidy_metadata(&mut object);
        if kind.kind().counts_generation && !same_desired_state(kind, &object, &before) {
            object["metadata"]["generation"] = json!(before["metadata"]["generation"].as_u64().unwrap_or(0) + 1);
        }
        Ok((before, object))
    }

    /// Changes an object in place, for controllers. An edit that changes nothing takes no version.
    pub fn edit(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, ApiError> {
        let before = self.existing(kind, &ObjectKey::new(namespace, name))?;
        let mut object = Value::clone(&before);
        edit(&mut object);
        self.update(kind, object)
    }

    /// Sets `deletionTimestamp` and `deletionGracePeriodSeconds`: the object is terminating and still exists.
    pub fn mark_deleted(
        &mut self,
        kind: KindId,
        namespace: &str,
        name: &str,
        gone_at: SimTime,
        grace_seconds: u64,
    ) -> Result<Arc<Value>, ApiError> {
        let key = ObjectKey::new(namespace, name);
        let before = self.existing(kind, &key)?;
        let mut object = Value::clone(&before);
        object["metadata"]["deletionTimestamp"] = json!(gone_at.rfc3339_seconds());
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace_seconds);
        // The first deletion request is a change of the desired state.
        if let (Some(generation), true) =
            (before["metadata"]["generation"].as_u64(), before["metadata"]["deletionTimestamp"].is_null())
        {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        if object == *before {
            return Ok(before);
        }
        Ok(self.commit(kind, key, Some(before), object))
    }

    /// Removes an object immediately.
    pub fn remove(&mut self, kind: KindId, namespace: &str, name: &str) -> Result<Arc<Value>, ApiError> {
        let key = ObjectKey::new(namespace, name);
        let before = self.existing(kind, &key)?;
        self.objects[kind.index()].remove(&key);
        self.version += 1;
        let mut last = Value::clone(&before);
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let last = Arc::new(last);
        self.remember(Change {
            version: self.version,
            kind,
            change_type: ChangeType::Deleted,
            before: Some(before),
            object: last.clone(),
        });
        Ok(last)
    }

    /// The changes after `version`, oldest first.
    pub fn changes_since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Gone> {
        let oldest = self.changes.front().map_or(self.version + 1, |change| change.version);
        if version.saturating_add(1) < oldest {
            return Err(Gone { oldest_version: oldest });
        }
        // Versions are consecutive, so a change's position in the window follows from its version.
        let skip = usize::try_from(version.saturating_add(1) - oldest).unwrap_or(usize::MAX).min(self.changes.len());
        Ok(self.changes.range(skip..))
    }

    /// A kind's objects at `version`, computed by undoing the later changes.
    pub fn snapshot(
        &self,
        kind: KindId,
        namespace: Option<&str>,
        version: u64,
    ) -> Result<BTreeMap<ObjectKey, Arc<Value>>, Gone> {
        let in_namespace = |key: &ObjectKey| namespace.is_none_or(|wanted| key.namespace == wanted);
        let mut objects: BTreeMap<ObjectKey, Arc<Value>> =
            self.list(kind, namespace).map(|object| (ObjectKey::of(object), object.clone())).collect();
        let since: Vec<&Change> = self.changes_since(version)?.filter(|change| change.kind == kind).collect();
        for change in since.into_iter().rev() {
            let key = ObjectKey::of(&change.object);
            match &change.before {
                _ if !in_namespace(&key) => continue,
                Some(before) => objects.insert(key, before.clone()),
                None => objects.remove(&key),
            };
        }
        Ok(objects)
    }

    /// Drops all but the newest `kept` changes, as a real server's window does over time.
    pub fn compact(&mut self, kept: usize) {
        while self.changes.len() > kept {
            self.changes.pop_front();
        }
    }

    fn existing(&self, kind: KindId, key: &ObjectKey) -> Result<Arc<Value>, ApiError> {
        self.objects[kind.index()]
            .get(key)
            .cloned()
            .ok_or_else(|| ApiError::NotFound { resource: resource_name(kind), name: key.name.clone() })
    }

    fn commit(&mut self, kind: KindId, key: ObjectKey, before: Option<Arc<Value>>, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        tidy_metadata(&mut object);
        let object = Arc::new(object);
        self.objects[kind.index()].insert(key, object.clone());
        let change_type = if before.is_some() { ChangeType::Modified } else { ChangeType::Added };
        self.remember(Change { version: self.version, kind, change_type, before, object: object.clone() });
        object
    }

    fn remember(&mut self, change: Change) {
        if self.changes.len() == self.changes_max {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }
}

/// `pods`, `deployments.apps`: the resource's name in messages.
#[must_use]
pub fn resource_name(kind: KindId) -> String {
    let row = kind.kind();
    if row.group.is_empty() { row.plural.to_owned() } else { format!("{}.{}", row.plural, row.group) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SimTime = SimTime::VIRTUAL_START;

    fn config_map(name: &str) -> Value {
        json!({ "metadata": { "name": name, "namespace": "default" }, "data": { "a": "1" } })
    }

    #[test]
    fn an_update_with_an_old_version_conflicts_and_an_unchanged_update_takes_no_version() {
        let mut store = Store::new(Seed(1));
        let first = store.create(KindId::CONFIG_MAP, config_map("one"), NOW).unwrap();
        let mut second = Value::clone(&first);
        second["data"]["a"] = json!("2");
        let second = store.update(KindId::CONFIG_MAP, second).unwrap();
        assert_eq!(store.version(), 2);
        assert_eq!(store.update(KindId::CONFIG_MAP, Value::clone(&second)).unwrap(), second);
        assert_eq!(store.version(), 2);
        let mut stale = Value::clone(&first);
        stale["data"]["a"] = json!("3");
        assert_eq!(store.update(KindId::CONFIG_MAP, stale).unwrap_err().code(), 409);
    }

    #[test]
    fn changes_older_than_the_window_are_gone() {
        let mut store = Store::new(Seed(1));
        for name in ["a", "b", "c"] {
            store.create(KindId::CONFIG_MAP, config_map(name), NOW).unwrap();
        }
        assert_eq!(store.changes_since(1).unwrap().map(|change| change.version).collect::<Vec<_>>(), [2, 3]);
        store.compact(1);
        assert_eq!(store.changes_since(1).err(), Some(Gone { oldest_version: 3 }));
        assert_eq!(store.changes_since(2).unwrap().count(), 1);
        assert_eq!(store.changes_since(3).unwrap().count(), 0);
        assert_eq!(store.changes_since(u64::MAX).unwrap().count(), 0);
    }

    #[test]
    fn a_snapshot_shows_the_past_state() {
        let mut store = Store::new(Seed(1));
        for name in ["a", "b"] {
            store.create(KindId::CONFIG_MAP, config_map(name), NOW).unwrap();
        }
        store.edit(KindId::CONFIG_MAP, "default", "a", |object| object["data"]["a"] = json!("9")).unwrap();
        store.remove(KindId::CONFIG_MAP, "default", "b").unwrap();
        store.create(KindId::CONFIG_MAP, config_map("c"), NOW).unwrap();
        let past = store.snapshot(KindId::CONFIG_MAP, Some("default"), 2).unwrap();
        assert_eq!(past.keys().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(past[&ObjectKey::new("default", "a")]["data"]["a"], "1");
        assert!(store.snapshot(KindId::CONFIG_MAP, Some("other"), 2).unwrap().is_empty());
    }
}
