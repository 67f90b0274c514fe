//! The client against a scripted server, in both forms of the API.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http::Response;
use serde_json::{Value, json};
use tower::service_fn;

use super::*;
use crate::client::Endpoint;
use crate::tls::Trust;

/// A server with two categories; `prod` is a tag of both.
#[derive(Default)]
struct Server {
    has_rest: bool,
    /// Session tokens that are accepted.
    sessions: Vec<String>,
    logins: u32,
    /// More tags, of no object.
    others: usize,
    /// The time until each response.
    takes: Duration,
    log: Vec<String>,
}

impl Server {
    fn answer(&mut self, request: &Request<Full<Bytes>>) -> (u16, Value) {
        let path = request.uri().path_and_query().map_or("", |it| it.as_str()).to_owned();
        self.log.push(format!("{} {path}", request.method()));
        let (path, is_rest) = match path.strip_prefix("/rest/com/vmware/cis") {
            Some(rest) => (rest.replace("id:", "").replace("~action", "action"), true),
            None => (path.strip_prefix("/api/cis").or(path.strip_prefix("/api")).unwrap_or(&path).to_owned(), false),
        };
        if is_rest != self.has_rest {
            return (404, Value::Null);
        }
        let header = |name: &str| request.headers().get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
        let (status, value) = if path == "/session" && request.method() == Method::POST {
            // tester:secret
            if header("authorization") == "Basic dGVzdGVyOnNlY3JldA==" {
                self.logins += 1;
                self.sessions.push(format!("session-{}", self.logins));
                (200, json!(self.sessions.last()))
            } else {
                (401, Value::Null)
            }
        } else if !self.sessions.iter().any(|session| session == header(SESSION_HEADER)) {
            (401, Value::Null)
        } else {
            self.of_session(&path)
        };
        (status, if is_rest { json!({ "value": value }) } else { value })
    }

    fn of_session(&mut self, path: &str) -> (u16, Value) {
        let vm = |id: &str| json!({ "id": id, "type": "VirtualMachine" });
        let value = match path {
            "/session" => {
                self.sessions.clear();
                Value::Null
            }
            "/tagging/category" => json!(["c1", "c2"]),
            "/tagging/category/c1" => json!({ "id": "c1", "name": "role", "description": "" }),
            "/tagging/category/c2" => json!({ "id": "c2", "name": "stage" }),
            "/tagging/tag" => {
                let others = (0..self.others).map(|number| format!("other-{number}"));
                json!(["t1", "t2", "t3", "gone"].map(str::to_owned).into_iter().chain(others).collect::<Vec<_>>())
            }
            "/tagging/tag/t1" => json!({ "id": "t1", "name": "node", "category_id": "c1" }),
            "/tagging/tag/t2" => json!({ "id": "t2", "name": "prod", "category_id": "c2" }),
            "/tagging/tag/t3" => json!({ "id": "t3", "name": "prod", "category_id": "c1" }),
            "/tagging/tag-association/t1?action=list-attached-objects" => Value::Null,
            "/tagging/tag-association/t2?action=list-attached-objects" => json!([vm("vm-1"), vm("vm-2")]),
            "/tagging/tag-association/t3?action=list-attached-objects" => json!([vm("vm-3")]),
            _ => match path.strip_prefix("/tagging/tag/other-") {
                Some(number) => json!({ "name": format!("other {number}"), "category_id": "c1" }),
                None => return (404, Value::Null),
            },
        };
        (200, value)
    }
}

fn tagging(server: &Arc<Mutex<Server>>, password: &str) -> Tagging {
    let (endpoint, credentials) = Endpoint::parse(&format!("https://tester:{password}@vc/sdk")).expect("a URL");
    let mut config = VcenterConfig::new(endpoint, credentials.expect("credentials").into(), Trust::System);
    let server = server.clone();
    config.transport = Some(Transport::service(service_fn(move |request| {
        let (takes, (status, value)) = {
            let mut server = server.lock().expect("a server");
            (server.takes, server.answer(&request))
        };
        let response = Response::builder().status(status).body(Full::new(Bytes::from(value.to_string())));
        async move {
            tokio::time::sleep(takes).await;
            Ok::<_, Infallible>(response.expect("a response"))
        }
    })));
    Tagging::new(&config).expect("a client")
}

