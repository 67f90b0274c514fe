//! Faults that apply to any HTTP request on either side: latency, an error status, a dropped connection.
//!
//! A handler calls [`before`] when it knows the method name and before it acts, and passes its answer through
//! [`RequestFault::answer`].

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{StatusCode, header};

use crate::fault::{Fault, Side};
use crate::world::World;

/// What a fault does to a request.
#[derive(Debug)]
pub enum RequestFault {
    /// No fault: act, and send the answer.
    None,
    /// Do not act. Answer with this status.
    Refused(StatusCode),
    /// Act, then drop the connection in the middle of the answer.
    Drop,
}

pub async fn before(world: &World, side: Side, method: &str) -> RequestFault {
    let strike = |applies: fn(&Fault) -> bool| world.with(|core, now| core.faults.strike(now, side, method, applies));
    if let Some(Fault::Latency { millis }) = strike(|fault| matches!(fault, Fault::Latency { .. })) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    match strike(|fault| matches!(fault, Fault::HttpStatus { .. } | Fault::DropConnection)) {
        Some(Fault::HttpStatus { status }) => {
            RequestFault::Refused(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        Some(_) => RequestFault::Drop,
        None => RequestFault::None,
    }
}

impl RequestFault {
    /// The error response, if the request must not be executed.
    #[must_use]
    pub fn refusal(&self) -> Option<Response> {
        let RequestFault::Refused(status) = self else { return None };
        let mut response = Response::new(Body::from(format!("simulated fault: {status}\n")));
        *response.status_mut() = *status;
        if *status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        Some(response)
    }

    /// The answer as the client receives it.
    #[must_use]
    pub fn answer(&self, response: Response) -> Response {
        match self {
            RequestFault::Drop => {
                let (parts, _) = response.into_parts();
                let cut =
                    futures::stream::iter([Err::<Bytes, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset))]);
                Response::from_parts(parts, Body::from_stream(cut))
            }
            _ => response,
        }
    }
}
