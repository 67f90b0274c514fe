//! Client certificates of the extender, and the files with the server's own.

use std::path::PathBuf;

use hostile::{Memory, PeakAlloc, Target, alone, attack};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use server::{Tls, TlsFiles};
use testkit::pki::Authority;

#[global_allocator]
static MEMORY: PeakAlloc = hostile::MEMORY;

#[test]
fn number_10_no_certificate_is_dangerous() {
    let alone = alone();
    let authority = Authority::create("authority").expect("an authority");
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &[u8]| -> PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path
    };
    let own = authority.server().expect("a certificate");
    let files = TlsFiles {
        certificate: file("certificate", own.certificate.as_bytes()),
        key: file("key", own.key.as_bytes()),
        client_ca: Some(file("authority", authority.certificate().as_bytes())),
        client_names: vec!["system:kube-scheduler".to_owned()],
    };
    let tls = Tls::load(files.clone()).expect("valid files");

    let client = authority.client("system:kube-scheduler", &["system:masters"]).expect("a certificate");
    let client = CertificateDer::from_pem_slice(client.certificate.as_bytes()).expect("a certificate");
    let words = ["system:kube-scheduler", "\u{30}\u{80}", "\u{6}\u{3}\u{55}\u{4}\u{3}"];
    let memory = Memory { fixed_bytes: 64 << 10, bytes_per_byte: 4 };
    let target = Target { name: "certificate", samples: &[client.to_vec()], words: &words, memory };
    attack(&alone, &target, |input| tls.allows(&CertificateDer::from(input.bytes)));

    let words = ["-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n", "-----BEGIN PRIVATE KEY-----\n"];
    let pem = [own.certificate.into_bytes()];
    let memory = Memory { fixed_bytes: 256 << 10, bytes_per_byte: 16 };
    let target = Target { name: "pem", samples: &pem, words: &words, memory };
    attack(&alone, &target, |input| {
        // A new file: one that is truncated and written again goes to the disk at once, which takes most of the time.
        std::fs::remove_file(&files.certificate).expect("it exists");
        file("certificate", input.bytes);
        Tls::load(files.clone()).is_ok()
    });
}
