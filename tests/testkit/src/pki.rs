//! Certificates for a control plane: a CA, a server certificate, and one certificate per client, as in a real cluster.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn create(name: &str) -> Result<Authority> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        Ok(Authority { issuer: CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)? })
    }

    #[must_use]
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// A server certificate for loopback.
    pub fn server(&self) -> Result<Identity> {
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()])?;
        parameters.subject_alt_names.push(SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into()));
        parameters.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&parameters)
    }

    /// A client certificate. Kubernetes reads the user from the common name and the groups from the organisations.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, user);
        // rcgen's distinguished name has one value per type, and tests need only one group.
        if let Some(group) = groups.first() {
            parameters.distinguished_name.push(DnType::OrganizationName, *group);
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&parameters)
    }

    fn sign(&self, parameters: &CertificateParams) -> Result<Identity> {
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A key pair for service account tokens, as PEM: the private key signs, the public key verifies.
pub fn token_keys() -> Result<(String, String)> {
    let pair = KeyPair::generate()?;
    Ok((pair.serialize_pem(), pair.public_key_pem()))
}
