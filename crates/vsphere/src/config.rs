//! How to reach one vCenter: its address, credentials, trust and timing.
//!
//! Input: [`Settings`] (flags, a configuration file) and the GOVC_* variables, looked up by a function. Output: a
//! [`VcenterConfig`], or one line that says what to set.
//!
//! Invariants: a password is never shown; nothing is insecure unless explicitly requested; settings override variables,
//! and variables override the credentials in the URL. Files are read at each login, so that a rotated Secret takes
//! effect.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, Credentials, Endpoint};
use crate::error::VsphereError;
use crate::inventory::VmScope;
use crate::login::LoginGate;
use crate::tls::{Thumbprint, Trust};
use crate::transport::Transport;

/// No password is longer; a longer file is the wrong file.
const CREDENTIAL_BYTES_MAX: u64 = 64 << 10;
const KNOWN_HOSTS_BYTES_MAX: u64 = 4 << 20;
const SHA1_DIGITS: usize = 40;

/// The values of flags and configuration file. Each overrides the environment.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Must not contain a password, because other users could read it in the list of processes.
    pub url: Option<String>,
    /// Files of a mounted Secret.
    pub username_file: Option<PathBuf>,
    pub password_file: Option<PathBuf>,
    /// The SHA-256 thumbprint of the one certificate to trust.
    pub thumbprint: Option<String>,
    pub ca_files: Vec<PathBuf>,
    pub insecure: bool,
    /// Which VMs may be nodes.
    pub scope: VmScope,
}

/// Everything needed to follow one vCenter.
#[derive(Clone, Debug)]
pub struct VcenterConfig {
    pub endpoint: Endpoint,
    pub credentials: CredentialSource,
    pub trust: Trust,
    pub timing: Timing,
    /// Replaces the network: the embedded vCenter or a service of a test.
    pub transport: Option<Transport>,
    /// Which VMs may be nodes.
    pub scope: VmScope,
    /// Whether datastores are watched too. Only a scheduler needs them.
    pub with_datastores: bool,
    /// Shared by all copies: a refused password counts for every session of the process.
    logins: Arc<LoginGate>,
}

/// Intervals for watching a vCenter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The longest single wait for changes. Waiting keeps the session alive.
    pub wait_max: Duration,
    /// How often the state of hosts and clusters is read again, for servers that do not report each change. The load of
    /// hosts, which is not watched, is read at the same time; and tags as often.
    pub read_again_every: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing { wait_max: Duration::from_secs(30), read_again_every: Duration::from_secs(60) }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum VcenterConfigError {
    #[error("no vCenter is given: set GOVC_URL or --url")]
    NoUrl,
    #[error("no user name for {host}: set GOVC_USERNAME or give a file that contains it")]
    NoUsername { host: String },
    #[error("no password for {host}: set GOVC_PASSWORD or give a file that contains it")]
    NoPassword { host: String },
    #[error(
        "the URL of {host} holds a password, which other users could read: set GOVC_PASSWORD or give a password file"
    )]
    PasswordInUrl { host: String },
    #[error(
        "the URL of {host} begins with http://, so the password would be sent in clear: use https://, or --insecure"
    )]
    PlainHttp { host: String },
    #[error("GOVC_INSECURE={0:?} is neither true nor false")]
    BadInsecure(String),
    #[error("GOVC_TLS_KNOWN_HOSTS: {file} could not be read: {why}")]
    KnownHosts { file: String, why: String },
    #[error(
        "GOVC_TLS_KNOWN_HOSTS: {file} has a SHA-1 thumbprint for {host}, which is no longer safe: replace it with the SHA-256 thumbprint (govc about.cert shows it)"
    )]
    Sha1Thumbprint { file: String, host: String },
    #[error(transparent)]
    Vsphere(#[from] VsphereError),
}

impl VcenterConfig {
    #[must_use]
    pub fn new(endpoint: Endpoint, credentials: CredentialSource, trust: Trust) -> VcenterConfig {
        VcenterConfig {
            endpoint,
            credentials,
            trust,
            timing: Timing::default(),
            transport: None,
            scope: VmScope::default(),
            with_datastores: false,
            logins: Arc::default(),
        }
    }

