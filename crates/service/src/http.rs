//! Ports, plain or TLS, that callers cannot wear out and that end when asked. Every port of every program is one of these.
//!
//! ```text
//! accept ── room? ── TLS ── head ── body ── place among the answers ── routes ── answer, in pieces ── head ...
//!            └ the connection that waits longest, of the address that has most, makes room
//! ```
//!
//! Bounded by [`Limits`] are: connections, bodies, answers under way, streams, and how long each step takes.

mod body;
mod connections;
mod limits;
mod talk;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

pub use limits::{Limits, Times};

use crate::mutual::Mutual;
use crate::run::Stop;
use crate::tls::Certificate;
use talk::Shared;

/// How long open requests may take once the process was asked to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// How long those who keep a connection open are told before, with each answer, that it ends: whoever sends the next request into one
/// that is being closed is not answered, and the API server then fails what it cannot ask a webhook about.
const FAREWELL: Duration = Duration::from_secs(2);
/// Connections that wait to be accepted: a flood of a thousand does not keep the next caller from knocking.
const BACKLOG: u32 = 1024;
/// Between two tries to accept where the process has no descriptor left.
const BREATH: Duration = Duration::from_millis(100);

/// Opens a socket now, so that a taken port is a message at start and port 0 has a number to tell.
pub fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)?.into_std()
    };
    open().with_context(|| format!("could not listen on {address}"))
}

/// Answers `routes` on `listener` until `stop`; with a certificate over TLS, else plainly.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    certificate: Option<Certificate>,
    stop: Stop,
) -> anyhow::Result<()> {
    Port { certificate, ..Port::new(listener, routes) }.serve(stop).await
}

/// A port in the making.
pub struct Port {
    /// The open socket.
    pub listener: TcpListener,
    /// What is answered.
    pub routes: Router,
    /// With it over TLS.
    pub certificate: Option<Certificate>,
    /// With it over TLS as well, and only to callers who have a certificate of the same authority.
    pub mutual: Option<Mutual>,
    /// What callers may take.
    pub limits: Limits,
    /// Hears of everybody who does not begin as HTTP does (on a plain port).
    pub turned_away: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Port {
    /// A plain port with the usual limits.
    pub fn new(listener: TcpListener, routes: Router) -> Port {
        Port { listener, routes, certificate: None, mutual: None, limits: Limits::default(), turned_away: None }
    }

    /// Answers until `stop`.
    pub async fn serve(self, stop: Stop) -> anyhow::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener).context("the socket cannot be listened on")?;
        let tls = match (&self.mutual, &self.certificate) {
            (Some(mutual), _) => Some(mutual.server_config()?),
            (None, Some(certificate)) => Some(certificate.server_config()?),
            (None, None) => None,
        };
        let limits = self.limits;
        let shared = Arc::new(Shared {
            routes: self.routes,
            tls: tls.map(TlsAcceptor::from),
            limits,
            turned_away: self.turned_away,
            connections: Arc::default(),
            leaving: false.into(),
            closing: watch::Sender::new(false),
            large: Arc::new(Semaphore::new(limits.large_bodies)),
            answers: Arc::new(Semaphore::new(limits.answers)),
            streams: Arc::new(Semaphore::new(limits.streams)),
        });
        let mut talks = JoinSet::new();
        accept(&listener, &shared, &mut talks, stop).await;
        drop(listener);
        shared.closing.send_replace(true);
        let last = async { while talks.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, last).await.is_err() {
            tracing::debug!("connections did not end in time");
        }
        talks.shutdown().await;
        Ok(())
    }
}

/// Lets callers in until nobody is left after `stop`, or the farewell is over.
async fn accept(listener: &tokio::net::TcpListener, shared: &Arc<Shared>, talks: &mut JoinSet<()>, stop: Stop) {
    let farewell = async {
        stop.requested().await;
        shared.leaving.store(true, Ordering::Relaxed);
        let _ = tokio::time::timeout(FAREWELL, shared.connections.none()).await;
    };
    tokio::pin!(farewell);
    let mut look = tokio::time::interval(shared.limits.times.look());
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut newcomer: Option<(TcpStream, SocketAddr)> = None;
    loop {
        tokio::select! {
            () = &mut farewell => return,
            _ = look.tick() => shared.connections.end_overdue(&shared.limits.times),
            Some(_) = talks.join_next() => {}
            came = one(listener), if newcomer.is_none() => newcomer = Some(came),
            () = shared.connections.room(&shared.limits), if newcomer.is_some() => {
                if let Some((stream, from)) = newcomer.take() {
                    talks.spawn(shared.attend(stream, from.ip()));
                }
            }
        }
    }
}

/// The next who comes. Without a descriptor left we wait until connections end.
async fn one(listener: &tokio::net::TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(came) => return came,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
