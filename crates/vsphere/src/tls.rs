//! Which certificates to trust: those of the system's authorities, those of a CA file, one certificate by its
//! thumbprint or, only if explicitly requested, all certificates.
//!
//! The thumbprint of a rejected certificate is stored, so that the error can show it and the option that would accept
//! it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

use crate::VsphereError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The authorities that this machine trusts.
    #[default]
    System,
    /// The authorities in these PEM files, and only those.
    CaFiles(Vec<PathBuf>),
    /// The one certificate with this thumbprint, regardless of its issuer and name.
    Thumbprint(Thumbprint),
    /// No check at all.
    Insecure,
}

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Thumbprint([u8; 32]);

impl Thumbprint {
    fn of(certificate: &CertificateDer<'_>) -> Thumbprint {
        Thumbprint(Sha256::digest(certificate.as_ref()).into())
    }
}

impl std::str::FromStr for Thumbprint {
    type Err = VsphereError;

    /// `AB:CD:...` or `abcd...`.
    fn from_str(text: &str) -> Result<Thumbprint, VsphereError> {
        let bad = || VsphereError::BadThumbprint(text.to_owned());
        let digits: Vec<char> = text.chars().filter(|character| *character != ':').collect();
        if digits.len() != 64 {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair: String = pair.iter().collect();
            *byte = u8::from_str_radix(&pair, 16).map_err(|_| bad())?;
        }
        Ok(Thumbprint(bytes))
    }
}

impl fmt::Display for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl fmt::Debug for Thumbprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The last certificate that was rejected, and why.
#[derive(Clone, Debug, Default)]
pub struct RefusedCertificate(Arc<Mutex<Option<(Thumbprint, String)>>>);

impl RefusedCertificate {
    pub fn take(&self) -> Option<(Thumbprint, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, certificate: &CertificateDer<'_>, why: &Error) {
        let why = match why {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => "unknown authority".to_owned(),
            Error::InvalidCertificate(error) => error.to_string(),
            other => other.to_string(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Thumbprint::of(certificate), why));
    }
}

/// The TLS settings for a trust, and the slot that records a rejected certificate.
pub fn client_config(trust: &Trust) -> Result<(ClientConfig, RefusedCertificate), VsphereError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let refusal = RefusedCertificate::default();
    let check = match trust {
        Trust::System => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            Check::Authorities(authorities(roots, &provider).ok())
        }
        Trust::CaFiles(files) => {
            let mut roots = RootCertStore::empty();
            for file in files {
                let failed = |why: String| VsphereError::CaFile { file: file.display().to_string(), why };
                let before = roots.len();
                let certificates = CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                    roots.add(certificate).map_err(|error| failed(error.to_string()))?;
                }
                if roots.len() == before {
                    return Err(failed("it contains no certificate".to_owned()));
                }
            }
            let failed = |why: String| VsphereError::CaFile { file: "the CA files".to_owned(), why };
            Check::Authorities(Some(authorities(roots, &provider).map_err(failed)?))
        }
        Trust::Thumbprint(thumbprint) => Check::Thumbprint(*thumbprint),
        Trust::Insecure => Check::Nothing,
    };
    let verifier = Arc::new(Verifier { check, refusal: refusal.clone(), provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| VsphereError::CaFile { file: String::new(), why: error.to_string() })?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok((config, refusal))
}

fn authorities(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| error.to_string())
}

#[derive(Debug)]
enum Check {
    /// `None`: this machine has no authorities, so no certificate is trusted.
    Authorities(Option<Arc<WebPkiServerVerifier>>),
    Thumbprint(Thumbprint),
    Nothing,
}

#[derive(Debug)]
struct Verifier {
    check: Check,
    refusal: RefusedCertificate,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = match &self.check {
            Check::Authorities(Some(authorities)) => {
                authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
            }
            Check::Authorities(None) => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
            Check::Thumbprint(expected) if *expected == Thumbprint::of(end_entity) => {
                Ok(ServerCertVerified::assertion())
            }
            Check::Thumbprint(expected) => Err(Error::General(format!("expected the thumbprint {expected}"))),
            Check::Nothing => Ok(ServerCertVerified::assertion()),
        };
        if let Err(error) = &verdict {
            self.refusal.note(end_entity, error);
        }
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thumbprints_are_parsed_with_and_without_colons_and_shown_with_colons() {
        let plain = "ab".repeat(32);
        let thumbprint: Thumbprint = plain.parse().unwrap();
        let shown = thumbprint.to_string();
        assert!(shown.starts_with("AB:AB:"));
        assert_eq!(shown.parse::<Thumbprint>().unwrap(), thumbprint);
        for bad in ["", "ab", &"zz".repeat(32), &"ab".repeat(33)] {
            assert!(bad.parse::<Thumbprint>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_missing_or_empty_ca_file_is_named_in_the_error() {
        for file in ["/nonexistent/ca.pem", "/dev/null"] {
            let error = client_config(&Trust::CaFiles(vec![file.into()])).unwrap_err();
            assert!(error.to_string().contains(file), "{error}");
        }
    }
}
