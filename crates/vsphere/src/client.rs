//! A session with one vCenter, and the methods called in it.
//!
//! Input: an [`Endpoint`], the [trust](crate::Trust) settings, [`Credentials`]. Output: typed responses.
//!
//! Invariants: every call has a time limit; the end of a session is always reported as
//! [`VsphereError::NotAuthenticated`], in whichever form the server sends it, and [`Client::login`] starts a new
//! session; [`Client::logout`] ends the session.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;
use percent_encoding::percent_decode_str;

use crate::ManagedObject;
use crate::error::VsphereError;
use crate::soap::{self, SoapAnswer};
use crate::transport::Transport;
use crate::xml::{Element, Writer};

/// The address of a vCenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    uri: Uri,
    host: String,
}

/// The credentials of a vCenter. Neither `Debug` nor any error shows the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("username", &self.username).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Parses the formats of GOVC_URL: `vc.example.org`, `vc.example.org:8989`,
    /// `https://user:password@vc.example.org/sdk`. Credentials in it are returned separately.
    pub fn parse(text: &str) -> Result<(Endpoint, Option<Credentials>), VsphereError> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
        // A password may contain a slash or another @; a host and the path of an API do not.
        let (credentials, place) = match rest.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, rest),
        };
        let (host, path) = match place.find('/') {
            Some(at) => (&place[..at], &place[at..]),
            None => (place, ""),
        };
        // Never echo a text that may contain a password: `user:password` without a host looks like `host:port`.
        let port = host.rsplit_once(':').map_or("", |(_, port)| port);
        let is_port = port.ends_with(']') || port.chars().all(|digit| digit.is_ascii_digit());
        let shown = if is_port { format!("{scheme}://{host}{path}") } else { format!("{scheme}://...") };
        let bad = |why: &str| VsphereError::BadUrl { url: shown.clone(), why: why.to_owned() };
        if scheme != "https" && scheme != "http" {
            return Err(bad("it does not begin with https://"));
        }
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        if !is_port {
            return Err(bad("its port is not a number"));
        }
        let path = if path.is_empty() || path == "/" { "/sdk" } else { path };
        let uri: Uri = format!("{scheme}://{host}{path}").parse().map_err(|_| bad("it is not a URL"))?;
        let credentials = credentials.map(|pair| {
            let (username, password) = pair.split_once(':').unwrap_or((pair, ""));
            Credentials { username: percent_decoded(username), password: percent_decoded(password) }
        });
        Ok((Endpoint { uri, host: host.to_owned() }, credentials))
    }

    /// The host as given, with a port if one was given.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether everything is sent in clear, including the password.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.uri.scheme_str() == Some("http")
    }

    /// Scheme, host and port, as given.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", if self.is_plain() { "http" } else { "https" }, self.host)
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> String {
        let port = if self.is_plain() { "80" } else { "443" };
        crate::config::with_port(&self.host, port)
    }
}

/// A `%` that does not start an escape stands for itself, because passwords are often pasted unescaped.
fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The server's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    pub full_name: String,
    pub api_version: String,
    /// Identifies the vCenter, independent of the address by which it is reached.
    pub instance_uuid: String,
}

/// The managers of the service, which give access to everything else.
#[derive(Clone, Debug)]
pub struct ServiceContent {
    pub root_folder: ManagedObject,
    pub property_collector: ManagedObject,
    pub view_manager: ManagedObject,
    pub session_manager: ManagedObject,
}

/// The time limit of an ordinary call.
const CALL_LIMIT: Duration = Duration::from_secs(60);

pub struct Client {
    transport: Transport,
    endpoint: Endpoint,
    credentials: Credentials,
    about: About,
    content: ServiceContent,
    cookie: Mutex<Option<HeaderValue>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("host", &self.endpoint.host).field("about", &self.about).finish_non_exhaustive()
    }
}

impl Client {
    /// Reads the service content and logs in.
    pub async fn connect(
        transport: Transport,
        endpoint: Endpoint,
        credentials: Credentials,
    ) -> Result<Client, VsphereError> {
        let instance = ManagedObject::new("ServiceInstance", "ServiceInstance");
        let wire = Wire { transport: &transport, endpoint: &endpoint, cookie: None, api_version: None };
        let answer = wire.call("RetrieveServiceContent", &instance, CALL_LIMIT, |_| (), Parts::none()).await?.0;
        let (about, content) = service_content(&answer, endpoint.host())?;
        let client = Client { transport, endpoint, credentials, about, content, cookie: Mutex::new(None) };
        client.login().await?;
        Ok(client)
    }

    #[must_use]
    pub fn about(&self) -> &About {
        &self.about
    }

