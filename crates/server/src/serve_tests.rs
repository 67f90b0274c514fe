//! The listener with clients that are slow, idle, too many, or use TLS.

use std::net::SocketAddr;
use std::path::Path;

use axum::body::Bytes;
use axum::routing::{get, post};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::*;
use crate::tls::TlsFiles;

fn limits() -> Limits {
    Limits {
        connections_max: 3,
        connections_per_client_max: 3,
        connections_kept: 1,
        handshake_within: Duration::from_millis(300),
        head_within: Duration::from_millis(300),
        request_within: Duration::from_millis(600),
        unread_within: Duration::from_millis(300),
        idle_max: Duration::from_millis(1500),
        stop_within: Duration::from_millis(2000),
    }
}

struct Served {
    address: SocketAddr,
    counts: Arc<ConnectionCounts>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

async fn start(limits: Limits, tls: Option<Arc<Tls>>) -> Served {
    let router = Router::new()
        .route("/", get(async || "hello"))
        .route("/large", get(async || vec![b'x'; 64 << 20]))
        .route("/slow", get(async || tokio::time::sleep(Duration::from_secs(1)).await))
        .route("/never", get(async || std::future::pending::<()>().await))
        .route("/who", get(async |axum::Extension(who): axum::Extension<ClientCertificate>| format!("{who:?}")))
        .route("/echo", post(async |body: Bytes| body));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let counts = Arc::<ConnectionCounts>::default();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(serve(listener, router, tls, limits, counts.clone(), async {
        let _ = stopped.await;
    }));
    Served { address, counts, stop: Some(stop), task }
}

async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> String {
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
        }
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse::<usize>().expect("a number") <= body.len()) {
                break;
            }
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

fn get_request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")
}

/// How long until the server closes the connection.
async fn closed_after(stream: &mut TcpStream) -> Duration {
    let started = Instant::now();
    let mut buffer = vec![0; 65536];
    while matches!(stream.read(&mut buffer).await, Ok(count) if count > 0) {}
    started.elapsed()
}

#[tokio::test]
async fn a_connection_serves_many_requests_and_is_closed_only_after_a_long_idle_time() {
    let served = start(limits(), None).await;
    let mut stream = TcpStream::connect(served.address).await.expect("connected");
    for _ in 0..3 {
        assert!(exchange(&mut stream, &get_request("/")).await.ends_with("hello"));
        // Longer than the limit for a head: the idle limit is separate.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let idle = closed_after(&mut stream).await;
    assert!(idle > Duration::from_millis(500) && idle < Duration::from_secs(5), "{idle:?}");
}

#[tokio::test]
async fn slow_clients_are_disconnected() {
    let served = start(limits(), None).await;
    let cases = [
        ("a head that does not end", "GET / HTTP/1.1\r\nhost: x\r\n"),
        ("a body that does not arrive", "POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab"),
        ("a response that does not arrive", "GET /never HTTP/1.1\r\nhost: x\r\n\r\n"),
    ];
    for (what, text) in cases {
        let mut stream = TcpStream::connect(served.address).await.expect("connected");
        stream.write_all(text.as_bytes()).await.expect("sent");
        let took = closed_after(&mut stream).await;
        assert!(took < Duration::from_millis(1400), "{what}: {took:?}");
    }
    // Sending single bytes does not extend the limit.
    let mut stream = TcpStream::connect(served.address).await.expect("connected");
    let started = Instant::now();
    while stream.write_all(b"G").await.is_ok() && started.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // A response that is never read does not hold a connection forever.
    let mut stream = TcpStream::connect(served.address).await.expect("connected");
    stream.write_all(get_request("/large").as_bytes()).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(1000)).await;
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        received += count;
    }
    assert!(received < 64 << 20, "the whole response arrived");
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_closed_and_counted() {
    let served = start(limits(), None).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(served.address).await.expect("connected");
        assert!(exchange(&mut stream, &get_request("/")).await.ends_with("hello"));
        streams.push(stream);
    }
    let mut fourth = TcpStream::connect(served.address).await.expect("connected");
    assert!(closed_after(&mut fourth).await < Duration::from_millis(200));
    assert_eq!((served.counts.accepted(), served.counts.refused()), (3, 1));
    drop(streams.pop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut fifth = TcpStream::connect(served.address).await.expect("connected");
    assert!(exchange(&mut fifth, &get_request("/")).await.ends_with("hello"));
}