    /// Combines settings and variables. `lookup` returns the value of a variable.
    pub fn from_settings(
        settings: &Settings,
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<VcenterConfig, VcenterConfigError> {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let (endpoint, in_url) = match (&settings.url, variable("GOVC_URL")) {
            (Some(url), _) => {
                let (endpoint, in_url) = Endpoint::parse(url)?;
                if in_url.as_ref().is_some_and(|found| !found.password.is_empty()) {
                    return Err(VcenterConfigError::PasswordInUrl { host: endpoint.host().to_owned() });
                }
                (endpoint, in_url)
            }
            (None, Some(url)) => Endpoint::parse(&url)?,
            (None, None) => return Err(VcenterConfigError::NoUrl),
        };
        let host = || endpoint.host().to_owned();
        let (username_in_url, password_in_url) = in_url.map(|found| (found.username, found.password)).unzip();
        let username = text_source(settings.username_file.as_ref(), variable("GOVC_USERNAME"), username_in_url)
            .ok_or_else(|| VcenterConfigError::NoUsername { host: host() })?;
        let password = text_source(settings.password_file.as_ref(), variable("GOVC_PASSWORD"), password_in_url)
            .ok_or_else(|| VcenterConfigError::NoPassword { host: host() })?;
        let credentials = CredentialSource { username, password };
        // Report a missing file at the start, not at the first login.
        credentials.read()?;
        let trust = trust(settings, variable, &endpoint)?;
        if endpoint.is_plain() && trust != Trust::Insecure {
            return Err(VcenterConfigError::PlainHttp { host: host() });
        }
        Ok(VcenterConfig { scope: settings.scope.clone(), ..VcenterConfig::new(endpoint, credentials, trust) })
    }

    /// What a listener on the network could do; `None` if the server is verified.
    #[must_use]
    pub fn insecurity(&self) -> Option<&'static str> {
        match (&self.trust, self.endpoint.is_plain()) {
            _ if self.transport.is_some() => None,
            (_, true) => Some("plain HTTP: the password is sent in clear"),
            (Trust::Insecure, false) => Some("its certificate is not verified"),
            _ => None,
        }
    }

    /// Logs in.
    pub async fn connect(&self) -> Result<Client, VsphereError> {
        let transport = self.transport()?;
        let connect =
            async |credentials| Box::pin(Client::connect(transport, self.endpoint.clone(), credentials)).await;
        self.log_in(connect).await
    }

    pub(crate) fn transport(&self) -> Result<Transport, VsphereError> {
        match &self.transport {
            Some(transport) => Ok(transport.clone()),
            None => Transport::network(&self.trust),
        }
    }

    /// Passes the credentials to a login, unless they were refused a short time ago.
    pub(crate) async fn log_in<T>(
        &self,
        login: impl AsyncFnOnce(Credentials) -> Result<T, VsphereError>,
    ) -> Result<T, VsphereError> {
        self.logins.pass(self.endpoint.host(), self.credentials.read()?, login).await
    }
}

/// The sources of user name and password. A value from a file is kept only during a login.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialSource {
    pub username: TextSource,
    pub password: TextSource,
}

#[derive(Clone, PartialEq, Eq)]
pub enum TextSource {
    Given(String),
    /// One newline at its end is ignored.
    File(PathBuf),
}

impl CredentialSource {
    pub fn read(&self) -> Result<Credentials, VsphereError> {
        Ok(Credentials { username: self.username.read("user name")?, password: self.password.read("password")? })
    }
}

impl From<Credentials> for CredentialSource {
    fn from(credentials: Credentials) -> CredentialSource {
        CredentialSource {
            username: TextSource::Given(credentials.username),
            password: TextSource::Given(credentials.password),
        }
    }
}

impl fmt::Debug for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialSource").field("password", &self.password).finish_non_exhaustive()
    }
}

impl fmt::Debug for TextSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextSource::Given(_) => f.write_str("given"),
            TextSource::File(file) => write!(f, "file {}", file.display()),
        }
    }
}

