//! A scripted vCenter, in the process and on tokio's clock, paused or not.
//!
//! Sessions, views and collectors are checked: a call without a valid session is NotAuthenticated. The results of waits
//! come from a queue; if it is empty, waits last until their limit and return nothing. The collector of placements
//! needs no queue: it returns the hosts of VMs from the pages of the other collector, right after them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use vsphere::transport::Transport;
use vsphere::{Credentials, Endpoint, Trust, VcenterConfig};

pub const PASSWORD: &str = "never-to-be-shown";

/// The result of a wait or of any other call.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An empty response: the limit of the wait has passed.
    Nothing,
    /// `objectSet` elements; truncated if more pages follow.
    Page { objects: String, truncated: bool },
    /// A fault of this type.
    Fault(&'static str),
    /// The content of the response, verbatim.
    Reply(String),
    /// The connection breaks.
    Dropped,
    /// There is never a response.
    Hangs,
}

#[derive(Clone, Debug)]
pub struct Step {
    /// The time from the first request.
    pub after: Duration,
    pub outcome: Outcome,
}

#[derive(Default)]
pub struct Script {
    pub waits: VecDeque<Step>,
    /// The results of placement waits, for tests that do not want the automatic ones.
    pub placements: Option<VecDeque<Step>>,
    /// The results of the next calls of a method. They take precedence over everything else.
    pub answers: BTreeMap<&'static str, VecDeque<Outcome>>,
    /// The results of the next logins; later ones succeed.
    pub logins: VecDeque<Outcome>,
    /// `objects` elements for reads of host and cluster properties.
    pub read_again: String,
    /// The same for reads of only the load of hosts.
    pub loads: String,
    /// The same for tasks.
    pub tasks: String,
    pub session_ends_at_reading: bool,
    /// Every connection breaks.
    pub unreachable: bool,
    /// No call gets a response any more.
    pub hangs: bool,
    /// Waits take as long as their step, regardless of their limit.
    pub slow: bool,
    pub api_type: Option<&'static str>,
    session: u32,
    session_valid: bool,
    calls: Vec<(Duration, String)>,
    bodies: Vec<(String, String)>,
    /// Waits that were dropped before their response.
    waits_dropped: usize,
    collectors: u32,
    placement_collectors: BTreeSet<String>,
    /// The hosts of VMs in the pages so far: a `<val>`, empty for an unknown host.
    hosts: BTreeMap<String, String>,
    /// Of those, what each collector of placements has returned.
    returned: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Clone)]
pub struct Vcenter {
    pub script: Arc<Mutex<Script>>,
    began: Instant,
    moved: Arc<Notify>,
}

/// Counts a wait as dropped unless it gets a response.
struct Pending<'a> {
    script: &'a Mutex<Script>,
    answered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.script.lock().unwrap().waits_dropped += 1;
        }
    }
}

pub fn at(seconds: u64, outcome: Outcome) -> Step {
    Step { after: Duration::from_secs(seconds), outcome }
}

pub fn page(objects: &[String]) -> Outcome {
    Outcome::Page { objects: objects.concat(), truncated: false }
}

/// An `objectSet` of an update.
pub fn object(kind: &str, of: &str, id: &str, properties: &[(&str, &str)]) -> String {
    let changes: String = properties
        .iter()
        .map(|(path, value)| format!("<changeSet><name>{path}</name><op>assign</op>{value}</changeSet>"))
        .collect();
    format!("<objectSet><kind>{kind}</kind><obj type=\"{of}\">{id}</obj>{changes}</objectSet>")
}

/// An `objects` element of a read.
pub fn content(of: &str, id: &str, properties: &[(&str, &str)]) -> String {
    let values: String =
        properties.iter().map(|(path, value)| format!("<propSet><name>{path}</name>{value}</propSet>")).collect();
    format!("<objects><obj type=\"{of}\">{id}</obj>{values}</objects>")
}

