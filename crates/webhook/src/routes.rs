//! The webhook's HTTP routes: `/mutate`, `/validate`, and `/webhook`, where the vGPU scheduler's users have theirs registered.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use divvy_api::admission::{self, Request, ReviewIn, Verdict};
use divvy_api::bounded::Unread;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::sync::watch;

use crate::admit;
use crate::settings::Settings;
use crate::standing::Standings;

/// The largest review, in bytes: a pod of at most 1.5 MiB, the most that Kubernetes stores, in an envelope. A created pod has no second
/// object beside it.
const LARGEST: usize = 3 << 20;

/// Labels of namespaces, kept by whoever watches them.
#[derive(Clone, Debug, Default)]
pub struct Namespaces(Arc<RwLock<BTreeMap<String, Value>>>);

impl Namespaces {
    /// A namespace has these labels now.
    pub fn put(&self, name: &str, labels: &BTreeMap<String, String>) {
        let labels = labels.iter().map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect();
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), Value::Object(labels));
    }

    /// A namespace is gone.
    pub fn remove(&self, name: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn labels(&self, name: &str) -> Value {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned().unwrap_or(Value::Null)
    }
}

/// What the routes work with.
#[derive(Clone)]
pub struct Admission {
    /// What the policy says, now.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// Labels of namespaces.
    pub namespaces: Namespaces,
    /// How namespaces stand with their budgets and quotas.
    pub standings: Standings,
    /// What is counted.
    pub metrics: Metrics,
}

/// What is counted.
#[derive(Clone, Debug)]
pub struct Metrics {
    reviews: Family<Outcome, Counter>,
    seconds: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    webhook: &'static str,
    outcome: &'static str,
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Metrics {
        let metrics = Metrics {
            reviews: Family::default(),
            seconds: Histogram::new([0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0]),
        };
        registry.register("divvy_admission_reviews", "Admission reviews by outcome", metrics.reviews.clone());
        registry.register("divvy_admission_seconds", "Seconds taken by an admission review", metrics.seconds.clone());
        metrics
    }
}

/// The routes.
pub fn routes(admission: Admission) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/webhook", post(mutate))
        .route("/validate", post(validate))
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(admission)
}

async fn mutate(State(admission): State<Admission>, body: Bytes) -> Response {
    answer(&admission, "mutate", &body, admit::mutate)
}

async fn validate(State(admission): State<Admission>, body: Bytes) -> Response {
    answer(&admission, "validate", &body, admit::validate)
}

/// [`admit::mutate`] or [`admit::validate`].
type Decide = fn(&Request, &Value, &Value, &Settings) -> Verdict;

fn answer(admission: &Admission, webhook: &'static str, body: &[u8], decide: Decide) -> Response {
    let began = Instant::now();
    let review: ReviewIn = match serde_json::from_slice(body) {
        Ok(review) => review,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {error}\n")).into_response(),
    };
    let request = &review.request;
    let verdict = if admit::concerns_us(request) {
        let object = admission::object(body);
        object.map_or_else(unread, |pod| decided(admission, request, &pod, decide))
    } else {
        Verdict::allow()
    };
    let outcome = match &verdict {
        Verdict::Allow { patch, .. } if patch.is_empty() => "unchanged",
        Verdict::Allow { .. } => "patched",
        Verdict::Deny { message, .. } => {
            tracing::info!(
                namespace = request.namespace,
                pod = request.name,
                user = request.user_info.username,
                message,
                "refused"
            );
            "refused"
        }
    };
    admission.metrics.reviews.get_or_create(&Outcome { webhook, outcome }).inc();
    admission.metrics.seconds.observe(began.elapsed().as_secs_f64());
    Json(verdict.answer(&review)).into_response()
}

fn decided(admission: &Admission, request: &Request, pod: &Value, decide: Decide) -> Verdict {
    let labels = admission.namespaces.labels(&request.namespace);
    let standing = admission.standings.of(&request.namespace, &texts(&labels));
    let settings = Settings { standing, ..(**admission.settings.borrow()).clone() };
    decide(request, pod, &labels, &settings)
}

fn unread(error: Unread) -> Verdict {
    match error {
        Unread::TooLarge(_) => Verdict::too_large(format!(
            "this pod is larger than the pods that Divvy reads: {error}; \
             give it fewer environment variables, or keep them in a ConfigMap"
        )),
        Unread::Json(error) => Verdict::invalid(format!("this pod cannot be read: {error}")),
    }
}

/// Labels as a map of texts.
fn texts(labels: &Value) -> BTreeMap<String, String> {
    let pairs = labels.as_object().into_iter().flatten();
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use serde_json::json;
    use tower::ServiceExt;

    async fn ask(path: &str, body: String) -> (StatusCode, String) {
        let admission = Admission {
            settings: watch::Sender::new(Arc::new(Settings::default())).subscribe(),
            namespaces: Namespaces::default(),
            standings: Standings::default(),
            metrics: Metrics::register(&mut Registry::default()),
        };
        let request = axum::http::Request::post(path).body(Body::from(body)).unwrap();
        let reply = routes(admission).oneshot(request).await.unwrap();
        let status = reply.status();
        let bytes = axum::body::to_bytes(reply.into_body(), LARGEST).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_review_is_answered_under_its_uid() {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "u7", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": {"kind": "Pod"}}});
        for path in ["/mutate", "/validate", "/webhook"] {
            let (status, body) = ask(path, review.to_string()).await;
            assert_eq!(status, StatusCode::OK);
            let reply: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(reply["response"], json!({"uid": "u7", "allowed": true}));
        }
    }

    #[tokio::test]
    async fn what_is_not_a_review_is_a_bad_request() {
        for body in ["", "[]", "{\"request\":{}}", "\u{0}"] {
            assert_eq!(ask("/mutate", body.to_owned()).await.0, StatusCode::BAD_REQUEST, "{body:?}");
        }
    }
}
