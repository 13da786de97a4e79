//! Listeners, plain or TLS, that end when asked.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, Version, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum_server::Handle;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsConfig;
use tokio::net::TcpStream;

use crate::run::Stop;
use crate::tls::Certificate;

/// How long open requests may take once the process was asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// How long those who keep a connection open are told before, with each answer, that it ends: whoever sends the next request into one
/// that is being closed is not answered, and the API server then fails what it cannot ask a webhook about.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a caller may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);

/// Opens a socket now, so that a taken port is a message at start and port 0 has a number to tell.
pub fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("could not listen on {address}"))?;
    listener.set_nonblocking(true).with_context(|| format!("could not listen on {address}"))?;
    Ok(listener)
}

/// Answers `routes` on `listener` until `stop`; with a certificate over TLS, else plainly.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    certificate: Option<Certificate>,
    stop: Stop,
) -> anyhow::Result<()> {
    let handle = Handle::new();
    let leaving = Arc::new(AtomicBool::new(false));
    let says_so = leaving.clone();
    let routes = routes.layer(middleware::from_fn(move |request, next| end_connection(says_so.clone(), request, next)));
    let service = routes.into_make_service();
    let server = async {
        match &certificate {
            None => axum_server::from_tcp(listener)?.handle(handle.clone()).serve(service).await?,
            Some(certificate) => {
                let config = RustlsConfig::from_config(certificate.server_config()?);
                axum_server::from_tcp_rustls(listener, config)?.handle(handle.clone()).serve(service).await?;
            }
        }
        Ok(())
    };
    until(stop, &handle, server, Some(&leaving)).await
}

/// Says with the answer that the connection ends, once we leave.
async fn end_connection(leaving: Arc<AtomicBool>, request: Request, next: Next) -> Response {
    let keeps = request.version() <= Version::HTTP_11;
    let mut response = next.run(request).await;
    if keeps && leaving.load(Ordering::Relaxed) {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The same plainly, for a port that anybody on the network reaches: `turned_away` hears of everybody who does not begin as HTTP does.
pub async fn serve_anybody(
    listener: TcpListener,
    routes: Router,
    turned_away: impl Fn() + Send + Sync + 'static,
    stop: Stop,
) -> anyhow::Result<()> {
    let handle = Handle::new();
    let doorman = Doorman { turned_away: Arc::new(turned_away) };
    let server = async {
        let server = axum_server::from_tcp(listener)?.acceptor(doorman).handle(handle.clone());
        Ok(server.serve(routes.into_make_service()).await?)
    };
    until(stop, &handle, server, None).await
}

async fn until(
    stop: Stop,
    handle: &Handle<SocketAddr>,
    server: impl Future<Output = anyhow::Result<()>>,
    leaving: Option<&AtomicBool>,
) -> anyhow::Result<()> {
    let end = async {
        stop.requested().await;
        if let Some(leaving) = leaving {
            leaving.store(true, Ordering::Relaxed);
            let _ = tokio::time::timeout(FAREWELL, all_gone(handle)).await;
        }
        handle.graceful_shutdown(Some(DRAIN));
    };
    tokio::pin!(server, end);
    tokio::select! {
        ended = &mut server => return ended,
        () = &mut end => {}
    }
    server.await
}

/// Until nobody is connected.
async fn all_gone(handle: &Handle<SocketAddr>) {
    while handle.connection_count() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Looks at the first bytes that a caller says.
#[derive(Clone)]
struct Doorman {
    turned_away: Arc<dyn Fn() + Send + Sync>,
}

impl<S: Send + 'static> Accept<TcpStream, S> for Doorman {
    type Stream = TcpStream;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = io::Result<(TcpStream, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let turned_away = self.turned_away.clone();
        Box::pin(async move {
            let mut first = [0; 16];
            let length = tokio::time::timeout(PATIENCE, stream.peek(&mut first)).await??;
            if !is_http(&first[..length]) {
                turned_away();
                return Err(io::ErrorKind::InvalidData.into());
            }
            Ok((stream, service))
        })
    }
}

/// A request begins with a method: capitals, and then a space. Who leaves without a word did nothing wrong.
fn is_http(first: &[u8]) -> bool {
    first.split(|byte| *byte == b' ').next().is_some_and(|method| method.iter().all(u8::is_ascii_uppercase))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::routing::get;

    use super::*;
    use crate::run::Tasks;

    /// Asks once on an open connection, and reads the head and the two letters of the answer.
    fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"\r\n\r\nok") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1, "cut off in {:?}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        String::from_utf8(said).unwrap().to_lowercase()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_keeps_a_connection_open_is_answered_and_told_that_it_ends() {
        let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut tasks = Tasks::new();
        tasks.add("http", serve(listener, Router::new().route("/", get(|| async { "ok" })), None, tasks.stop()));
        let (asked, was_asked) = tokio::sync::oneshot::channel();
        let caller = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            assert!(!ask(&mut stream).contains("connection: close"));
            asked.send(()).unwrap();
            // Whenever it is told, it is told with an answer.
            while !ask(&mut stream).contains("connection: close") {}
            assert_eq!(stream.read(&mut [0]).unwrap(), 0, "and then the connection ends");
        });
        tasks
            .run_until(async {
                was_asked.await.unwrap();
                "it was asked"
            })
            .await
            .unwrap();
        caller.join().unwrap();
    }
}