    #[must_use]
    pub fn content(&self) -> &ServiceContent {
        &self.content
    }

    #[must_use]
    pub fn host(&self) -> &str {
        self.endpoint.host()
    }

    /// Starts a session, which replaces one that has ended.
    pub async fn login(&self) -> Result<(), VsphereError> {
        self.set_cookie(None);
        let credentials = &self.credentials;
        let wire = self.wire();
        let parameters = |body: &mut Writer| {
            body.text("userName", &credentials.username).text("password", &credentials.password);
        };
        let (_, cookie) =
            wire.call("Login", &self.content.session_manager, CALL_LIMIT, parameters, Parts::none()).await?;
        self.set_cookie(cookie);
        Ok(())
    }

    /// Ends the session: a vCenter has a limited number of them.
    pub async fn logout(&self) -> Result<(), VsphereError> {
        self.call("Logout", &self.content.session_manager.clone(), |_| ()).await?;
        self.set_cookie(None);
        Ok(())
    }

    /// Calls a method within the session. Returns its response element.
    pub async fn call(
        &self,
        method: &'static str,
        this: &ManagedObject,
        parameters: impl FnOnce(&mut Writer),
    ) -> Result<Element, VsphereError> {
        Ok(self.wire().call(method, this, CALL_LIMIT, parameters, Parts::none()).await?.0)
    }

    /// The same for a response of many parts, each of which is passed on as soon as it is read. `wait` is how long the
    /// server may take in addition.
    pub(crate) async fn call_in_parts(
        &self,
        wait: Duration,
        method: &'static str,
        this: &ManagedObject,
        parameters: impl FnOnce(&mut Writer),
        parts: Parts<'_, impl FnMut(Element)>,
    ) -> Result<Element, VsphereError> {
        Ok(self.wire().call(method, this, wait + CALL_LIMIT, parameters, parts).await?.0)
    }

    /// Calls a method that returns a reference, for example to a task.
    pub async fn call_for_object(
        &self,
        method: &'static str,
        this: &ManagedObject,
        parameters: impl FnOnce(&mut Writer),
    ) -> Result<ManagedObject, VsphereError> {
        let answer = self.call(method, this, parameters).await?;
        answer
            .child("returnval")
            .and_then(Element::reference)
            .ok_or_else(|| self.protocol(format!("{method} returned no object")))
    }

    pub(crate) fn protocol(&self, what: String) -> VsphereError {
        VsphereError::Protocol { host: self.endpoint.host.clone(), what }
    }

    fn wire(&self) -> Wire<'_> {
        let cookie = self.cookie.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Wire {
            transport: &self.transport,
            endpoint: &self.endpoint,
            cookie,
            api_version: Some(&self.about.api_version),
        }
    }

    fn set_cookie(&self, cookie: Option<HeaderValue>) {
        *self.cookie.lock().unwrap_or_else(PoisonError::into_inner) = cookie;
    }
}

/// The elements of a response that are taken one by one, and are not in the response.
pub(crate) struct Parts<'a, F> {
    pub(crate) name: Option<&'a str>,
    pub(crate) take: F,
}

impl Parts<'static, fn(Element)> {
    fn none() -> Parts<'static, fn(Element)> {
        Parts { name: None, take: |_| () }
    }
}

/// What one call needs, independent of the client's state.
struct Wire<'a> {
    transport: &'a Transport,
    endpoint: &'a Endpoint,
    cookie: Option<HeaderValue>,
    api_version: Option<&'a str>,
}

impl Wire<'_> {
    async fn call(
        self,
        method: &'static str,
        this: &ManagedObject,
        limit: Duration,
        parameters: impl FnOnce(&mut Writer),
        parts: Parts<'_, impl FnMut(Element)>,
    ) -> Result<(Element, Option<HeaderValue>), VsphereError> {
        let host = self.endpoint.host.clone();
        let protocol = |what: String| VsphereError::Protocol { host: host.clone(), what };
        let action = self.api_version.map_or_else(|| "urn:vim25".to_owned(), |version| format!("urn:vim25/{version}"));
        let mut request = Request::post(self.endpoint.uri.clone())
            .header(header::CONTENT_TYPE, "text/xml; charset=utf-8")
            .header("SOAPAction", action)
            .body(Full::new(Bytes::from(soap::envelope(method, this, parameters))))
            .map_err(|error| protocol(error.to_string()))?;
        if let Some(cookie) = &self.cookie {
            request.headers_mut().insert(header::COOKIE, cookie.clone());
        }
        let response = self.transport.send(&host, limit, request).await?;
        let cookie = session_cookie(&response);
        let status = response.status();
        // A fault has status 500 and an envelope. Other unsuccessful responses have no envelope.
        if !status.is_success() && status != StatusCode::INTERNAL_SERVER_ERROR {
            return Err(VsphereError::Http { host, status: status.as_u16() });
        }
        let text = std::str::from_utf8(response.body()).map_err(|error| protocol(error.to_string()))?;
        match soap::answer(text, parts.name, parts.take) {
            Ok(SoapAnswer::Returned(element)) => Ok((element, cookie)),
            Ok(SoapAnswer::Fault(fault)) => Err(VsphereError::from_fault(method, fault)),
            Err(_) if !status.is_success() => Err(VsphereError::Http { host, status: status.as_u16() }),
            Err(error) => Err(protocol(error.to_string())),
        }
    }
}

