//! Alive, ready, measured: what Kubernetes and Prometheus ask every process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;

/// What the process knows about itself. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// What must have happened before the process is ready, and whether it has.
    conditions: BTreeMap<&'static str, bool>,
    /// Loops that must come by every so often.
    loops: BTreeMap<&'static str, (Instant, Duration)>,
}

impl Health {
    /// Nothing to wait for yet.
    pub fn new() -> Health {
        Health::default()
    }

    /// Names something that must happen before the process is ready (`caches filled`, `certificate made`). Not met yet.
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition { health: self.clone(), name };
        condition.set(false);
        condition
    }

    /// Names a loop that comes by at least every `within`: a process whose loop is stuck is not alive, whatever its sockets say.
    pub fn pulse(&self, name: &'static str, within: Duration) -> Pulse {
        let pulse = Pulse { health: self.clone(), name, within };
        pulse.beat();
        pulse
    }

    /// The conditions that are not met.
    pub fn unready(&self) -> Vec<&'static str> {
        self.state(|s| s.conditions.iter().filter(|(_, met)| !**met).map(|(name, _)| *name).collect())
    }

    /// The loops that did not come by in time.
    pub fn stuck(&self) -> Vec<&'static str> {
        self.state(|s| {
            s.loops.iter().filter(|(_, (seen, within))| seen.elapsed() > *within).map(|(name, _)| *name).collect()
        })
    }

    fn state<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One thing a process waits for before it is ready.
#[derive(Clone, Debug)]
pub struct Condition {
    health: Health,
    name: &'static str,
}

impl Condition {
    /// Says whether it is so now.
    pub fn set(&self, met: bool) {
        self.health.state(|s| s.conditions.insert(self.name, met));
    }
}

/// The heartbeat of one loop.
#[derive(Clone, Debug)]
pub struct Pulse {
    health: Health,
    name: &'static str,
    within: Duration,
}

impl Pulse {
    /// The loop came by.
    pub fn beat(&self) {
        self.health.state(|s| s.loops.insert(self.name, (Instant::now(), self.within)));
    }
}

/// `/healthz`, `/readyz` and `/metrics`.
pub fn routes(health: Health, registry: Arc<Registry>) -> Router {
    let probes = Router::new()
        .route("/healthz", get(|State(health): State<Health>| async move { verdict("stuck", &health.stuck()) }))
        .route("/readyz", get(|State(health): State<Health>| async move { verdict("waiting for", &health.unready()) }))
        .with_state(health);
    let metrics = Router::new().route("/metrics", get(metrics)).with_state(registry);
    probes.merge(metrics)
}

fn verdict(what: &str, names: &[&str]) -> (StatusCode, String) {
    match names {
        [] => (StatusCode::OK, "ok\n".to_owned()),
        names => (StatusCode::SERVICE_UNAVAILABLE, format!("{what}: {}\n", names.join(", "))),
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &registry) {
        Ok(()) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text)
        }
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            format!("cannot encode: {error}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use tower::ServiceExt;

    async fn ask(routes: &Router, path: &str) -> (StatusCode, String) {
        let request = http::Request::get(path).body(Body::empty()).unwrap();
        let reply = routes.clone().oneshot(request).await.unwrap();
        let status = reply.status();
        let body = axum::body::to_bytes(reply.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing() {
        let health = Health::new();
        let routes = routes(health.clone(), Arc::default());
        let caches = health.condition("caches filled");
        assert_eq!(
            ask(&routes, "/readyz").await,
            (StatusCode::SERVICE_UNAVAILABLE, "waiting for: caches filled\n".into())
        );
        caches.set(true);
        assert_eq!(ask(&routes, "/readyz").await, (StatusCode::OK, "ok\n".into()));
    }

    #[tokio::test]
    async fn a_stuck_loop_is_not_alive() {
        let health = Health::new();
        let routes = routes(health.clone(), Arc::default());
        let pulse = health.pulse("scheduling", Duration::from_secs(3600));
        assert_eq!(ask(&routes, "/healthz").await.0, StatusCode::OK);
        let stuck = health.pulse("lease", Duration::ZERO);
        stuck.beat();
        assert_eq!(ask(&routes, "/healthz").await, (StatusCode::SERVICE_UNAVAILABLE, "stuck: lease\n".into()));
        pulse.beat();
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_text() {
        let mut registry = Registry::default();
        let counter: prometheus_client::metrics::counter::Counter = Default::default();
        registry.register("divvy_attempts", "Placement attempts", counter.clone());
        counter.inc();
        let (status, text) = ask(&routes(Health::new(), Arc::new(registry)), "/metrics").await;
        assert_eq!(status, StatusCode::OK);
        assert!(text.contains("divvy_attempts_total 1"), "{text}");
    }
}
