//! Listeners, plain or TLS, that end when asked.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum_server::Handle;
use axum_server::accept::Accept;
use axum_server::tls_rustls::RustlsConfig;
use tokio::net::TcpStream;

use crate::run::Stop;
use crate::tls::Certificate;

/// How long open requests may take once the process was asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
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
    until(stop, &handle, server).await
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
    until(stop, &handle, server).await
}

async fn until(
    stop: Stop,
    handle: &Handle<SocketAddr>,
    server: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = stop.requested() => handle.graceful_shutdown(Some(DRAIN)),
    }
    server.await
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
