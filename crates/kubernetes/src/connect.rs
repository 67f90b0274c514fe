//! Creates a client of the Kubernetes API from the available credentials.
//!
//! In: kubeconfig files (`$KUBECONFIG` or a path) or the service account of Bridger's pod. Out: a client and the
//! server's address, for messages. No request is sent yet; [`mod@crate::preflight`] sends the first one.
//!
//! Every error is one line that names the file, the context or the server. For a kubeconfig that cannot be parsed, the
//! error has the position and never the text, which may be a token.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::bounded::{BoundExceeded, BoundedClient};
use crate::failure::{causes, describe, one_line};

/// A server that accepts no connection within this time is unreachable.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Mounted by the kubelet.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesCredentials {
    /// Several files are merged as in kubectl: the first file that sets a value wins.
    Kubeconfig { paths: Vec<PathBuf>, context: Option<String> },
    /// The service account of Bridger's pod.
    ServiceAccount,
}

impl KubernetesCredentials {
    /// The path given, else the value of `$KUBECONFIG`, else the service account.
    #[must_use]
    pub fn choose(
        path: Option<&Path>,
        kubeconfig_variable: Option<&OsStr>,
        context: Option<&str>,
    ) -> KubernetesCredentials {
        let paths: Vec<PathBuf> = match (path, kubeconfig_variable) {
            (Some(path), _) => vec![path.to_owned()],
            (None, Some(list)) => std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect(),
            (None, None) => Vec::new(),
        };
        if paths.is_empty() {
            KubernetesCredentials::ServiceAccount
        } else {
            KubernetesCredentials::Kubeconfig { paths, context: context.map(str::to_owned) }
        }
    }
}

impl KubernetesCredentials {
    /// The namespace of Bridger's pod; `None` outside of a pod.
    #[must_use]
    pub fn own_namespace(&self) -> Option<String> {
        match self {
            KubernetesCredentials::Kubeconfig { .. } => None,
            KubernetesCredentials::ServiceAccount => {
                let text = std::fs::read_to_string(NAMESPACE_FILE).ok()?;
                Some(text.trim().to_owned()).filter(|namespace| !namespace.is_empty())
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    #[error("no Kubernetes credentials: KUBECONFIG is not set, and this is not a pod with a service account")]
    NoCredentials,
    #[error("the service account can't be used: {reason}")]
    ServiceAccountInvalid { reason: String },
    #[error("kubeconfig {path} does not exist")]
    KubeconfigMissing { path: String },
    #[error("kubeconfig {path} can't be read: {reason}")]
    KubeconfigUnreadable { path: String, reason: String },
    #[error("kubeconfig {path} can't be used: {reason}")]
    KubeconfigInvalid { path: String, reason: String },
    #[error("kubeconfig {path} sets no current-context; its contexts: {}", names(.known))]
    ContextUnset { path: String, known: Vec<String> },
    #[error("kubeconfig {path} has no context \"{context}\"; its contexts: {}", names(.known))]
    ContextUnknown { path: String, context: String, known: Vec<String> },
    #[error("kubeconfig {path} has no cluster \"{cluster}\", which its context names")]
    ClusterUnknown { path: String, cluster: String },
    #[error("the Kubernetes API at {server} can't be reached: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the certificate of the Kubernetes API at {server} is not trusted: {reason}")]
    Untrusted { server: String, reason: String },
    #[error("the Kubernetes API at {server} does not accept these credentials (401 Unauthorized)")]
    Unauthorized { server: String },
    #[error(
        "the credentials for the Kubernetes API at {server} could not be obtained (token file or credential plugin)"
    )]
    CredentialsUnavailable { server: String },
    #[error("the Kubernetes API at {server} does not allow \"{verb}\" on {resource}: RBAC has to grant it")]
    Denied { server: String, verb: String, resource: String },
    #[error("the Kubernetes API at {server} gave an unexpected answer: {reason}")]
    Unexpected { server: String, reason: String },
}

fn names(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

/// A client, and the address of its server.
#[derive(Clone)]
pub struct Connection {
    pub client: BoundedClient,
    /// For messages: scheme, host and port.
    pub server: String,
}

/// Creates a client. Must be called on the runtime that uses it.
pub async fn connect(credentials: &KubernetesCredentials) -> Result<Connection, ConnectError> {
    let mut config = match credentials {
        KubernetesCredentials::Kubeconfig { paths, context } => from_kubeconfig(paths, context.as_deref()).await?,
        KubernetesCredentials::ServiceAccount => from_service_account()?,
    };
    config.connect_timeout = Some(CONNECT_LIMIT);
    // The engine decides what to retry, and when.
    config.default_retry = false;
    let server = address(&config.cluster_url);
    // Several TLS providers may be linked; an error means that one is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = BoundedClient::connect(config).map_err(|error| match credentials {
        KubernetesCredentials::Kubeconfig { paths, .. } => {
            ConnectError::KubeconfigInvalid { path: shown(paths), reason: describe(&error) }
        }
        KubernetesCredentials::ServiceAccount => ConnectError::ServiceAccountInvalid { reason: describe(&error) },
    })?;
    Ok(Connection { client, server })
}

