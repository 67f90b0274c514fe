//! Checks the server and its permissions once at the start.
//!
//! In: a connection and the operations that Bridger needs. Out: the server's version and the identity of the cluster,
//! or the first problem. A missing permission is thus reported immediately with verb and resource, and not by a watch
//! that stays empty.

use std::time::Duration;

use http::Request;
use kube::Client;
use model::{Part, Parts, sources_for};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::bounded::BoundExceeded;
use crate::connect::{ConnectError, Connection, classify};

/// The time limit of one request.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);

/// A permission that Bridger needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    pub verb: &'static str,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// `nodes`, or with a subresource `pods/binding`.
    pub resource: &'static str,
    pub scope: Scope,
}

/// Where the permission is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    AllNamespaces,
    /// The namespace of Bridger's own objects.
    OwnNamespace,
    /// The ConfigMaps of the rule record, in that namespace. A role may name them.
    RecordObjects,
}

/// Bridger's own objects.
#[derive(Clone, Copy, Debug)]
pub struct OwnObjects<'a> {
    pub namespace: &'a str,
    /// The ConfigMaps of the rule record.
    pub record: &'a [String],
}

const fn need(verb: &'static str, resource: &'static str) -> Need {
    Need { verb, group: "", resource, scope: Scope::AllNamespaces }
}

const fn own(verb: &'static str, resource: &'static str) -> Need {
    Need { verb, group: "", resource, scope: Scope::OwnNamespace }
}

const fn of_record(verb: &'static str) -> Need {
    Need { verb, group: "", resource: "configmaps", scope: Scope::RecordObjects }
}

const fn lease(verb: &'static str) -> Need {
    Need { verb, group: "coordination.k8s.io", resource: "leases", scope: Scope::OwnNamespace }
}

/// The permissions for the watches of these parts of Bridger.
pub fn watch_needs(parts: Parts) -> impl Iterator<Item = Need> {
    sources_for(parts)
        .flat_map(|row| ["list", "watch"].map(|verb| Need { group: row.group, ..need(verb, row.resource) }))
}

/// An operation other than watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    WriteLabels,
    /// The record of DRS rules.
    ReadRecord,
    /// The record of DRS rules.
    WriteRecord,
    /// The record of DRS rules, for Bridger's removal only.
    DeleteRecord,
    BindPods,
    /// Reading a pod again after a binding without a response.
    ReadPods,
    /// The same, writing a pod's conditions, and deleting it to make room for another one.
    WritePods,
    /// Asking for the volumes of pods.
    BindVolumes,
    WriteEvents,
    /// Leader election.
    Lead,
}

impl Access {
    /// The permissions that it needs.
    pub const fn needs(self) -> &'static [Need] {
        match self {
            Self::WriteLabels => const { &[need("patch", "nodes")] },
            Self::ReadRecord => const { &[own("list", "configmaps")] },
            Self::WriteRecord => {
                const { &[own("list", "configmaps"), own("create", "configmaps"), of_record("update")] }
            }
            Self::DeleteRecord => const { &[of_record("delete")] },
            Self::BindPods => const { &[need("create", "pods/binding")] },
            Self::ReadPods => const { &[need("get", "pods")] },
            Self::WritePods => const { &[need("get", "pods"), need("delete", "pods"), need("patch", "pods/status")] },
            Self::BindVolumes => {
                const { &[need("patch", "persistentvolumes"), need("patch", "persistentvolumeclaims")] }
            }
            Self::WriteEvents => const { &[need("create", "events")] },
            Self::Lead => const { &[lease("get"), lease("create"), lease("patch")] },
        }
    }

    /// All operations of a part that may write.
    pub const fn of(part: Part) -> &'static [Access] {
        match part {
            Part::NodeLabels => &[Self::WriteLabels, Self::WriteEvents, Self::Lead],
            Part::DrsRules => &[Self::ReadRecord, Self::WriteRecord, Self::WriteEvents, Self::Lead],
            Part::Extender => &[Self::BindPods, Self::ReadPods, Self::WriteEvents, Self::Lead],
            Part::Scheduling => &[Self::BindPods, Self::WritePods, Self::BindVolumes, Self::WriteEvents, Self::Lead],
        }
    }
}

/// Facts about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// `v1.36.0`; `None` if the server does not disclose it.
    pub version: Option<String>,
    /// The UID of the namespace `kube-system`, which identifies the cluster; `None` if there is no such namespace.
    pub cluster_uid: Option<String>,
}

/// Queries the server; fails with the first need that is denied. Needs in Bridger's own namespace are checked in the
/// connection's default namespace.
pub async fn preflight(connection: &Connection, needs: &[Need]) -> Result<ServerFacts, ConnectError> {
    let own = OwnObjects { namespace: connection.client.default_namespace(), record: &[] };
    preflight_in(connection, own, needs).await
}

