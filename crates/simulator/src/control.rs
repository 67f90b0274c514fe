//! Control operations that real APIs do not offer, over HTTP: inject faults, fail a physical host, read the chronicle
//! and a summary of the state.
//!
//! Mounted next to the real APIs, at `/simulator`:
//!
//! | request | answer |
//! |---|---|
//! | `GET /faults` | the active fault rules, as JSON |
//! | `POST /faults` | adds one rule, given as JSON |
//! | `DELETE /faults` | removes all rules |
//! | `POST /hosts/{name}/fail`, `POST /hosts/{name}/recover` | powers a physical host off or on again |
//! | `GET /chronicle?since=N` | the chronicle from entry N on, one line per entry; the header `x-next` has the next N |
//! | `GET /state` | clusters, hosts, VMs and rules, as JSON |
//! | `POST /sessions/end` | ends all vCenter sessions and returns their number |
//! | `POST /watches/compact?kept=N` | drops all but the newest N Kubernetes changes: older watches get 410 |
//!
//! Invariants: request bodies are bounded in size and time; a request that cannot be parsed gets a 4xx and changes
//! nothing.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::clock::SimTime;
use crate::fault::{FaultRule, FaultRuleError};
use crate::vcenter::Vcenter;
use crate::vcenter::inventory::{
    Cluster, ConnectionState, Group, GroupMembers, Host, HostId, Inventory, Maintenance, PowerState, Rule, RuleKind,
    VmId,
};
use crate::vcenter::vim_fault::VimFault;
use crate::world::World;

const BODY_BYTES_MAX: usize = 64 * 1024;
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

pub fn router(world: Arc<World>) -> Router {
    Router::new()
        .route("/faults", get(list_faults).post(add_fault).delete(clear_faults))
        .route("/hosts/{name}/fail", post(fail_host))
        .route("/hosts/{name}/recover", post(recover_host))
        .route("/chronicle", get(chronicle))
        .route("/state", get(state))
        .route("/sessions/end", post(end_sessions))
        .route("/watches/compact", post(compact_watches))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(in_time))
        .with_state(world)
}

