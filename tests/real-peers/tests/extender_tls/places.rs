//! Places for connections: how many one address may have, and those that only clients with a certificate get.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use testkit::pki::Identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// The limits of `server::Limits`.
const PLACES: usize = 512;
const PER_CLIENT: usize = 256;
const KEPT: usize = 64;
const AT_ONCE: usize = 8;
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A client with or without a certificate.
struct Client(TlsConnector);

impl Client {
    fn new(authority: &Authority, identity: Option<&Identity>) -> Result<Client> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some(identity) => {
                let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes())?];
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?)?
            }
        };
        Ok(Client(TlsConnector::from(Arc::new(config))))
    }

    /// Connects from a loopback address, and reads the status of a first response, so that the connection has its place.
    async fn connect(&self, from: u8, to: SocketAddr) -> Result<(TlsStream<TcpStream>, String)> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::new(127, 0, 0, from), 0).into())?;
        let stream = socket.connect(to).await?;
        let mut stream = self.0.connect(ServerName::try_from("localhost")?, stream).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: bridger\r\n\r\n").await?;
        let mut answer = vec![0; 1024];
        let length = tokio::time::timeout(ANSWER_WITHIN, stream.read(&mut answer)).await??;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        ensure!(answer.starts_with("HTTP/1.1 404"), "{answer:?}");
        Ok((stream, answer))
    }

    /// Takes this number of places from one address, and returns the open connections.
    async fn take(&self, places: usize, from: u8, to: SocketAddr) -> Result<Vec<TlsStream<TcpStream>>> {
        let connections = stream::iter(0..places).map(|_| self.connect(from, to)).buffer_unordered(AT_ONCE);
        let connections: Vec<Result<_>> = connections.collect().await;
        connections.into_iter().map(|connection| Ok(connection?.0)).collect()
    }
}

#[tokio::test]
async fn number_8_one_address_cannot_take_all_places_and_some_are_kept_for_clients_with_a_certificate() -> Result<()> {
    let control_plane = ControlPlane::start().await?;
    let workdir = Workdir::create("extender-places")?;
    let authority = Authority::create("bridger")?;
    let write = |name: &str, text: &str| anyhow::Ok(workdir.write(name, text)?.display().to_string());
    let server = authority.server()?;
    let ca = write("ca.crt", &authority.certificate())?;
    let (certificate, key) = (write("tls.crt", &server.certificate)?, write("tls.key", &server.key)?);
    let variables = [("KUBECONFIG", control_plane.kubeconfig().display().to_string())];
    let arguments = [
        ["run", "--port", "0", "--extender-port", "0"],
        ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--listen=127.0.0.1"],
    ]
    .concat();
    let mut bridger = Bridger::start(&[&arguments[..], &["--client-ca-file", &ca]].concat(), &variables)?;
    bridger.prints("Listening   https://", SOON).await?;
    let address: SocketAddr = bridger.extender_address()?.parse()?;

    let anyone = Client::new(&authority, None)?;
    let one = anyone.take(PER_CLIENT, 2, address).await?;
    ensure!(anyone.connect(2, address).await.is_err(), "one address has more than {PER_CLIENT} places");
    // From another address there are places left, but not those that are kept.
    let other = anyone.take(PLACES - KEPT - PER_CLIENT, 3, address).await?;
    ensure!(anyone.connect(3, address).await.is_err(), "{} places, of which {KEPT} are kept", one.len() + other.len());
    let scheduler = Client::new(&authority, Some(&authority.client("system:kube-scheduler", &[])?))?;
    scheduler.connect(4, address).await.context("no place is kept")?;
    let stranger = Client::new(&authority, Some(&authority.client("system:kube-proxy", &[])?))?;
    ensure!(stranger.connect(4, address).await.is_err(), "a place is kept for a client with another name");

    drop(one);
    eventually(SOON, || async { anyone.connect(3, address).await.map(drop) }).await
}