/// Like [`fn@preflight`], with these objects as Bridger's own.
pub async fn preflight_in(
    connection: &Connection,
    own: OwnObjects<'_>,
    needs: &[Need],
) -> Result<ServerFacts, ConnectError> {
    let server = connection.server.as_str();
    let client = connection.client.client();
    let version = match ask::<Version>(client, Request::get("/version").body(Vec::new())).await {
        Ok(version) => Some(version.git_version),
        Err(error) if code(&error) == Some(403) || is_absent(&error) => None,
        Err(error) => return Err(classify(server, &error)),
    };
    for need in needs {
        let names: Vec<Option<&str>> = match need.scope {
            Scope::AllNamespaces | Scope::OwnNamespace => vec![None],
            Scope::RecordObjects => own.record.iter().map(|name| Some(name.as_str())).collect(),
        };
        for name in names {
            check(client, server, own.namespace, *need, name).await?;
        }
    }
    Ok(ServerFacts { version, cluster_uid: cluster_uid(client, server).await? })
}

async fn check(
    client: &Client,
    server: &str,
    own_namespace: &str,
    need: Need,
    name: Option<&str>,
) -> Result<(), ConnectError> {
    let (resource, subresource) = match need.resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource)),
        None => (need.resource, None),
    };
    let mut attributes = json!({ "verb": need.verb, "group": need.group, "resource": resource });
    if let Some(subresource) = subresource {
        attributes["subresource"] = json!(subresource);
    }
    if need.scope != Scope::AllNamespaces {
        attributes["namespace"] = json!(own_namespace);
    }
    if let Some(name) = name {
        attributes["name"] = json!(name);
    }
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": { "resourceAttributes": attributes },
    });
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes());
    let denied = |verb: &str, resource: &str| ConnectError::Denied {
        server: server.to_owned(),
        verb: verb.to_owned(),
        resource: resource.to_owned(),
    };
    match ask::<Review>(client, request).await {
        Ok(review) if review.status.allowed => Ok(()),
        Ok(_) => {
            Err(denied(need.verb, &[Some(need.resource), name].into_iter().flatten().collect::<Vec<_>>().join(" ")))
        }
        // The server does not support access reviews: the requests themselves will show.
        Err(error) if is_absent(&error) => Ok(()),
        // Every authenticated user may create access reviews; anonymous users may not.
        Err(error) if code(&error) == Some(403) => Err(denied("create", "selfsubjectaccessreviews")),
        Err(error) => Err(classify(server, &error)),
    }
}

/// Uses a list, because Bridger needs the permission to list namespaces anyway, but not to get one.
async fn cluster_uid(client: &Client, server: &str) -> Result<Option<String>, ConnectError> {
    let request = Request::get("/api/v1/namespaces?fieldSelector=metadata.name%3Dkube-system").body(Vec::new());
    match ask::<Namespaces>(client, request).await {
        Ok(list) => Ok(list.items.into_iter().find(|it| it.metadata.name == "kube-system").map(|it| it.metadata.uid)),
        Err(error) if code(&error) == Some(403) => Err(ConnectError::Denied {
            server: server.to_owned(),
            verb: "list".to_owned(),
            resource: "namespaces".to_owned(),
        }),
        Err(error) => Err(classify(server, &error)),
    }
}

async fn ask<T: DeserializeOwned>(client: &Client, request: http::Result<Request<Vec<u8>>>) -> kube::Result<T> {
    let request = request.map_err(kube::Error::HttpError)?;
    let text = tokio::time::timeout(QUESTION_LIMIT, client.request_text(request))
        .await
        .map_err(|_| kube::Error::Service(Box::new(BoundExceeded::Time(QUESTION_LIMIT))))??;
    serde_json::from_str(&text).map_err(kube::Error::SerdeError)
}

fn code(error: &kube::Error) -> Option<u16> {
    if let kube::Error::Api(status) = error { Some(status.code) } else { None }
}