/// All handlers answer immediately; only reading the body can take time.
async fn in_time(request: Request, next: Next) -> Response {
    let answered = tokio::time::timeout(ANSWER_WITHIN, next.run(request)).await;
    answered.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

#[derive(Debug, thiserror::Error)]
enum ControlError {
    #[error("not a fault rule: {0}")]
    NotARule(#[from] serde_json::Error),
    #[error("{0}")]
    BadRule(#[from] FaultRuleError),
    #[error("no host is named {0}")]
    NoSuchHost(String),
    #[error("{0}")]
    Refused(VimFault),
}

impl IntoResponse for ControlError {
    fn into_response(self) -> Response {
        let status = match self {
            ControlError::NotARule(_) => StatusCode::BAD_REQUEST,
            ControlError::BadRule(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ControlError::NoSuchHost(_) => StatusCode::NOT_FOUND,
            ControlError::Refused(_) => StatusCode::CONFLICT,
        };
        (status, format!("{self}\n")).into_response()
    }
}

fn json_response(value: &Value) -> Response {
    ([("content-type", "application/json")], format!("{value:#}\n")).into_response()
}

async fn list_faults(State(world): State<Arc<World>>) -> Response {
    let (rules, struck) = world.with(|core, _| (core.faults.rules().to_vec(), core.faults.struck()));
    json_response(&json!({ "rules": rules, "struck": struck }))
}

async fn add_fault(State(world): State<Arc<World>>, body: Bytes) -> Result<StatusCode, ControlError> {
    let rule: FaultRule = serde_json::from_slice(&body)?;
    world.with(|core, _| core.faults.add(rule))?;
    Ok(StatusCode::CREATED)
}

async fn clear_faults(State(world): State<Arc<World>>) -> StatusCode {
    world.with(|core, _| core.faults.clear());
    StatusCode::NO_CONTENT
}

async fn fail_host(State(world): State<Arc<World>>, Path(name): Path<String>) -> Result<StatusCode, ControlError> {
    on_host(&world, &name, Vcenter::fail_host)
}

async fn recover_host(State(world): State<Arc<World>>, Path(name): Path<String>) -> Result<StatusCode, ControlError> {
    on_host(&world, &name, Vcenter::recover_host)
}

fn on_host(
    world: &World,
    name: &str,
    act: fn(&mut Vcenter, HostId, SimTime) -> Result<(), VimFault>,
) -> Result<StatusCode, ControlError> {
    world.with(|core, now| {
        let host = core.vcenter.inventory().hosts().find(|(_, host)| host.name == name).map(|(id, _)| id);
        let host = host.ok_or_else(|| ControlError::NoSuchHost(name.to_owned()))?;
        act(&mut core.vcenter, host, now).map_err(ControlError::Refused)?;
        Ok(StatusCode::NO_CONTENT)
    })
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since: u64,
}

async fn chronicle(State(world): State<Arc<World>>, Query(Since { since }): Query<Since>) -> Response {
    let (lines, next) = world.with(|core, _| {
        let mut lines = String::new();
        for entry in core.chronicle.since(since) {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "{entry}");
        }
        (lines, core.chronicle.next_number())
    });
    ([("content-type", "text/plain; charset=utf-8"), ("x-next", &next.to_string())], lines).into_response()
}

async fn end_sessions(State(world): State<Arc<World>>) -> Response {
    let ended = world.with(|core, _| core.vcenter.end_all_sessions());
    json_response(&json!({ "ended": ended }))
}

#[derive(Deserialize)]
struct Kept {
    #[serde(default)]
    kept: usize,
}

async fn compact_watches(State(world): State<Arc<World>>, Query(Kept { kept }): Query<Kept>) -> StatusCode {
    world.with(|core, _| core.kubernetes.store_mut().compact(kept));
    StatusCode::NO_CONTENT
}

async fn state(State(world): State<Arc<World>>) -> Response {
    let state = world.with(|core, now| {
        let inventory = core.vcenter.inventory();
        let clusters: Vec<Value> = inventory
            .clusters()
            .map(|(id, cluster)| {
                let hosts: Vec<Value> =
                    inventory.hosts_in(id).map(|(id, host)| host_state(&core.vcenter, id, host)).collect();
                cluster_state(inventory, cluster, &hosts)
            })
            .collect();
        json!({ "now": now.to_string(), "clusters": clusters })
    });
    json_response(&state)
}

fn host_state(vcenter: &Vcenter, id: HostId, host: &Host) -> Value {
    let vms: Vec<Value> = vcenter
        .inventory()
        .vms_on(id)
        .map(|(_, vm)| {
            let power = match vm.power {
                PowerState::On => "on",
                PowerState::Off => "off",
                PowerState::Suspended => "suspended",
            };
            let moving_to = vm.moving_to.and_then(|to| vcenter.inventory().host(to)).map(|host| &host.name);
            json!({
                "name": vm.name, "power": power, "movingTo": moving_to,
                "cpuDemandMhz": vm.cpu_demand_mhz, "memoryDemandMib": vm.memory_demand_mib,
            })
        })
        .collect();
    json!({
        "name": host.name,
        "connection": match host.connection {
            ConnectionState::Connected => "connected",
            ConnectionState::Disconnected => "disconnected",
            ConnectionState::NotResponding => "not-responding",
        },
        "maintenance": match host.maintenance {
            Maintenance::No => "no",
            Maintenance::Entering => "entering",
            Maintenance::In => "in",
        },
        "failed": vcenter.host_has_failed(id),
        "vms": vms,
    })
}

fn cluster_state(inventory: &Inventory, cluster: &Cluster, hosts: &[Value]) -> Value {
    let rules: Vec<Value> = cluster.rules.iter().map(|rule| rule_state(inventory, rule)).collect();
    let groups: Vec<Value> = cluster.groups.iter().map(|group| group_state(inventory, group)).collect();
    json!({ "name": cluster.name, "hosts": hosts, "rules": rules, "groups": groups })
}

fn vm_names(inventory: &Inventory, vms: &[VmId]) -> Value {
    vms.iter().filter_map(|vm| inventory.vm(*vm)).map(|vm| vm.name.as_str()).collect()
}

fn rule_state(inventory: &Inventory, rule: &Rule) -> Value {
    let mut state = match &rule.kind {
        RuleKind::Affinity { vms } => json!({ "kind": "affinity", "vms": vm_names(inventory, vms) }),
        RuleKind::AntiAffinity { vms } => json!({ "kind": "anti-affinity", "vms": vm_names(inventory, vms) }),
        RuleKind::VmHost { vm_group, affine_host_group, anti_affine_host_group } => json!({
            "kind": "vm-host", "vmGroup": vm_group,
            "affineHostGroup": affine_host_group, "antiAffineHostGroup": anti_affine_host_group,
        }),
        RuleKind::Dependency { vm_group, depends_on_vm_group } => {
            json!({ "kind": "dependency", "vmGroup": vm_group, "dependsOnVmGroup": depends_on_vm_group })
        }
    };
    state["key"] = json!(rule.key);
    state["name"] = json!(rule.name);
    state["enabled"] = json!(rule.enabled);
    state["mandatory"] = json!(rule.mandatory);
    state
}

fn group_state(inventory: &Inventory, group: &Group) -> Value {
    match &group.members {
        GroupMembers::Vms(vms) => json!({ "name": group.name, "vms": vm_names(inventory, vms) }),
        GroupMembers::Hosts(hosts) => {
            let names: Value = hosts.iter().filter_map(|id| inventory.host(*id)).map(|h| h.name.as_str()).collect();
            json!({ "name": group.name, "hosts": names })
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;
    use crate::clock::Clock;
    use crate::world::Config;

    async fn ask(world: &Arc<World>, method: &str, path: &str, body: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).body(Body::from(body.to_owned())).unwrap();
        let response = router(world.clone()).oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn world() -> Arc<World> {
        World::new(&Config::default(), Clock::virtual_time())
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_requests_are_rejected() {
        let world = world();
        let rule = |fault: &str| {
            format!(r#"{{"side":"vcenter","methods":"*","fault":{{"kind":{fault}}},"frequency":"always"}}"#)
        };
        let cases = [
            ("POST", "/faults", "", 400),
            ("POST", "/faults", "{", 400),
            ("POST", "/faults", &rule("\"nonsense\""), 400),
            ("POST", "/faults", &rule("\"http-status\",\"status\":200"), 422),
            ("POST", "/faults", &"x".repeat(BODY_BYTES_MAX + 1), 413),
            ("PUT", "/faults", "", 405),
            ("POST", "/hosts/unknown/fail", "", 404),
            ("POST", "/hosts/esx-1.lab/recover", "", 409),
            ("GET", "/chronicle?since=-1", "", 400),
            ("GET", "/sessions/end", "", 405),
            ("POST", "/watches/compact?kept=all", "", 400),
            ("GET", "/nothing", "", 404),
        ];
        for (method, path, body, status) in cases {
            assert_eq!(ask(&world, method, path, body).await.0, status, "{method} {path}");
        }
        assert_eq!(world.with(|core, _| core.faults.rules().len()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn faults_are_added_listed_and_cleared() {
        let world = world();
        let rule = r#"{"side":"kubernetes","methods":"watch *","fault":{"kind":"watch-gone"},"frequency":{"times":1}}"#;
        assert_eq!(ask(&world, "POST", "/faults", rule).await.0, 201);
        let listed: Value = serde_json::from_str(&ask(&world, "GET", "/faults", "").await.1).unwrap();
        assert_eq!(listed["rules"][0], serde_json::from_str::<Value>(rule).unwrap());
        assert_eq!(ask(&world, "DELETE", "/faults", "").await.0, 204);
        assert_eq!(world.with(|core, _| core.faults.rules().len()), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_fails_and_the_chronicle_and_state_show_it() {
        let world = world();
        let next = world.with(|core, _| core.chronicle.next_number());
        assert_eq!(ask(&world, "POST", "/hosts/esx-1.lab/fail", "").await.0, 204);
        assert_eq!(ask(&world, "POST", "/hosts/esx-1.lab/fail", "").await.0, 409);
        let (status, lines) = ask(&world, "GET", &format!("/chronicle?since={next}"), "").await;
        assert_eq!(status, 200);
        assert!(lines.lines().next().is_some_and(|line| line.ends_with("host esx-1.lab failed")), "{lines}");
        tokio::time::sleep(std::time::Duration::from_secs(120)).await;
        let state: Value = serde_json::from_str(&ask(&world, "GET", "/state", "").await.1).unwrap();
        let host = &state["clusters"][0]["hosts"][0];
        assert_eq!((&host["name"], &host["connection"]), (&json!("esx-1.lab"), &json!("not-responding")));
        assert_eq!(host["vms"], json!([]), "its VMs have been restarted elsewhere");
        assert_eq!(ask(&world, "POST", "/hosts/esx-1.lab/recover", "").await.0, 204);
    }

    #[tokio::test(start_paused = true)]
    async fn all_sessions_end_at_once() {
        let world = world();
        world.with(|core, now| {
            for user in ["a", "b"] {
                core.vcenter.wire.login(user, "127.0.0.1", "test", now).unwrap();
            }
        });
        let ended = async || serde_json::from_str::<Value>(&ask(&world, "POST", "/sessions/end", "").await.1).unwrap();
        assert_eq!(ended().await, json!({ "ended": 2 }));
        assert_eq!(world.with(|core, _| core.vcenter.session_count()), 0);
        assert_eq!(ended().await, json!({ "ended": 0 }));
    }

    #[tokio::test(start_paused = true)]
    async fn compaction_makes_older_watches_list_again() {
        let world = world();
        world.with(|core, now| {
            let object = json!({ "metadata": { "name": "a", "namespace": "default" } });
            core.kubernetes.store_mut().create(crate::kubernetes::kinds::KindId::CONFIG_MAP, object, now).unwrap();
        });
        assert_eq!(ask(&world, "POST", "/watches/compact", "").await.0, 204);
        assert!(world.with(|core, _| core.kubernetes.store().changes_since(0).is_err()));
    }
}
