//! A vCenter that answers from a script, in the process and on whatever clock tokio has.
//!
//! Sessions, views and collectors are real enough to be checked: a call without a valid session is NotAuthenticated. What a
//! wait answers comes from a queue; when that is empty, waits last as long as they may and bring nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;
use vsphere::transport::Transport;
use vsphere::{Credentials, Endpoint, Trust, VcenterConfig};

pub const PASSWORD: &str = "never-to-be-shown";

/// What a wait, or any other call, comes to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// An answer without anything in it: the wait's limit has come.
    Nothing,
    /// `objectSet` elements; truncated when more pages follow.
    Page { objects: String, truncated: bool },
    /// A fault of this type.
    Fault(&'static str),
    /// The connection breaks.
    Dropped,
    /// No answer ever comes.
    Hangs,
}

#[derive(Clone, Debug)]
pub struct Step {
    /// How long after it was first asked for.
    pub after: Duration,
    pub outcome: Outcome,
}

#[derive(Default)]
pub struct Script {
    pub waits: VecDeque<Step>,
    /// What becomes of the next logins; then they succeed.
    pub logins: VecDeque<Outcome>,
    /// `objects` elements that reading properties of hosts and clusters finds.
    pub read_again: String,
    /// The same for tasks.
    pub tasks: String,
    pub session_ends_at_reading: bool,
    /// Every connection breaks.
    pub unreachable: bool,
    /// No call is answered any more.
    pub hangs: bool,
    /// Waits take as long as their step says, whatever limit they were given.
    pub slow: bool,
    pub api_type: Option<&'static str>,
    session: u32,
    session_valid: bool,
    calls: Vec<(Duration, String)>,
}

#[derive(Clone)]
pub struct Vcenter {
    pub script: Arc<Mutex<Script>>,
    began: Instant,
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

/// An `objects` of a reading.
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
        Vcenter { script: Arc::new(Mutex::new(script)), began: Instant::now() }
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

    /// When each call of a method came, since the start.
    pub fn calls(&self, method: &str) -> Vec<Duration> {
        let script = self.script.lock().unwrap();
        script.calls.iter().filter(|(_, called)| called == method).map(|(when, _)| *when).collect()
    }

    pub fn methods(&self) -> Vec<String> {
        self.script.lock().unwrap().calls.iter().map(|(_, method)| method.clone()).collect()
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
            if script.hangs {
                Err(Outcome::Hangs)
            } else if script.unreachable {
                Err(Outcome::Dropped)
            } else {
                script.immediate(&method, body, cookie)
            }
        };
        let outcome = match outcome {
            Ok(Some(answer)) => return Ok(answer),
            Ok(None) => self.wait(body).await,
            Err(outcome) => outcome,
        };
        match outcome {
            Outcome::Page { objects, truncated } => {
                let set = format!("<filterSet><filter type=\"PropertyFilter\">f</filter>{objects}</filterSet>");
                Ok(returned(&method, &format!("<version>1</version>{set}<truncated>{truncated}</truncated>")))
            }
            Outcome::Nothing => Ok(returned(&method, "")),
            Outcome::Fault(kind) => Ok(fault(kind)),
            Outcome::Dropped => Err("connection reset by peer".into()),
            Outcome::Hangs => std::future::pending().await,
        }
    }

    /// The next step once its time has come; nothing when the wait's own limit comes first.
    async fn wait(&self, body: &str) -> Outcome {
        let limit = body.split("<maxWaitSeconds>").nth(1).and_then(|rest| rest.split('<').next()).unwrap();
        let limit = Duration::from_secs(limit.parse().unwrap());
        let slow = self.script.lock().unwrap().slow;
        let due = self.script.lock().unwrap().waits.front().map(|step| step.after);
        match due {
            Some(after) if after <= limit || slow => {
                tokio::time::sleep(after).await;
                self.script.lock().unwrap().waits.pop_front().map_or(Outcome::Nothing, |step| step.outcome)
            }
            _ => {
                tokio::time::sleep(limit).await;
                if let Some(step) = self.script.lock().unwrap().waits.front_mut() {
                    step.after = step.after.saturating_sub(limit);
                }
                Outcome::Nothing
            }
        }
    }
}

impl Script {
    /// What is answered at once; `None` for a wait.
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
            "CreateContainerView" => reply(method, "<returnval type=\"ContainerView\">v</returnval>"),
            "CreatePropertyCollector" => reply(method, "<returnval type=\"PropertyCollector\">c</returnval>"),
            "CreateFilter" => reply(method, "<returnval type=\"PropertyFilter\">f</returnval>"),
            "RetrievePropertiesEx" if body.contains("<type>Task</type>") => returned(method, &self.tasks),
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