fn is_absent(error: &kube::Error) -> bool {
    matches!(code(error), Some(404 | 405))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

#[derive(Deserialize)]
struct Namespaces {
    items: Vec<Namespace>,
}

#[derive(Deserialize)]
struct Namespace {
    metadata: NamespaceMeta,
}

#[derive(Deserialize)]
struct NamespaceMeta {
    name: String,
    uid: String,
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::scripted::{Log, ScriptedAnswer, scripted};

    const VERSION: &str = "/version";
    const REVIEW: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    const NAMESPACES: &str = "/api/v1/namespaces";

    fn version() -> (&'static str, ScriptedAnswer) {
        (VERSION, ScriptedAnswer::Json(200, json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.0" })))
    }

    fn review(allowed: bool) -> (&'static str, ScriptedAnswer) {
        (REVIEW, ScriptedAnswer::Json(201, json!({ "status": { "allowed": allowed } })))
    }

    fn namespaces() -> (&'static str, ScriptedAnswer) {
        (
            NAMESPACES,
            ScriptedAnswer::Json(200, json!({ "items": [{ "metadata": { "name": "kube-system", "uid": "u1" } }] })),
        )
    }

    async fn outcome(script: Vec<(&str, ScriptedAnswer)>, needs: &[Need]) -> (Result<ServerFacts, String>, Log) {
        let (client, log) = scripted(script);
        let connection = Connection { client: client.into(), server: "https://api:6443".to_owned() };
        (preflight(&connection, needs).await.map_err(|error| error.to_string()), log)
    }

    /// What the access reviews asked for.
    fn asked(log: &Log) -> Vec<Value> {
        let requests = log.requests();
        let reviews = requests.iter().filter(|request| request.path_and_query == REVIEW);
        let bodies = reviews.map(|review| serde_json::from_str::<Value>(&review.body).expect("JSON"));
        bodies.map(|mut body| body["spec"]["resourceAttributes"].take()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn number_10_updates_of_the_record_are_checked_for_its_objects_by_name() {
        let names = ["bridger-rules-1".to_owned(), "bridger-rules-2".to_owned()];
        for (record, allowed, expected) in [
            (&[][..], &[][..], Ok(())),
            (&names, &[true, true], Ok(())),
            (&names, &[true, false], Err("does not allow \"update\" on configmaps bridger-rules-2")),
        ] {
            let reviews = allowed.iter().map(|allowed| review(*allowed));
            let (client, log) = scripted([version()].into_iter().chain(reviews).chain([namespaces()]));
            let connection = Connection { client: client.into(), server: "https://api:6443".to_owned() };
            let own = OwnObjects { namespace: "bridger", record };
            let answer = preflight_in(&connection, own, &[of_record("update")]).await;
            match expected {
                Ok(()) => assert!(answer.is_ok(), "{answer:?}"),
                Err(text) => assert!(answer.as_ref().is_err_and(|e| e.to_string().contains(text)), "{answer:?}"),
            }
            let asked: Vec<Value> = asked(&log).into_iter().map(|mut review| review["name"].take()).collect();
            assert_eq!(asked, names[..allowed.len()].iter().map(|name| json!(name)).collect::<Vec<_>>());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn preflight_passes_if_all_needs_are_allowed_and_returns_the_server_facts() {
        let needs = [need("list", "nodes"), own("create", "configmaps"), Access::BindPods.needs()[0]];
        let reviews = [review(true), review(true), review(true)];
        let script = [version()].into_iter().chain(reviews).chain([namespaces()]).collect();
        let (answer, log) = outcome(script, &needs).await;
        let known = ServerFacts { version: Some("v1.36.0".to_owned()), cluster_uid: Some("u1".to_owned()) };
        assert_eq!(answer, Ok(known));
        assert_eq!(
            asked(&log),
            [
                json!({ "verb": "list", "group": "", "resource": "nodes" }),
                json!({ "verb": "create", "group": "", "resource": "configmaps", "namespace": "default" }),
                json!({ "verb": "create", "group": "", "resource": "pods", "subresource": "binding" }),
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_problem_is_reported() {
        let needs = [need("list", "nodes"), need("watch", "nodes")];
        let cases = [
            (vec![version(), review(true), review(false)], "does not allow \"watch\" on nodes"),
            (vec![version(), (REVIEW, ScriptedAnswer::Status(403, "no"))], "\"create\" on selfsubjectaccessreviews"),
            (
                vec![version(), review(true), review(true), (NAMESPACES, ScriptedAnswer::Status(403, "no"))],
                "\"list\" on namespaces",
            ),
            (vec![(VERSION, ScriptedAnswer::Status(401, "no"))], "does not accept these credentials"),
            (vec![(VERSION, ScriptedAnswer::Refuse)], "can't be reached: connection refused"),
            (vec![(VERSION, ScriptedAnswer::Silence)], "can't be reached: no answer within 10 s"),
            (vec![(VERSION, ScriptedAnswer::Json(200, json!("hello")))], "unexpected answer: the answer can't be read"),
            (vec![version(), (REVIEW, ScriptedAnswer::Status(500, "etcd"))], "unexpected answer: HTTP 500: etcd"),
        ];
        for (script, expected) in cases {
            let (answer, _) = outcome(script, &needs).await;
            let text = answer.expect_err(expected);
            assert!(text.contains(expected) && text.contains("https://api:6443"), "{text}\nexpected: {expected}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_without_access_reviews_counts_as_allowing_everything() {
        for code in [404, 405] {
            let script = vec![
                (VERSION, ScriptedAnswer::Status(code, "no")),
                (REVIEW, ScriptedAnswer::Status(code, "no")),
                (NAMESPACES, ScriptedAnswer::Json(200, json!({ "items": [] }))),
            ];
            let (answer, _) = outcome(script, &[need("list", "nodes")]).await;
            assert_eq!(answer, Ok(ServerFacts { version: None, cluster_uid: None }));
        }
    }
}
