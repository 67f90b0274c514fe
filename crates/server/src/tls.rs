//! TLS for the server: a certificate and its key from files, reloaded when they change, and optionally an authority for
//! client certificates.
//!
//! In: paths. Out: the configuration for the next handshake. Invariants: a new pair takes effect only if it is complete
//! and the key matches the certificate; otherwise an error is logged, and the old pair stays. No key is in an error, a
//! log line or debug output.
//!
//! A client without a certificate may still connect, because the kubelet's probes have none. Each route decides what
//! such a client may request.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How often the files are checked.
pub const CHECK_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM: the server's certificate, then the chain to its authority.
    pub certificate: PathBuf,
    /// PEM.
    pub key: PathBuf,
    /// PEM: the authorities of client certificates.
    pub client_ca: Option<PathBuf>,
    /// The common names that a client certificate may have. An authority often signs for more than one client, so its
    /// signature alone does not say who may bind pods.
    pub client_names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{path} can't be read: {error}", path = .path.display())]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{path} contains no {what} in PEM form", path = .path.display())]
    Missing { path: PathBuf, what: &'static str },
    #[error("the certificate in {path} can't be used: {error}", path = .path.display())]
    Unusable { path: PathBuf, error: String },
}

/// The contents of the files, compared to detect changes. (The modification time does not help: a mounted Secret is
/// replaced as a whole, and two changes may have the same time.)
#[derive(PartialEq, Eq)]
struct Material {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

pub struct Tls {
    files: TlsFiles,
    state: RwLock<(Material, Arc<ServerConfig>)>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files for the first time.
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let material = read(&files)?;
        let config = Arc::new(configure(&files, &material)?);
        Ok(Tls { files, state: RwLock::new((material, config)) })
    }

    /// The configuration for the next handshake.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    #[must_use]
    pub fn requests_client_certificates(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Whether the subject of this client certificate, which is verified, has an allowed name.
    #[must_use]
    pub fn allows(&self, certificate: &CertificateDer<'_>) -> bool {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
        let mut names = certificate.subject().iter_common_name().map(|name| name.as_str());
        // More than one name is ambiguous: clients and servers differ on which one counts.
        let (Some(Ok(name)), None) = (names.next(), names.next()) else { return false };
        self.files.client_names.iter().any(|allowed| allowed == name)
    }

    /// Reads the files again; returns whether they changed. An error changes nothing.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let material = read(&self.files)?;
        if self.state.read().unwrap_or_else(PoisonError::into_inner).0 == material {
            return Ok(false);
        }
        let config = Arc::new(configure(&self.files, &material)?);
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = (material, config);
        Ok(true)
    }

    /// Checks the files forever and reloads them when they change.
    pub async fn follow(self: Arc<Self>) {
        let mut logged = None;
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            match self.reload() {
                Ok(changed) => {
                    if changed {
                        tracing::info!("reloaded the TLS certificate");
                    }
                    logged = None;
                }
                Err(error) => {
                    let text = error.to_string();
                    if logged.as_ref() != Some(&text) {
                        tracing::warn!("{text}; the certificate in use stays");
                        logged = Some(text);
                    }
                }
            }
        }
    }
}

fn read(files: &TlsFiles) -> Result<Material, TlsError> {
    let bytes = |path: &Path| std::fs::read(path).map_err(|error| TlsError::Read { path: path.to_owned(), error });
    Ok(Material {
        certificate: bytes(&files.certificate)?,
        key: bytes(&files.key)?,
        client_ca: files.client_ca.as_deref().map(bytes).transpose()?,
    })
}

fn configure(files: &TlsFiles, material: &Material) -> Result<ServerConfig, TlsError> {
    let unusable =
        |path: &Path, error: &dyn fmt::Display| TlsError::Unusable { path: path.to_owned(), error: error.to_string() };
    let chain = certificates(&files.certificate, &material.certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&material.key)
        .map_err(|_| TlsError::Missing { path: files.key.clone(), what: "private key" })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&files.certificate, &error))?;
    let builder = match (&files.client_ca, &material.client_ca) {
        (Some(path), Some(bytes)) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path, bytes)? {
                roots.add(authority).map_err(|error| unusable(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| unusable(path, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(|error| unusable(&files.certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn certificates(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let missing = || TlsError::Missing { path: path.to_owned(), what: "certificate" };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(bytes).collect::<Result<_, _>>().map_err(|_| missing())?;
    if chain.is_empty() { Err(missing()) } else { Ok(chain) }
}
