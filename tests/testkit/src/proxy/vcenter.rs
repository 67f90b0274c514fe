//! The proxy of vcsim, for plain HTTP: one request per connection.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{Fate, Held, Points, When};

pub struct VcenterProxy {
    /// Host and port.
    pub address: String,
    serving: JoinHandle<()>,
}

impl VcenterProxy {
    /// `upstream`: host and port.
    pub async fn start(upstream: String, points: Points) -> Result<VcenterProxy> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (upstream, points) = (upstream.clone(), points.clone());
                // Ends with the test's runtime.
                tokio::spawn(async move {
                    let _ = pass(stream, &upstream, &points).await;
                });
            }
        });
        Ok(VcenterProxy { address, serving })
    }
}

impl Drop for VcenterProxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn pass(mut client: TcpStream, upstream: &str, points: &Points) -> Result<()> {
    let request = read_request(&mut client).await?;
    let when = match step_of(&request).map(|step| points.begin(step)) {
        Some(Fate::Stops(When::Before)) => return points.stop().await,
        Some(Fate::IsHeld(held)) => return hold(client, upstream, &request, &held).await,
        Some(Fate::IsRefused(status)) => {
            let answer = format!("HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            client.write_all(answer.as_bytes()).await?;
            return Ok(client.shutdown().await?);
        }
        Some(Fate::Stops(When::After)) => Some(When::After),
        Some(Fate::Passes) | None => None,
    };
    let answer = forward(upstream, &request).await?;
    if when == Some(When::After) {
        return points.stop().await;
    }
    client.write_all(&answer).await?;
    Ok(client.shutdown().await?)
}

/// Delivers the request when it is to be forwarded, also if its client has gone away.
async fn hold(mut client: TcpStream, upstream: &str, request: &str, held: &Held) -> Result<()> {
    let waiting = held.client();
    held.has_arrived();
    let mut end = [0];
    tokio::select! {
        () = held.until_forwarded() => (),
        // It sends nothing more, so this is the end of the connection.
        _ = client.read(&mut end) => drop(waiting),
    }
    held.until_forwarded().await;
    let answer = forward(upstream, request).await?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
    held.answered(status, text);
    client.write_all(&answer).await?;
    Ok(client.shutdown().await?)
}

async fn forward(upstream: &str, request: &str) -> Result<Vec<u8>> {
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(closing(request).as_bytes()).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    Ok(answer)
}

async fn read_request(client: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let count = client.read(&mut buffer).await?;
        ensure!(count > 0, "the client closed the connection");
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        if body.len() >= length.context("a request with a length")? {
            return Ok(text.into_owned());
        }
    }
}

/// The request with `Connection: close`, so that the end of the answer is the end of the connection.
fn closing(request: &str) -> String {
    let (first, rest) = request.split_once("\r\n").unwrap_or((request, ""));
    format!("{first}\r\nConnection: close\r\n{rest}")
}

/// The calls of a rule pass: reading the rules of a cluster, changing them, asking for the state of the task.
fn step_of(request: &str) -> Option<String> {
    let (_, body) = request.split_once("Body>")?;
    let method = body.trim_start().strip_prefix('<')?.split([' ', '>', '/']).next()?;
    let what = match method {
        "ReconfigureComputeResource_Task" => "",
        "RetrievePropertiesEx" if body.contains("type=\"Task\"") => " of the task",
        "RetrievePropertiesEx" if body.contains("configurationEx") && !body.contains("runtime.connectionState") => {
            " of the cluster"
        }
        _ => return None,
    };
    Some(format!("{method}{what}"))
}