#[tokio::test]
async fn after_the_stop_requests_complete_and_no_new_ones_are_accepted() {
    let mut served = start(Limits { request_within: Duration::from_secs(5), ..limits() }, None).await;
    let mut stream = TcpStream::connect(served.address).await.expect("connected");
    stream.write_all(get_request("/slow").as_bytes()).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(served.stop.take());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    served.task.await.expect("ended");
    assert!(TcpStream::connect(served.address).await.is_err());
}

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn create() -> Authority {
        let mut parameters = CertificateParams::default();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(parameters, KeyPair::generate().expect("a key")).expect("an authority"))
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        (parameters.signed_by(&key, &self.0).expect("signed"), key)
    }
}

fn write_pair(folder: &Path, (certificate, key): &(rcgen::Certificate, KeyPair)) {
    std::fs::write(folder.join("tls.crt"), certificate.pem()).expect("written");
    std::fs::write(folder.join("tls.key"), key.serialize_pem()).expect("written");
}

async fn connect_tls(
    address: SocketAddr,
    authority: &Authority,
    client: Option<&(rcgen::Certificate, KeyPair)>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.0.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match client {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
            builder.with_client_auth_cert(chain, key).expect("a client's certificate")
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Sends a request over TLS; returns the server's certificate and the response.
async fn ask_tls(
    address: SocketAddr,
    authority: &Authority,
    client: Option<&(rcgen::Certificate, KeyPair)>,
    path: &str,
) -> std::io::Result<(Vec<u8>, String)> {
    let mut stream = connect_tls(address, authority, client).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).expect("a certificate").to_vec();
    Ok((shown, exchange(&mut stream, &get_request(path)).await))
}

/// A pair in files, with the authority of client certificates.
fn tls_in(folder: &Path, authority: &Authority, pair: &(rcgen::Certificate, KeyPair)) -> Arc<Tls> {
    write_pair(folder, pair);
    std::fs::write(folder.join("ca.crt"), authority.0.pem()).expect("written");
    let files = TlsFiles {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        client_ca: Some(folder.join("ca.crt")),
        client_names: vec!["kube-scheduler".to_owned()],
    };
    Arc::new(Tls::load(files).expect("a pair"))
}

#[tokio::test]
async fn number_8_places_are_kept_for_clients_with_a_certificate() {
    let authority = Authority::create();
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls_in(folder.path(), &authority, &authority.sign("localhost"));
    let served = start(limits(), Some(tls)).await;
    let ask = async |client: Option<&(rcgen::Certificate, KeyPair)>| {
        let mut stream = connect_tls(served.address, &authority, client).await.expect("connected");
        let answer = exchange(&mut stream, &get_request("/who")).await;
        (stream, answer)
    };
    let (_first, answer) = ask(None).await;
    assert!(answer.ends_with("Missing"), "{answer}");
    let (_second, answer) = ask(None).await;
    assert!(answer.ends_with("Missing"), "{answer}");
    let (_, answer) = ask(None).await;
    assert_eq!((answer.as_str(), served.counts.refused()), ("", 1));
    let (_, answer) = ask(Some(&authority.sign("kube-scheduler"))).await;
    assert!(answer.ends_with("Verified"), "{answer}");
}

#[tokio::test]
async fn number_8_unfinished_handshakes_keep_no_one_out() {
    let authority = Authority::create();
    let folder = tempfile::tempdir().expect("a folder");
    let tls = tls_in(folder.path(), &authority, &authority.sign("localhost"));
    // Full for all, or for this client.
    for connections_per_client_max in [100, 3] {
        let limits = Limits { connections_per_client_max, handshake_within: Duration::from_secs(60), ..limits() };
        let served = start(limits, Some(tls.clone())).await;
        let mut silent = Vec::new();
        for _ in 0..3 {
            silent.push(TcpStream::connect(served.address).await.expect("connected"));
        }
        let client = authority.sign("kube-scheduler");
        let (_, answer) = ask_tls(served.address, &authority, Some(&client), "/who").await.expect("an answer");
        assert!(answer.ends_with("Verified"), "{answer}");
        // The oldest had to go, and the others are still there.
        assert!(closed_after(&mut silent[0]).await < Duration::from_secs(1));
        assert_eq!((served.counts.accepted(), served.counts.refused()), (4, 1));
        let mut byte = [0; 1];
        let waits = timeout(Duration::from_millis(100), silent[1].read(&mut byte)).await;
        assert!(waits.is_err(), "closed");
    }
}

#[tokio::test]
async fn number_8_one_client_cannot_take_all_places() {
    let served = start(Limits { connections_per_client_max: 2, ..limits() }, None).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(served.address).await.expect("connected");
        assert!(exchange(&mut stream, &get_request("/")).await.ends_with("hello"));
        streams.push(stream);
    }
    let mut third = TcpStream::connect(served.address).await.expect("connected");
    assert!(closed_after(&mut third).await < Duration::from_millis(200));
    assert_eq!(served.counts.refused(), 1);
}

