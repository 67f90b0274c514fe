//! Listening: a router on a loopback socket, in plain HTTP and, if a certificate is configured, TLS on the same port.
//!
//! The first byte from the client shows which protocol it speaks, so one port serves both.
//!
//! Bounds: concurrent connections, time to the first byte, time for a request's headers.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

const CONNECTIONS_MAX: usize = 4096;
const FIRST_BYTE_WITHIN: Duration = Duration::from_secs(30);
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// The first byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;

/// Binds a loopback port; 0 picks a free one.
pub async fn bind(port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves until dropped.
pub async fn serve(listener: TcpListener, router: Router, tls: Option<Arc<rustls::ServerConfig>>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let acceptor = tls.map(TlsAcceptor::from);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // For example out of file descriptors: wait until some are released instead of spinning.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        // Handlers read the client's address from the request extensions.
        let router = router.clone().layer(Extension(ConnectInfo(client)));
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = connection(stream, router, acceptor).await {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}

async fn connection(stream: TcpStream, router: Router, acceptor: Option<TlsAcceptor>) -> io::Result<()> {
    // Watch events are small, and each should arrive immediately.
    stream.set_nodelay(true)?;
    let mut first = [0u8; 1];
    let read = tokio::time::timeout(FIRST_BYTE_WITHIN, stream.peek(&mut first)).await??;
    match acceptor {
        Some(acceptor) if read == 1 && first[0] == TLS_HANDSHAKE => {
            let stream = tokio::time::timeout(HEAD_WITHIN, acceptor.accept(stream)).await??;
            answer(stream, router).await
        }
        _ => answer(stream, router).await,
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router) -> io::Result<()> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    builder
        .serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(router))
        .await
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A handler that never answers, like a wait for updates, and reports when it is dropped.
    #[tokio::test]
    async fn a_request_ends_with_its_client() {
        struct DropSignal(tokio::sync::mpsc::UnboundedSender<&'static str>);
        impl Drop for DropSignal {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        let (sender, mut signals) = tokio::sync::mpsc::unbounded_channel();
        let hang = move |_body: axum::body::Bytes| {
            let sender = sender.clone();
            async move {
                let _ = sender.send("begun");
                let _signal = DropSignal(sender);
                std::future::pending::<()>().await;
            }
        };
        let (listener, address) = bind(0).await.unwrap();
        let server = tokio::spawn(serve(listener, Router::new().route("/", axum::routing::post(hang)), None));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
        assert_eq!(signals.recv().await, Some("begun"));
        drop(stream);
        let dropped = tokio::time::timeout(Duration::from_secs(10), signals.recv()).await;
        assert_eq!(dropped.expect("within seconds"), Some("dropped"));
        server.abort();
    }

    #[tokio::test]
    async fn handlers_see_the_address_of_each_client() {
        let address_of_client = |ConnectInfo(client): ConnectInfo<SocketAddr>| async move { client.to_string() };
        let (listener, address) = bind(0).await.unwrap();
        let router = Router::new().route("/", axum::routing::get(address_of_client));
        let server = tokio::spawn(serve(listener, router, None));
        for _ in 0..2 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            let own = stream.local_addr().unwrap().to_string();
            assert!(answer.ends_with(&own), "{own}: {answer}");
        }
        server.abort();
    }
}
