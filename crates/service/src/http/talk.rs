//! One connection, from its first byte to its end.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::body::{Answer, receive};
use super::connections::{Connection, Connections, Member, Phase};
use super::limits::{BUFFER, Limits};

/// What is asked by whoever decides whether this process lives: answered however busy we are.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];
/// Lines of a request's head. Browsers and proxies send about 30.
const HEADERS: usize = 100;

/// What the connections of a port share.
pub(super) struct Shared {
    pub(super) routes: Router,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) limits: Limits,
    pub(super) turned_away: Option<Arc<dyn Fn() + Send + Sync>>,
    pub(super) connections: Arc<Connections>,
    /// Answers say that their connection ends.
    pub(super) leaving: AtomicBool,
    /// Connections end with the answer that is on its way.
    pub(super) closing: watch::Sender<bool>,
    pub(super) large: Arc<Semaphore>,
    pub(super) answers: Arc<Semaphore>,
    pub(super) streams: Arc<Semaphore>,
}

impl Shared {
    /// Talks with a peer until either has enough.
    pub(super) fn attend(self: &Arc<Shared>, stream: TcpStream, from: IpAddr) -> impl Future<Output = ()> + use<> {
        let (shared, member) = (self.clone(), self.connections.add(from));
        async move {
            let Member { connection, .. } = &member;
            tokio::select! {
                // A peer that breaks off is no news.
                _ = shared.clone().talk(stream, connection.clone()) => {}
                () = connection.ended() => {}
            }
        }
    }

    async fn talk(self: Arc<Shared>, stream: TcpStream, connection: Arc<Connection>) -> io::Result<()> {
        match &self.tls {
            None => {
                if let Some(turned_away) = &self.turned_away {
                    let mut first = [0; 16];
                    let length = stream.peek(&mut first).await?;
                    if !is_http(&first[..length]) {
                        turned_away();
                        return Ok(());
                    }
                }
                self.converse(stream, connection).await
            }
            Some(tls) => {
                let stream = tls.accept(stream).await?;
                self.converse(stream, connection).await
            }
        }
        Ok(())
    }

    /// HTTP/1.1 alone: with one request per connection at a time the number of connections bounds everything.
    async fn converse(self: &Arc<Shared>, stream: impl AsyncRead + AsyncWrite + Unpin, connection: Arc<Connection>) {
        let io = TokioIo::new(Watched { stream, connection: connection.clone() });
        let service = service_fn(|request| self.clone().answer(request, connection.clone()));
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(self.limits.times.idle)
            .max_buf_size(BUFFER)
            .max_headers(HEADERS);
        let mut http = pin!(http.serve_connection(io, service));
        let mut closing = self.closing.subscribe();
        tokio::select! {
            ended = http.as_mut() => return note(ended),
            _ = closing.wait_for(|closing| *closing) => http.as_mut().graceful_shutdown(),
        }
        note(http.await);
    }

    async fn answer(
        self: Arc<Shared>,
        request: Request<Incoming>,
        connection: Arc<Connection>,
    ) -> Result<Response<Answer>, Infallible> {
        connection.enter(Phase::Body);
        let (head, body) = request.into_parts();
        let (mut response, place) = match receive(body, self.limits.body, &self.large).await {
            Err(refusal) => {
                let mut response = refusal.into_response();
                end(&mut response);
                (response, None)
            }
            Ok((body, _large)) => {
                connection.enter(Phase::Work);
                let probe = PROBES.contains(&head.uri.path());
                let place = if probe { None } else { self.answers.clone().acquire_owned().await.ok() };
                let Ok(response) = self.routes.clone().oneshot(Request::from_parts(head, Body::from(body))).await;
                self.stream_or_answer(response, place, &connection)
            }
        };
        if self.leaving.load(Ordering::Relaxed) {
            end(&mut response);
        }
        Ok(response.map(|body| Answer::new(body, connection, place)))
    }

    /// An event stream gives its place among the answers back, and takes one among the streams.
    fn stream_or_answer(
        &self,
        response: Response<Body>,
        place: Option<OwnedSemaphorePermit>,
        connection: &Connection,
    ) -> (Response<Body>, Option<OwnedSemaphorePermit>) {
        let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
        if !kind.is_some_and(|kind| kind.starts_with(b"text/event-stream")) {
            connection.enter(Phase::Answer);
            return (response, place);
        }
        match self.streams.clone().try_acquire_owned() {
            Ok(place) => {
                connection.enter(Phase::Stream);
                (response, Some(place))
            }
            Err(_) => {
                connection.enter(Phase::Answer);
                let refusal =
                    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "10")], "too many streams are open\n");
                (refusal.into_response(), place)
            }
        }
    }
}

/// Says with the answer that the connection ends.
fn end(response: &mut Response<Body>) {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
}

fn note(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::trace!(%error, "a connection broke off");
    }
}

/// A request begins with a method: capitals, and then a space. Who leaves without a word did nothing wrong.
fn is_http(first: &[u8]) -> bool {
    first.split(|byte| *byte == b' ').next().is_some_and(|method| method.iter().all(u8::is_ascii_uppercase))
}

/// A stream that tells what its peer sends and takes.
struct Watched<S> {
    stream: S,
    connection: Arc<Connection>,
}

impl<S> Watched<S> {
    fn sent<T>(&self, outcome: Poll<T>) -> Poll<T> {
        self.connection.sent(outcome.is_ready());
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.connection.heard();
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.sent(outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.sent(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.sent(outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