pub fn text(text: &str) -> String {
    format!("<val>{text}</val>")
}

pub fn reference(kind: &str, id: &str) -> String {
    format!("<val type=\"{kind}\">{id}</val>")
}

impl Vcenter {
    pub fn new(waits: impl IntoIterator<Item = Step>) -> Vcenter {
        let script = Script { waits: waits.into_iter().collect(), ..Script::default() };
        Vcenter { script: Arc::new(Mutex::new(script)), began: Instant::now(), moved: Arc::default() }
    }

    pub fn transport(&self) -> Transport {
        let vcenter = self.clone();
        Transport::service(tower::service_fn(move |request: Request<Full<Bytes>>| {
            let vcenter = vcenter.clone();
            async move {
                let cookie = cookie(&request);
                let body = request.into_body().collect().await?.to_bytes();
                vcenter.answer(&String::from_utf8_lossy(&body), cookie.as_deref()).await
            }
        }))
    }

    pub fn config(&self) -> VcenterConfig {
        let (endpoint, _) = Endpoint::parse("vc.example.org").unwrap();
        let credentials = Credentials { username: "me".to_owned(), password: PASSWORD.to_owned() };
        let mut config = VcenterConfig::new(endpoint, credentials.into(), Trust::System);
        config.transport = Some(self.transport());
        config
    }

    /// The time of each call of a method, since the start.
    pub fn calls(&self, method: &str) -> Vec<Duration> {
        let script = self.script.lock().unwrap();
        script.calls.iter().filter(|(_, called)| called == method).map(|(when, _)| *when).collect()
    }

    pub fn methods(&self) -> Vec<String> {
        self.script.lock().unwrap().calls.iter().map(|(_, method)| method.clone()).collect()
    }

    /// The requests of one method, verbatim.
    pub fn bodies(&self, method: &str) -> Vec<String> {
        let script = self.script.lock().unwrap();
        script.bodies.iter().filter(|(called, _)| called == method).map(|(_, body)| body.clone()).collect()
    }

    pub fn waits_dropped(&self) -> usize {
        self.script.lock().unwrap().waits_dropped
    }

    pub async fn answer(
        &self,
        body: &str,
        cookie: Option<&str>,
    ) -> Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
        let method = body.split("<Body><").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or("").to_owned();
        let outcome = {
            let mut script = self.script.lock().unwrap();
            script.calls.push((self.began.elapsed(), method.clone()));
            script.bodies.push((method.clone(), body.to_owned()));
            let scripted = script.answers.get_mut(method.as_str()).and_then(VecDeque::pop_front);
            if let Some(outcome) = scripted {
                Err(outcome)
            } else if script.hangs {
                Err(Outcome::Hangs)
            } else if script.unreachable {
                Err(Outcome::Dropped)
            } else {
                script.immediate(&method, body, cookie)
            }
        };
        let outcome = match outcome {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => {
                let mut pending = Pending { script: &self.script, answered: false };
                let outcome = self.wait(body).await;
                pending.answered = !matches!(outcome, Outcome::Hangs);
                outcome
            }
            Err(outcome) => outcome,
        };
        match outcome {
            Outcome::Page { objects, truncated } => {
                let set = format!("<filterSet><filter type=\"PropertyFilter\">f</filter>{objects}</filterSet>");
                Ok(returned(&method, &format!("<version>1</version>{set}<truncated>{truncated}</truncated>")))
            }
            Outcome::Nothing => Ok(returned(&method, "")),
            Outcome::Fault(kind) => Ok(fault(kind)),
            Outcome::Reply(inside) => Ok(reply(&method, &inside)),
            Outcome::Dropped => Err("connection reset by peer".into()),
            Outcome::Hangs => std::future::pending().await,
        }
    }

    /// The next step once it is due, or nothing if the limit of the wait passes first.
    async fn wait(&self, body: &str) -> Outcome {
        let limit = Duration::from_secs(between(body, "<maxWaitSeconds>", "<").parse().unwrap());
        let collector = between(body, "<_this type=\"PropertyCollector\">", "<");
        let (slow, of_placements, follows) = {
            let script = self.script.lock().unwrap();
            let of_placements = script.placement_collectors.contains(collector);
            (script.slow, of_placements, of_placements && script.placements.is_none())
        };
        if follows {
            return self.new_hosts(collector, limit).await;
        }
        let due = self.script.lock().unwrap().steps(of_placements).front().map(|step| step.after);
        match due {
            Some(after) if after <= limit || slow => {
                tokio::time::sleep(after).await;
                let mut script = self.script.lock().unwrap();
                let outcome = script.steps(of_placements).pop_front().map_or(Outcome::Nothing, |step| step.outcome);
                if let Outcome::Page { objects, .. } = &outcome {
                    script.note_hosts(objects);
                    self.moved.notify_waiters();
                }
                outcome
            }
            _ => {
                tokio::time::sleep(limit).await;
                if let Some(step) = self.script.lock().unwrap().steps(of_placements).front_mut() {
                    step.after = step.after.saturating_sub(limit);
                }
                Outcome::Nothing
            }
        }
    }

    /// The hosts that this collector has not returned yet.
    async fn new_hosts(&self, collector: &str, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        loop {
            let moved = self.moved.notified();
            let news = self.script.lock().unwrap().hosts_to_return(collector);
            if !news.is_empty() {
                return page(&news);
            }
            if timeout_at(deadline, moved).await.is_err() {
                return Outcome::Nothing;
            }
        }
    }
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    text.split(from).nth(1).and_then(|rest| rest.split(to).next()).unwrap_or_default()
}