fn from_service_account() -> Result<Config, ConnectError> {
    use kube::config::InClusterError;
    Config::incluster().map_err(|error| match error {
        InClusterError::ReadEnvironmentVariable(_) => ConnectError::NoCredentials,
        other => ConnectError::ServiceAccountInvalid { reason: one_line(&other.to_string()) },
    })
}

async fn from_kubeconfig(paths: &[PathBuf], context: Option<&str>) -> Result<Config, ConnectError> {
    let path = shown(paths);
    let invalid = |error: KubeconfigError| invalid_kubeconfig(&path, error);
    let mut merged: Option<Kubeconfig> = None;
    for file in paths {
        let next = match Kubeconfig::read_from(file) {
            Ok(next) => next,
            // As in kubectl, some of several files may be missing.
            Err(KubeconfigError::ReadConfig(error, _)) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(invalid_kubeconfig(&file.display().to_string(), error)),
        };
        merged = Some(match merged {
            Some(earlier) => earlier.merge(next).map_err(invalid)?,
            None => next,
        });
    }
    let Some(kubeconfig) = merged else { return Err(ConnectError::KubeconfigMissing { path }) };
    let known: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| match error {
        KubeconfigError::CurrentContextNotSet => ConnectError::ContextUnset { path: path.clone(), known },
        KubeconfigError::LoadContext(context) => ConnectError::ContextUnknown { path: path.clone(), context, known },
        KubeconfigError::LoadClusterOfContext(cluster) => ConnectError::ClusterUnknown { path: path.clone(), cluster },
        other => invalid_kubeconfig(&path, other),
    })
}

fn invalid_kubeconfig(path: &str, error: KubeconfigError) -> ConnectError {
    let path = path.to_owned();
    match error {
        KubeconfigError::ReadConfig(error, _) => {
            ConnectError::KubeconfigUnreadable { path, reason: one_line(&error.to_string()) }
        }
        KubeconfigError::Parse(error) => {
            let location = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
            ConnectError::KubeconfigInvalid {
                path,
                reason: format!("it is not a valid kubeconfig in YAML{}", location.unwrap_or_default()),
            }
        }
        other => ConnectError::KubeconfigInvalid { path, reason: one_line(&other.to_string()) },
    }
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Removes a user name and password from the address.
fn address(url: &http::Uri) -> String {
    let scheme = url.scheme_str().unwrap_or("https");
    let host = url.host().unwrap_or_default();
    url.port().map_or_else(|| format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}"))
}

/// Classifies an error of the first requests for the user who starts Bridger.
pub(crate) fn classify(server: &str, error: &kube::Error) -> ConnectError {
    let server = server.to_owned();
    match error {
        kube::Error::Api(status) if status.code == 401 => ConnectError::Unauthorized { server },
        kube::Error::Api(_) | kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
            ConnectError::Unexpected { server, reason: describe(error) }
        }
        kube::Error::Auth(_) => ConnectError::CredentialsUnavailable { server },
        other => {
            let untrusted = causes(other).find_map(|cause| match cause.downcast_ref::<rustls::Error>() {
                Some(rustls::Error::InvalidCertificate(reason)) => Some(reason.to_string()),
                _ => None,
            });
            if let Some(reason) = untrusted {
                return ConnectError::Untrusted { server, reason: one_line(&reason) };
            }
            let too_long = causes(other).any(|cause| matches!(cause.downcast_ref(), Some(BoundExceeded::Size(_))));
            let reason = describe(error);
            if too_long {
                ConnectError::Unexpected { server, reason }
            } else {
                ConnectError::Unreachable { server, reason }
            }
        }
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
