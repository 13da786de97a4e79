//! What people may do to the demo: submit a pod, break a card, change the speed.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use divvy_embedded::Simulation;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::clock::Clock;

/// The answer to a wish.
type Answer = Result<Value, String>;

/// A wish, and where its answer goes.
pub(crate) struct Wish {
    what: What,
    answer: oneshot::Sender<Answer>,
}

enum What {
    Submit(Value),
    Break { node: String, card: usize },
    Speed(u32),
}

impl Wish {
    /// Does what is wished.
    pub(crate) fn grant(self, simulation: &mut Simulation, clock: &mut Clock) {
        let answer = match self.what {
            What::Submit(pod) => submit(simulation, pod),
            What::Break { node, card } => match simulation.fail_card(&node, card) {
                Some(device) => Ok(json!({"failed": device})),
                None => Err(format!("there is no card {card} of a node {node:?} that works")),
            },
            What::Speed(speed) => {
                clock.set_speed(speed);
                Ok(json!({"speed": speed}))
            }
        };
        // Whoever wished may have left.
        let _ = self.answer.send(answer);
    }
}

/// The webhook reads the manifest, the scheduler places it if it can; what became of it is the answer.
fn submit(simulation: &mut Simulation, pod: Value) -> Answer {
    let target = simulation.submit(pod).map_err(|refused| refused.message)?;
    let store = simulation.cluster().lock();
    let pod = store.pod(&target.uid).ok_or("it is gone already")?;
    let why = pod["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == "PodScheduled");
    Ok(json!({
        "pod": target.pod.to_string(),
        "node": pod["spec"]["nodeName"],
        "waits": why.filter(|c| c["status"] == "False").map(|c| c["message"].clone()),
    }))
}

/// Where wishes are heard.
pub(crate) fn routes(wish: mpsc::Sender<Wish>) -> Router {
    Router::new()
        .route("/api/demo/pods", post(pods))
        .route("/api/demo/speed/{speed}", post(speed))
        .route("/api/demo/fail/{node}/{card}", post(fail))
        .with_state(wish)
}

type Reply = (StatusCode, Json<Value>);

async fn ask(wish: &mpsc::Sender<Wish>, what: What) -> Reply {
    let (answer, heard) = oneshot::channel();
    let refused = |code: StatusCode, error: String| (code, Json(json!({"error": error})));
    if wish.send(Wish { what, answer }).await.is_err() {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "the day is over".into());
    }
    match heard.await {
        Ok(Ok(value)) => (StatusCode::OK, Json(value)),
        Ok(Err(error)) => refused(StatusCode::BAD_REQUEST, error),
        Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "the day is over".into()),
    }
}

async fn pods(State(wish): State<mpsc::Sender<Wish>>, manifest: String) -> Reply {
    match serde_saphyr::from_str::<Value>(&manifest) {
        Ok(pod) if pod["kind"] == "Pod" => ask(&wish, What::Submit(pod)).await,
        Ok(pod) => {
            let error = format!("the demo takes one Pod at a time, not kind {}", pod["kind"]);
            (StatusCode::BAD_REQUEST, Json(json!({"error": error})))
        }
        Err(error) => (StatusCode::BAD_REQUEST, Json(json!({"error": format!("not YAML: {error}")}))),
    }
}

async fn speed(State(wish): State<mpsc::Sender<Wish>>, Path(speed): Path<u32>) -> Reply {
    if speed > 3_600 {
        let error = "the day goes at most 3600 times as fast as real time".to_owned();
        return (StatusCode::BAD_REQUEST, Json(json!({"error": error})));
    }
    ask(&wish, What::Speed(speed)).await
}

async fn fail(State(wish): State<mpsc::Sender<Wish>>, Path((node, card)): Path<(String, usize)>) -> Reply {
    ask(&wish, What::Break { node, card }).await
}
