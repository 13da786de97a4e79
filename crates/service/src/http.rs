//! Listeners, plain or TLS, that end when asked.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;

use crate::run::Stop;
use crate::tls::Certificate;

/// How long open requests may take once the process was asked to stop.
const DRAIN: Duration = Duration::from_secs(5);

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
        anyhow::Ok(())
    };
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = stop.requested() => handle.graceful_shutdown(Some(DRAIN)),
    }
    server.await
}