fn server(has_rest: bool) -> Arc<Mutex<Server>> {
    Arc::new(Mutex::new(Server { has_rest, ..Server::default() }))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn vms(tagged: &Tagged) -> Vec<&str> {
    tagged.objects.iter().map(|object| object.id.as_str()).collect()
}

#[tokio::test]
async fn number_5_tags_are_found_by_name_and_category_in_both_forms_of_the_api() {
    for has_rest in [true, false] {
        let server = server(has_rest);
        let (mut tagging, mut known) = (tagging(&server, "secret"), TagNames::default());
        for (wanted, expected, unknown) in [
            (names(&["prod"]), &["vm-1", "vm-2", "vm-3"][..], names(&[])),
            (names(&["stage:prod"]), &["vm-1", "vm-2"], names(&[])),
            (names(&["role:prod", "nothing", "other:prod"]), &["vm-3"], names(&["nothing", "other:prod"])),
            (names(&["node"]), &[], names(&[])),
        ] {
            let tagged = tagging.objects_with(&wanted, &mut known).await.expect("tags");
            assert_eq!((vms(&tagged), &tagged.unknown), (expected.to_vec(), &unknown), "{wanted:?}");
        }
        assert_eq!(server.lock().unwrap().logins, 1, "one session for all reads");
        tagging.close().await;
        assert!(server.lock().unwrap().sessions.is_empty(), "the session is ended");
    }
}

#[tokio::test]
async fn number_5_a_session_that_has_ended_is_replaced() {
    let server = server(true);
    let (mut tagging, mut known) = (tagging(&server, "secret"), TagNames::default());
    let wanted = names(&["stage:prod"]);
    tagging.objects_with(&wanted, &mut known).await.expect("tags");
    server.lock().unwrap().sessions.clear();
    assert_eq!(vms(&tagging.objects_with(&wanted, &mut known).await.expect("tags")), ["vm-1", "vm-2"]);
    assert_eq!(server.lock().unwrap().logins, 2);
}

#[tokio::test(start_paused = true)]
async fn number_2_a_wrong_password_is_not_sent_again_at_once() {
    let server = server(true);
    let (mut tagging, mut known) = (tagging(&server, "wrong"), TagNames::default());
    let wanted = names(&["prod"]);
    let read = tagging.objects_with(&wanted, &mut known).await;
    assert!(matches!(read, Err(VsphereError::InvalidLogin)));
    let read = tagging.objects_with(&wanted, &mut known).await;
    assert!(matches!(read, Err(VsphereError::LoginPaused { .. })));
    assert_eq!(server.lock().unwrap().log.len(), 1);
    assert!(!format!("{tagging:?}").contains("wrong"));
}

#[tokio::test(start_paused = true)]
async fn a_read_ends_in_time_and_the_next_one_continues_it() {
    let server = server(true);
    server.lock().unwrap().others = 400;
    server.lock().unwrap().takes = Duration::from_secs(1);
    let (mut tagging, mut known) = (tagging(&server, "secret"), TagNames::default());
    let wanted = names(&["stage:prod"]);
    let began = tokio::time::Instant::now();
    // 404 tags, four at a time.
    let read = tagging.objects_with(&wanted, &mut known).await;
    assert!(matches!(read, Err(VsphereError::TagsUnread { .. })), "{read:?}");
    assert!(began.elapsed() < READ_LIMIT + Duration::from_secs(1), "{:?}", began.elapsed());
    let mut reads = 1;
    let tagged = loop {
        reads += 1;
        match tagging.objects_with(&wanted, &mut known).await {
            Ok(tagged) => break tagged,
            Err(error) => assert!(reads < 4, "{error}"),
        }
    };
    assert_eq!(vms(&tagged), ["vm-1", "vm-2"]);
}

#[tokio::test]
async fn only_new_names_and_some_of_the_known_ones_are_read_again() {
    let server = server(true);
    server.lock().unwrap().others = 400;
    let (mut tagging, mut known) = (tagging(&server, "secret"), TagNames::default());
    let wanted = names(&["stage:prod", "other 400"]);
    let mut requests = Vec::new();
    for _ in 0..7 {
        server.lock().unwrap().log.clear();
        let tagged = tagging.objects_with(&wanted, &mut known).await.expect("tags");
        assert_eq!(vms(&tagged), ["vm-1", "vm-2"]);
        requests.push(server.lock().unwrap().log.len());
    }
    // A login, two lists, two categories, 404 tags, the objects of one tag.
    assert_eq!(requests[0], 1 + 2 + 2 + 404 + 1);
    assert!(requests[1..].iter().all(|count| *count == 2 + 2 + READ_AGAIN_MAX + 1), "{requests:?}");
    // Each of them in turn, so that a new name is noticed.
    let asked = |server: &Server, tag: &str| server.log.iter().any(|line| line.ends_with(&format!("/tag/id:{tag}")));
    let mut found = false;
    for _ in 0..5 {
        server.lock().unwrap().log.clear();
        tagging.objects_with(&wanted, &mut known).await.expect("tags");
        found |= asked(&server.lock().unwrap(), "other-399");
    }
    assert!(found);

    // A new tag is read at once, and one that is no longer listed is forgotten.
    server.lock().unwrap().others = 401;
    let tagged = tagging.objects_with(&wanted, &mut known).await.expect("tags");
    assert_eq!(tagged.unknown, [] as [&str; 0]);
    server.lock().unwrap().others = 400;
    let tagged = tagging.objects_with(&wanted, &mut known).await.expect("tags");
    assert_eq!(tagged.unknown, ["other 400"]);
}
