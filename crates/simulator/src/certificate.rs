//! TLS certificate for the embedded vCenter. Each start creates a new certificate authority, so that clients can verify
//! TLS as in production.

use std::net::Ipv4Addr;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("using a certificate: {0}")]
    Use(#[from] rustls::Error),
}

/// TLS configuration of a loopback server, and the CA certificate that its clients trust.
#[derive(Clone, Debug)]
pub struct Loopback {
    pub server: Arc<rustls::ServerConfig>,
    pub authority_pem: String,
}

pub fn for_loopback() -> Result<Loopback, CertificateError> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "Bridger sandbox");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut server = CertificateParams::new(vec!["localhost".to_owned()])?;
    server.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
    server.distinguished_name.push(DnType::CommonName, "vcenter.sandbox");
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = server.signed_by(&key, &issuer)?;

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone(), issuer.der().clone()], key)?;
    Ok(Loopback { server: Arc::new(config), authority_pem: issuer.pem() })
}
