//! One HTTP request and its response, over TLS, over plain TCP, or within the process.
//!
//! Bounds: a response has at most [`BODY_BYTES_MAX`]. The caller sets time limits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::ServiceExt;

use crate::VsphereError;
use crate::tls::{self, RefusedCertificate, Thumbprint, Trust};

/// Far more than a page of 500 objects, or the settings of a large cluster.
pub const BODY_BYTES_MAX: usize = 64 << 20;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Exchange = dyn Fn(Request<Full<Bytes>>) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send>>
    + Send
    + Sync;

/// Sends requests to one server.
#[derive(Clone)]
pub struct Transport {
    exchange: Arc<Exchange>,
    refusal: RefusedCertificate,
}

impl Transport {
    /// Over the network.
    pub fn network(trust: &Trust) -> Result<Transport, VsphereError> {
        let (config, refusal) = tls::client_config(trust)?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(Duration::from_secs(10)));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new()).pool_idle_timeout(Duration::from_secs(60)).build(connector);
        Ok(Transport { refusal, ..Transport::service(client) })
    }

    /// Through any HTTP service: the embedded vCenter or a service of a test.
    pub fn service<S, B>(service: S) -> Transport
    where
        S: tower::Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let exchange = move |request| -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, BoxError>> + Send>> {
            let service = service.clone();
            Box::pin(async move {
                let response = service.oneshot(request).await.map_err(Into::into)?;
                let (parts, body) = response.into_parts();
                let body = Limited::new(body, BODY_BYTES_MAX).collect().await?.to_bytes();
                Ok(Response::from_parts(parts, body))
            })
        };
        Transport { exchange: Arc::new(exchange), refusal: RefusedCertificate::default() }
    }

    pub async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, BoxError> {
        (self.exchange)(request).await
    }

    /// The same with a time limit; `host` is named in errors.
    pub(crate) async fn send(
        &self,
        host: &str,
        limit: Duration,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, VsphereError> {
        let host = host.to_owned();
        match tokio::time::timeout(limit, self.exchange(request)).await {
            Err(_) => Err(VsphereError::TimedOut { host, seconds: limit.as_secs() }),
            Ok(Err(error)) => Err(self.unreachable(host, error.as_ref())),
            Ok(Ok(response)) => Ok(response),
        }
    }

    fn unreachable(&self, host: String, error: &(dyn std::error::Error + 'static)) -> VsphereError {
        if let Some((thumbprint, why)) = self.refused_certificate() {
            return VsphereError::UntrustedCertificate { host, thumbprint: thumbprint.to_string(), why };
        }
        // The outermost error is generic ("client error"); the innermost is the cause.
        let mut cause = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        VsphereError::Unreachable { host, why: cause.to_string() }
    }

    /// The server certificate of the last failed connection, if it was the reason of the failure.
    #[must_use]
    pub fn refused_certificate(&self) -> Option<(Thumbprint, String)> {
        self.refusal.take()
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}