impl TextSource {
    fn read(&self, what: &'static str) -> Result<String, VsphereError> {
        let file = match self {
            TextSource::Given(text) => return Ok(text.clone()),
            TextSource::File(file) => file,
        };
        let failed = |why: String| VsphereError::CredentialFile { what, file: file.display().to_string(), why };
        let text = read_bounded(file, CREDENTIAL_BYTES_MAX).map_err(failed)?;
        let text = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
        if text.is_empty() { Err(failed("it is empty".to_owned())) } else { Ok(text.to_owned()) }
    }
}

fn read_bounded(file: &Path, bytes_max: u64) -> Result<String, String> {
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| error.to_string())?;
    // The error texts never quote the content.
    opened.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max { Err(format!("it is larger than {bytes_max} bytes")) } else { Ok(text) }
}

fn text_source(file: Option<&PathBuf>, variable: Option<String>, in_url: Option<String>) -> Option<TextSource> {
    let in_url = in_url.filter(|text| !text.is_empty());
    file.cloned().map(TextSource::File).or_else(|| variable.or(in_url).map(TextSource::Given))
}

fn trust(
    settings: &Settings,
    variable: impl Fn(&str) -> Option<String>,
    endpoint: &Endpoint,
) -> Result<Trust, VcenterConfigError> {
    if let Some(thumbprint) = &settings.thumbprint {
        return Ok(Trust::Thumbprint(thumbprint.parse()?));
    }
    if !settings.ca_files.is_empty() {
        return Ok(Trust::CaFiles(settings.ca_files.clone()));
    }
    if settings.insecure || insecure(variable("GOVC_INSECURE").as_deref())? {
        return Ok(Trust::Insecure);
    }
    for file in paths(variable("GOVC_TLS_KNOWN_HOSTS").as_deref()) {
        if let Some(thumbprint) = known_host(&file, &endpoint.address())? {
            return Ok(Trust::Thumbprint(thumbprint));
        }
    }
    let ca_files = paths(variable("GOVC_TLS_CA_CERTS").as_deref());
    Ok(if ca_files.is_empty() { Trust::System } else { Trust::CaFiles(ca_files) })
}

/// Accepts the same booleans as Go, and therefore as govc.
fn insecure(value: Option<&str>) -> Result<bool, VcenterConfigError> {
    match value {
        None | Some("0" | "f" | "F" | "FALSE" | "false" | "False") => Ok(false),
        Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Ok(true),
        Some(other) => Err(VcenterConfigError::BadInsecure(other.to_owned())),
    }
}

/// A list in the format of PATH.
fn paths(value: Option<&str>) -> Vec<PathBuf> {
    value.into_iter().flat_map(std::env::split_paths).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The thumbprint of an address in a file of `host:port thumbprint` lines. The port is optional. As in govc, the last
/// line for a host counts, and a missing file is like an empty one.
fn known_host(file: &Path, address: &str) -> Result<Option<Thumbprint>, VcenterConfigError> {
    if !file.exists() {
        return Ok(None);
    }
    let shown = || file.display().to_string();
    let text = read_bounded(file, KNOWN_HOSTS_BYTES_MAX)
        .map_err(|why| VcenterConfigError::KnownHosts { file: shown(), why })?;
    let found = text.lines().rev().find_map(|line| {
        let (host, thumbprint) = line.trim().split_once(char::is_whitespace)?;
        with_port(host, "443").eq_ignore_ascii_case(address).then(|| thumbprint.trim())
    });
    let Some(found) = found else { return Ok(None) };
    if found.chars().filter(char::is_ascii_hexdigit).count() == SHA1_DIGITS {
        return Err(VcenterConfigError::Sha1Thumbprint { file: shown(), host: address.to_owned() });
    }
    Ok(Some(found.parse()?))
}

/// `host` with a port: its own, or the default one. The colons of a bracketed IPv6 address do not start a port.
pub(crate) fn with_port(host: &str, default: &str) -> String {
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    if after_brackets.contains(':') { host.to_owned() } else { format!("{host}:{default}") }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
