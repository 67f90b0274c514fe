//! Parses request paths.
//!
//! In: the raw path. Out: a [`Route`]; an unknown path is [`Route::Nothing`], never an error or a panic.

use super::query::percent_decode;
use crate::kubernetes::kinds::{KINDS, KindId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    Version,
    Health,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/<group>`
    Group(String),
    /// `/api/v1`, `/apis/<group>/<version>`; the core group is empty.
    Resources {
        group: String,
        version: String,
    },
    OpenApiIndex,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/<group>/<version>`
    OpenApi {
        group: String,
        version: String,
    },
    Resource(Target),
    /// `POST /api/v1/namespaces/<namespace>/bindings`
    Bindings {
        namespace: String,
    },
    /// A review of the caller that always has the same answer: `selfsubjectaccessreviews`, `selfsubjectreviews`, ...
    Review {
        api_version: String,
        resource: String,
    },
    /// Inside the API, but not one of its resources.
    NoResource,
    /// Outside the API.
    Nothing,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: KindId,
    /// `None` for cluster-scoped kinds, and for a list over all namespaces.
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// Events of `events.k8s.io`: the same objects with different field names.
    pub as_new_event: bool,
}

impl Target {
    /// `pods`, `pods/binding`: the resource name in fault rules.
    #[must_use]
    pub fn resource(&self) -> String {
        let plural = self.kind.kind().plural;
        self.subresource.as_ref().map_or_else(|| plural.to_owned(), |sub| format!("{plural}/{sub}"))
    }

    /// The namespace in the form of the store's keys.
    #[must_use]
    pub fn store_namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

pub const EVENTS_GROUP: &str = "events.k8s.io";

/// Resources that are only queried, never stored.
const REVIEWS: &[(&str, &str)] = &[
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

#[must_use]
pub fn parse(path: &str) -> Route {
    let decoded: Option<Vec<String>> =
        path.split('/').filter(|segment| !segment.is_empty()).map(percent_decode).collect();
    let Some(segments) = decoded else { return Route::Nothing };
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["version"] => Route::Version,
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] if group_exists(group) => Route::Group((*group).to_owned()),
        ["api", version] if *version == "v1" => Route::Resources { group: String::new(), version: "v1".to_owned() },
        ["apis", group, version] if version_exists(group, version) => {
            Route::Resources { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", "api", version] if *version == "v1" => {
            Route::OpenApi { group: String::new(), version: "v1".to_owned() }
        }
        ["openapi", "v3", "apis", group, version] if version_exists(group, version) => {
            Route::OpenApi { group: (*group).to_owned(), version: (*version).to_owned() }
        }
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..]
            if group_exists(group) || REVIEWS.iter().any(|(known, _)| known == group) =>
        {
            resource(group, version, rest)
        }
        _ => Route::Nothing,
    }
}

#[must_use]
pub fn group_exists(group: &str) -> bool {
    !group.is_empty() && (group == EVENTS_GROUP || KINDS.iter().any(|kind| kind.group == group))
}

#[must_use]
pub fn version_exists(group: &str, version: &str) -> bool {
    (group == EVENTS_GROUP && version == "v1")
        || KINDS.iter().any(|kind| kind.group == group && kind.version == version)
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Route {
    if let [resource] = rest
        && REVIEWS.contains(&(group, resource))
        && version == "v1"
    {
        return Route::Review { api_version: format!("{group}/{version}"), resource: (*resource).to_owned() };
    }
    if let ["namespaces", namespace, "bindings"] = rest
        && group.is_empty()
        && version == "v1"
    {
        return Route::Bindings { namespace: (*namespace).to_owned() };
    }
    let found = match rest {
        // `namespaces/<name>/status` belongs to the namespace; any other third segment is a resource in it.
        ["namespaces", namespace, plural, tail @ ..] if *plural != "status" => {
            target(group, version, Some(namespace), plural, tail)
        }
        [plural, tail @ ..] => target(group, version, None, plural, tail),
        [] => None,
    };
    found.map_or(Route::NoResource, Route::Resource)
}

fn target(group: &str, version: &str, namespace: Option<&str>, plural: &str, tail: &[&str]) -> Option<Target> {
    let as_new_event = group == EVENTS_GROUP;
    let kind = KindId::by_plural(if as_new_event { "" } else { group }, version, plural)
        .filter(|kind| !as_new_event || *kind == KindId::EVENT)?;
    let (name, subresource) = match tail {
        [] => (None, None),
        [name] => (Some(*name), None),
        [name, sub] if kind.kind().subresources.contains(sub) => (Some(*name), Some(*sub)),
        _ => return None,
    };
    let namespaced = kind.kind().namespaced;
    // Objects of namespaced kinds need a namespace in the path, objects of cluster-scoped kinds must not have one.
    if namespaced != namespace.is_some() && (name.is_some() || namespace.is_some()) {
        return None;
    }
    let owned = |text: &str| text.to_owned();
    Some(Target {
        kind,
        namespace: namespace.map(owned),
        name: name.map(owned),
        subresource: subresource.map(owned),
        as_new_event,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let pod = |namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>| {
            Route::Resource(Target {
                kind: KindId::POD,
                namespace: namespace.map(str::to_owned),
                name: name.map(str::to_owned),
                subresource: subresource.map(str::to_owned),
                as_new_event: false,
            })
        };
        for (path, route) in [
            ("/api/v1/pods", pod(None, None, None)),
            ("/api/v1/namespaces/a/pods/b%2Dc", pod(Some("a"), Some("b-c"), None)),
            ("/api/v1/namespaces/a/pods/b/binding", pod(Some("a"), Some("b"), Some("binding"))),
            ("/api/v1/namespaces/a/bindings", Route::Bindings { namespace: "a".to_owned() }),
            ("/api/v1/pods/b", Route::NoResource),
            ("/api/v1/namespaces/a/nodes", Route::NoResource),
            ("/api/v1/namespaces/a/pods/b/nope", Route::NoResource),
            ("/api/v1/namespaces/a/pods/%zz", Route::Nothing),
            ("/apis/apps", Route::Group("apps".to_owned())),
            ("/apis/nope/v1", Route::Nothing),
            ("/apis/apps/v9/deployments", Route::NoResource),
            ("//", Route::Nothing),
        ] {
            assert_eq!(parse(path), route, "{path}");
        }
        for path in ["/api/v1/namespaces/a", "/api/v1/namespaces/a/status"] {
            let Route::Resource(target) = parse(path) else { panic!("{path}") };
            assert_eq!((target.kind, target.name.as_deref()), (KindId::NAMESPACE, Some("a")));
        }
    }
}