#[tokio::test]
async fn tls_follows_its_files_and_verifies_client_certificates() {
    let (authority, stranger) = (Authority::create(), Authority::create());
    let folder = tempfile::tempdir().expect("a folder");
    let first = authority.sign("localhost");
    let tls = tls_in(folder.path(), &authority, &first);
    let served = start(limits(), Some(tls.clone())).await;

    let (shown, answer) = ask_tls(served.address, &authority, None, "/who").await.expect("an answer");
    assert_eq!(shown, first.0.der().to_vec());
    assert!(answer.ends_with("Missing"), "{answer}");
    let client = authority.sign("kube-scheduler");
    let (_, answer) = ask_tls(served.address, &authority, Some(&client), "/who").await.expect("an answer");
    assert!(answer.ends_with("Verified"), "{answer}");
    let other = authority.sign("kube-proxy");
    let (_, answer) = ask_tls(served.address, &authority, Some(&other), "/who").await.expect("an answer");
    assert!(answer.ends_with("OtherName"), "{answer}");
    let intruder = stranger.sign("kube-scheduler");
    let refused = ask_tls(served.address, &authority, Some(&intruder), "/who").await;
    assert!(!refused.is_ok_and(|(_, answer)| answer.contains("200 OK")), "a stranger's certificate");

    // A key that does not match the certificate, then no certificate: the pair in use stays.
    std::fs::write(folder.path().join("tls.key"), KeyPair::generate().expect("a key").serialize_pem())
        .expect("written");
    let text = tls.reload().expect_err("a key of another certificate").to_string();
    assert!(text.contains("tls.crt") && !text.contains("PRIVATE"), "{text}");
    std::fs::write(folder.path().join("tls.crt"), "nothing").expect("written");
    assert!(matches!(tls.reload(), Err(crate::TlsError::Missing { what: "certificate", .. })));
    assert_eq!(ask_tls(served.address, &authority, None, "/").await.expect("an answer").0, first.0.der().to_vec());

    let second = authority.sign("localhost");
    write_pair(folder.path(), &second);
    assert!(tls.reload().expect("a pair") && !tls.reload().expect("the same pair"));
    assert_eq!(ask_tls(served.address, &authority, None, "/").await.expect("an answer").0, second.0.der().to_vec());

    // A client without TLS is disconnected.
    let mut plain = TcpStream::connect(served.address).await.expect("connected");
    plain.write_all(get_request("/").as_bytes()).await.expect("sent");
    assert!(closed_after(&mut plain).await < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_reloaded_automatically() {
    let authority = Authority::create();
    let folder = tempfile::tempdir().expect("a folder");
    write_pair(folder.path(), &authority.sign("localhost"));
    let files = TlsFiles {
        certificate: folder.path().join("tls.crt"),
        key: folder.path().join("tls.key"),
        client_ca: None,
        client_names: Vec::new(),
    };
    let tls = Arc::new(Tls::load(files).expect("a pair"));
    let before = tls.current();
    let follower = tokio::spawn(tls.clone().follow());
    write_pair(folder.path(), &authority.sign("localhost"));
    tokio::time::sleep(2 * crate::tls::CHECK_EVERY).await;
    assert!(!Arc::ptr_eq(&before, &tls.current()));
    follower.abort();
}
