//! HTTP/2 in, HTTP/2 out. Requests, answers and trailers are forwarded frame by frame; streams stay streams.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use divvy_service::Stop;
use futures::StreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::{Args, Refused, desk, edit};
use crate::nonsense::{Nonsense, Socket};
use crate::socket;

type Body = BoxBody<Bytes, hyper::Error>;

/// The one call we look at.
const CREATE: &str = "/runtime.v1.RuntimeService/CreateContainer";
/// The kubelet sends and takes up to 16 MiB; a frame adds five bytes.
const LARGEST: usize = (16 << 20) + 5;
/// How much may be on its way at once: whole messages without waiting for permission.
const WINDOW: u32 = 16 << 20;

/// How often the agent is told of nonsense that was heard here.
const TELL: Duration = Duration::from_secs(1);

const UNAVAILABLE: u32 = 14;
const FAILED_PRECONDITION: u32 = 9;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNIMPLEMENTED: u32 = 12;

/// The runtime, connected when first needed and again after it was restarted.
struct Upstream {
    args: Args,
    connection: Mutex<Option<Connection>>,
}

/// A connection and the task that moves its bytes, which ends with it.
struct Connection {
    sender: SendRequest<Body>,
    _driver: JoinSet<()>,
}

/// Forwards until asked to stop.
pub(super) async fn run(args: Args, stop: Stop) -> anyhow::Result<()> {
    let listener = listen(&args.listen)?;
    tracing::info!(listen = %args.listen.display(), upstream = %args.upstream.display(), "forwarding");
    let nonsense = Nonsense::default();
    let mut callers = std::pin::pin!(socket::http2(listener, nonsense.clone(), Socket::Cri));
    let mut told = tokio::time::interval(TELL);
    let mut heard = 0;
    let upstream = Arc::new(Upstream { args, connection: Mutex::new(None) });
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            caller = callers.next() => caller.context("the shim's socket is gone")??,
            Some(_) = connections.join_next() => continue,
            _ = told.tick() => {
                let count = nonsense.count(Socket::Cri);
                // An agent that is away is told at the next tick.
                if count != heard && desk::tell(&upstream.args.agent, count, TELL).await.is_ok() {
                    heard = count;
                }
                continue;
            }
            () = stop.requested() => return Ok(()),
        };
        let upstream = upstream.clone();
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request| {
                let upstream = upstream.clone();
                async move { Ok::<_, Infallible>(upstream.forward(request).await) }
            });
            let served = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW)
                .max_concurrent_streams(1000)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a client of the shim left");
            }
        });
    }
}

fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(|| format!("could not listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

impl Upstream {
    async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let (mut parts, body) = request.into_parts();
        let body: Body = if parts.uri.path() == CREATE {
            let message = match Limited::new(body, LARGEST).collect().await {
                Ok(collected) => collected.to_bytes(),
                Err(e) => {
                    return grpc_error(RESOURCE_EXHAUSTED, &format!("Divvy's shim cannot take this request: {e}"));
                }
            };
            match self.edited(&message).await {
                Ok(framed) => {
                    // Appended bytes make the announced length a lie.
                    parts.headers.remove(CONTENT_LENGTH);
                    Full::new(Bytes::from(framed)).map_err(|never| match never {}).boxed()
                }
                Err((code, why)) => return grpc_error(code, &why),
            }
        } else {
            body.boxed()
        };
        let mut sender = match self.sender().await {
            Ok(sender) => sender,
            Err(e) => return grpc_error(UNAVAILABLE, &format!("the container runtime does not answer: {e}")),
        };
        match sender.send_request(Request::from_parts(parts, body)).await {
            Ok(response) => response.map(BodyExt::boxed),
            Err(e) => grpc_error(UNAVAILABLE, &format!("the container runtime went away: {e}")),
        }
    }

    /// Takes the message out of its frame, and puts the edited one into a new frame.
    async fn edited(&self, frame: &[u8]) -> Result<Vec<u8>, (u32, String)> {
        let broken = || (FAILED_PRECONDITION, "Divvy's shim got a broken frame".to_owned());
        let (head, message) = frame.split_at_checked(5).ok_or_else(broken)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        if head[0] != 0 {
            return Err((UNIMPLEMENTED, "Divvy's shim takes no compressed requests".to_owned()));
        }
        if length != message.len() {
            return Err(broken());
        }
        let edited = edit(&self.args, message.to_vec()).await.map_err(|Refused(why)| (FAILED_PRECONDITION, why))?;
        let mut framed = Vec::with_capacity(edited.len() + 5);
        framed.push(0);
        framed.extend(u32::try_from(edited.len()).map_err(|_| broken())?.to_be_bytes());
        framed.extend(edited);
        Ok(framed)
    }

    async fn sender(&self) -> anyhow::Result<SendRequest<Body>> {
        let mut connection = self.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|c| !c.sender.is_closed()) {
            return Ok(open.sender.clone());
        }
        let stream = UnixStream::connect(&self.args.upstream).await?;
        let (sender, driver) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(TokioIo::new(stream))
            .await?;
        let mut moving = JoinSet::new();
        moving.spawn(async move {
            if let Err(error) = driver.await {
                tracing::info!(%error, "the connection to the container runtime ended");
            }
        });
        *connection = Some(Connection { sender: sender.clone(), _driver: moving });
        Ok(sender)
    }
}

/// An answer of gRPC's that is nothing but an error.
fn grpc_error(code: u32, message: &str) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(code));
    if let Ok(value) = HeaderValue::from_str(&percent(message)) {
        headers.insert("grpc-message", value);
    }
    response
}

/// gRPC's own escape for messages: printable ASCII as it is, the rest as %XX.
fn percent(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => out.push_str("%25"),
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests;