fn session_cookie(response: &http::Response<Bytes>) -> Option<HeaderValue> {
    response.headers().get_all(header::SET_COOKIE).iter().find_map(|value| {
        let pair = value.to_str().ok()?.split(';').next()?;
        pair.starts_with("vmware_soap_session=").then(|| HeaderValue::from_str(pair).ok()).flatten().map(
            |mut cookie| {
                cookie.set_sensitive(true);
                cookie
            },
        )
    })
}

fn service_content(answer: &Element, host: &str) -> Result<(About, ServiceContent), VsphereError> {
    let protocol = |what: &str| VsphereError::Protocol { host: host.to_owned(), what: what.to_owned() };
    let content = answer.child("returnval").ok_or_else(|| protocol("no service content"))?;
    let text = |name: &str| content.text_at(&format!("about.{name}")).unwrap_or_default().to_owned();
    let about =
        About { full_name: text("fullName"), api_version: text("apiVersion"), instance_uuid: text("instanceUuid") };
    // A single ESXi host uses the same protocol, but has neither clusters nor DRS.
    if text("apiType") != "VirtualCenter" {
        return Err(VsphereError::NotVcenter { product: about.full_name });
    }
    let manager = |name: &str| {
        content
            .child(name)
            .and_then(Element::reference)
            .ok_or_else(|| protocol(&format!("no {name} in the service content")))
    };
    let managers = ServiceContent {
        root_folder: manager("rootFolder")?,
        property_collector: manager("propertyCollector")?,
        view_manager: manager("viewManager")?,
        session_manager: manager("sessionManager")?,
    };
    Ok((about, managers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_as_in_govc() {
        for (text, uri, user) in [
            ("vc.example.org", "https://vc.example.org/sdk", None),
            ("vc.example.org:8989", "https://vc.example.org:8989/sdk", None),
            ("https://vc.example.org/", "https://vc.example.org/sdk", None),
            ("http://127.0.0.1:8989/sdk", "http://127.0.0.1:8989/sdk", None),
            ("https://me:p%40ss@vc/sdk", "https://vc/sdk", Some(("me", "p@ss"))),
            ("https://me:100%+5%+1%4@vc/sdk", "https://vc/sdk", Some(("me", "100%+5%+1%4"))),
            ("https://me:se/cr@t@vc/sdk", "https://vc/sdk", Some(("me", "se/cr@t"))),
            ("me:/@vc:8989", "https://vc:8989/sdk", Some(("me", "/"))),
            (
                "administrator%40vsphere.local:x@[::1]:443",
                "https://[::1]:443/sdk",
                Some(("administrator@vsphere.local", "x")),
            ),
        ] {
            let (endpoint, credentials) = Endpoint::parse(text).unwrap();
            assert_eq!(endpoint.uri.to_string(), uri, "{text}");
            let found = credentials.map(|found| (found.username, found.password));
            assert_eq!(found, user.map(|(name, password)| (name.to_owned(), password.to_owned())), "{text}");
        }
    }

    #[test]
    fn number_11_an_invalid_address_is_rejected_without_showing_its_password() {
        let without_host = ["https://me:secret", "me:secret", "https://me:top/secret"];
        let with_slash =
            ["https://me:a/secret@", "ftp://me:a/secret@vc", "https://me:secret/b@a b/", "https://me:x@secret@"];
        let simple = ["ftp://me:secret@vc", "https://me:secret@", "https://me:secret@a b/"];
        for text in simple.into_iter().chain(with_slash).chain(without_host) {
            let error = Endpoint::parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn credentials_do_not_show_the_password() {
        let credentials = Credentials { username: "me".to_owned(), password: "secret".to_owned() };
        let shown = format!("{credentials:?}");
        assert!(shown.contains("me") && !shown.contains("secret"), "{shown}");
    }
}