impl Script {
    fn steps(&mut self, of_placements: bool) -> &mut VecDeque<Step> {
        match &mut self.placements {
            Some(placements) if of_placements => placements,
            _ => &mut self.waits,
        }
    }

    fn note_hosts(&mut self, objects: &str) {
        for object in objects.split("<objectSet>").filter(|object| object.contains("type=\"VirtualMachine\"")) {
            let id = between(object, "type=\"VirtualMachine\">", "<").to_owned();
            let host = between(object, "<name>runtime.host</name><op>assign</op>", "</changeSet>");
            match between(object, "<kind>", "<") {
                "leave" => drop(self.hosts.remove(&id)),
                "modify" if host.is_empty() => (),
                _ => drop(self.hosts.insert(id, host.to_owned())),
            }
        }
    }

    fn hosts_to_return(&mut self, collector: &str) -> Vec<String> {
        let returned = self.returned.entry(collector.to_owned()).or_default();
        let gone = returned.keys().filter(|id| !self.hosts.contains_key(*id));
        let mut news: Vec<String> = gone.map(|id| object("leave", "VirtualMachine", id, &[])).collect();
        for (id, host) in self.hosts.iter().filter(|(id, host)| returned.get(*id) != Some(*host)) {
            let kind = if returned.contains_key(id) { "modify" } else { "enter" };
            let value: &[(&str, &str)] = if host.is_empty() { &[] } else { &[("runtime.host", host)] };
            news.push(object(kind, "VirtualMachine", id, value));
        }
        returned.clone_from(&self.hosts);
        news
    }

