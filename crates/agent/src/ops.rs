//! The agent's port: probes, `/metrics` and `/journal`. It tells, and takes no orders.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use divvy_core::budget::Cut;
use divvy_service::http::Limits;
use divvy_service::{Health, health};
use prometheus_client::registry::Registry;
use serde::Deserialize;

use crate::journal::Journal;
use crate::metrics::Scrape;

/// What callers of the port may take. The agent has 256 MiB: eight answers, each a page of the journal or all metrics, take a few.
pub fn limits() -> Limits {
    Limits { connections: 128, answers: 8, ..Limits::default() }
}

/// Everything the port answers.
pub fn routes(health: Health, scrape: Scrape, journal: Arc<Journal>) -> Router {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(scrape));
    let of_journal = Router::new().route("/journal", get(page)).with_state(journal);
    health::routes(health, Arc::new(registry)).merge(of_journal)
}

/// Where to read on: the last record that was read, and how many to tell.
#[derive(Debug, Deserialize)]
struct Place {
    epoch: Option<u64>,
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

async fn page(State(journal): State<Arc<Journal>>, Query(place): Query<Place>) -> Response {
    let after = place.epoch.map(|epoch| Cut { epoch, sequence: place.after });
    let read = tokio::task::spawn_blocking(move || journal.page(after, place.limit.unwrap_or(1000))).await;
    match read {
        Ok(Ok(page)) => Json(page).into_response(),
        Ok(Err(error)) => problem(&error),
        Err(error) => problem(&error),
    }
}

fn problem(error: &dyn std::error::Error) -> Response {
    tracing::error!(%error, "cannot read the journal");
    (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot read the journal: {error}\n")).into_response()
}

/// How others reach the port.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Where it listens.
    pub listens: SocketAddr,
    /// The host's address, where somebody said it.
    pub host: Option<String>,
}

impl Reach {
    /// The address for others: the one it listens on, or the host's, which the node object knows too.
    pub fn address(&self, of_node: Option<&str>) -> Option<String> {
        let port = self.listens.port();
        match (self.listens.ip().is_unspecified(), self.host.as_deref().or(of_node)) {
            (false, _) => Some(self.listens.to_string()),
            (true, Some(host)) if host.contains(':') => Some(format!("[{host}]:{port}")),
            (true, Some(host)) => Some(format!("{host}:{port}")),
            (true, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_hosts_unless_it_listens_on_its_own() {
        let on = |text: &str, host: Option<&str>| Reach { listens: text.parse().unwrap(), host: host.map(Into::into) };
        assert_eq!(on("127.0.0.1:9", Some("10.0.0.1")).address(None), Some("127.0.0.1:9".into()));
        assert_eq!(on("0.0.0.0:9", Some("10.0.0.1")).address(Some("10.0.0.2")), Some("10.0.0.1:9".into()));
        assert_eq!(on("[::]:9", None).address(Some("fd00::1")), Some("[fd00::1]:9".into()));
        assert_eq!(on("0.0.0.0:9", None).address(None), None);
    }
}