    /// The response of a call that does not wait; `None` for a wait.
    fn immediate(
        &mut self,
        method: &str,
        body: &str,
        cookie: Option<&str>,
    ) -> Result<Option<Response<Full<Bytes>>>, Outcome> {
        if method == "RetrieveServiceContent" {
            let api_type = self.api_type.unwrap_or("VirtualCenter");
            return Ok(Some(returned(
                method,
                &format!(
                    "<rootFolder type=\"Folder\">group-d1</rootFolder>\
                 <propertyCollector type=\"PropertyCollector\">propertyCollector</propertyCollector>\
                 <viewManager type=\"ViewManager\">ViewManager</viewManager>\
                 <about><fullName>Scripted vCenter</fullName><apiVersion>6.5</apiVersion><apiType>{api_type}</apiType>\
                 <instanceUuid>i-1</instanceUuid></about>\
                 <sessionManager type=\"SessionManager\">SessionManager</sessionManager>"
                ),
            )));
        }
        if method == "Login" {
            if let Some(outcome) = self.logins.pop_front() {
                return Err(outcome);
            }
            self.session += 1;
            self.session_valid = true;
            let mut answer = returned(method, "<key>k</key>");
            let cookie = format!("vmware_soap_session=\"{}\"; Path=/; HttpOnly", self.session);
            answer.headers_mut().insert(header::SET_COOKIE, cookie.parse().unwrap());
            return Ok(Some(answer));
        }
        let ours = format!("vmware_soap_session=\"{}\"", self.session);
        if !self.session_valid || cookie != Some(ours.as_str()) {
            return Err(Outcome::Fault("NotAuthenticated"));
        }
        let answer = match method {
            "WaitForUpdatesEx" => return Ok(None),
            "ReconfigureComputeResource_Task" => reply(method, "<returnval type=\"Task\">task-1</returnval>"),
            "CreateContainerView" => reply(method, "<returnval type=\"ContainerView\">v</returnval>"),
            "CreatePropertyCollector" => {
                self.collectors += 1;
                reply(method, &format!("<returnval type=\"PropertyCollector\">c{}</returnval>", self.collectors))
            }
            "CreateFilter" => {
                if body.contains("<pathSet>runtime.host</pathSet>") {
                    let collector = between(body, "<_this type=\"PropertyCollector\">", "<");
                    self.placement_collectors.insert(collector.to_owned());
                }
                reply(method, "<returnval type=\"PropertyFilter\">f</returnval>")
            }
            "RetrievePropertiesEx" if body.contains("<type>Task</type>") => returned(method, &self.tasks),
            "RetrievePropertiesEx" if body.contains("quickStats") && !body.contains("connectionState") => {
                returned(method, &self.loads)
            }
            "RetrievePropertiesEx" if self.session_ends_at_reading => return Err(Outcome::Fault("NotAuthenticated")),
            "RetrievePropertiesEx" => returned(method, &self.read_again),
            "Logout" => {
                self.session_valid = false;
                reply(method, "")
            }
            _ => reply(method, ""),
        };
        Ok(Some(answer))
    }
}

pub fn cookie<B>(request: &Request<B>) -> Option<String> {
    request.headers().get(header::COOKIE).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn returned(method: &str, inside: &str) -> Response<Full<Bytes>> {
    if inside.is_empty() { reply(method, "") } else { reply(method, &format!("<returnval>{inside}</returnval>")) }
}

fn reply(method: &str, inside: &str) -> Response<Full<Bytes>> {
    envelope(200, &format!("<{method}Response xmlns=\"urn:vim25\">{inside}</{method}Response>"))
}

fn fault(kind: &str) -> Response<Full<Bytes>> {
    let detail = match kind {
        "NoPermission" => "<object type=\"Folder\">group-d1</object><privilegeId>System.Read</privilegeId>",
        "ManagedObjectNotFound" => "<obj type=\"ClusterComputeResource\">domain-c1</obj>",
        _ => "",
    };
    envelope(
        500,
        &format!(
            "<s:Fault><faultcode>ServerFaultCode</faultcode><faultstring>scripted</faultstring>\
             <detail><{kind}Fault>{detail}</{kind}Fault></detail></s:Fault>"
        ),
    )
}

fn envelope(status: u16, inside: &str) -> Response<Full<Bytes>> {
    let text = format!(
        "<s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"><s:Body>{inside}</s:Body></s:Envelope>"
    );
    Response::builder().status(status).body(Full::new(Bytes::from(text))).unwrap()
}
