//! The HTTP read API: balances for whoever may read a namespace's budgets.
//!
//! `GET /budget/{namespace}` (where GPUSharing's users know it) and `GET /budgets`. The caller's bearer token is the API server's to
//! judge (TokenReview), and what it may see too (SubjectAccessReview: `get gpubudgets` in the namespace, `list` in all).

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use divvy_cluster::Failure;
use divvy_core::id::Namespace;
use divvy_core::keys;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// A question to the controller.
#[derive(Debug)]
pub struct Question {
    /// About this namespace, or all.
    pub about: Option<Namespace>,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Value>,
}

/// Who judges callers.
pub trait Judge: Clone + Send + Sync + 'static {
    /// May the bearer of this token read the budgets of this namespace (or of all)? The error is the status to answer with.
    fn may(
        &self,
        token: &str,
        namespace: Option<&str>,
    ) -> impl Future<Output = Result<(), (StatusCode, String)>> + Send;
}

/// The API server judges.
#[derive(Clone)]
pub struct ApiServer(pub Client);

impl Judge for ApiServer {
    async fn may(&self, token: &str, namespace: Option<&str>) -> Result<(), (StatusCode, String)> {
        let unavailable =
            |failure: Failure| (StatusCode::SERVICE_UNAVAILABLE, format!("the API server cannot be asked: {failure}"));
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token},
        });
        let who: Value = divvy_cluster::post(&self.0, "/apis/authentication.k8s.io/v1/tokenreviews", &review)
            .await
            .map_err(unavailable)?;
        if who["status"]["authenticated"] != true {
            return Err((StatusCode::UNAUTHORIZED, "the token is not one of this cluster's".to_owned()));
        }
        let user = &who["status"]["user"];
        let verb = if namespace.is_some() { "get" } else { "list" };
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": user["username"], "uid": user["uid"], "groups": user["groups"], "extra": user["extra"],
                "resourceAttributes": {"group": keys::GROUP, "resource": "gpubudgets", "verb": verb, "namespace": namespace.unwrap_or("")},
            },
        });
        let may: Value = divvy_cluster::post(&self.0, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review)
            .await
            .map_err(unavailable)?;
        if may["status"]["allowed"] == true {
            return Ok(());
        }
        let place = namespace.map_or("in all namespaces".to_owned(), |name| format!("in namespace {name}"));
        let name = user["username"].as_str().unwrap_or("you");
        Err((StatusCode::FORBIDDEN, format!("{name} may not {verb} gpubudgets {place}")))
    }
}

#[derive(Clone)]
struct Desk<J> {
    judge: J,
    ask: mpsc::Sender<Question>,
}

/// The routes.
pub fn routes<J: Judge>(judge: J, ask: mpsc::Sender<Question>) -> Router {
    Router::new()
        .route("/budget/{namespace}", get(one::<J>))
        .route("/budgets", get(all::<J>))
        .with_state(Desk { judge, ask })
}

async fn one<J: Judge>(State(desk): State<Desk<J>>, Path(namespace): Path<String>, headers: HeaderMap) -> Response {
    answer(&desk, &headers, Some(&namespace)).await
}

async fn all<J: Judge>(State(desk): State<Desk<J>>, headers: HeaderMap) -> Response {
    answer(&desk, &headers, None).await
}

async fn answer<J: Judge>(desk: &Desk<J>, headers: &HeaderMap, namespace: Option<&str>) -> Response {
    let refused = |(status, message): (StatusCode, String)| (status, Json(json!({"error": message}))).into_response();
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = bearer.and_then(|value| value.strip_prefix("Bearer ")) else {
        return refused((StatusCode::UNAUTHORIZED, "send a token: Authorization: Bearer TOKEN".to_owned()));
    };
    if let Err(refusal) = desk.judge.may(token.trim(), namespace).await {
        return refused(refusal);
    }
    let (answer, answered) = oneshot::channel();
    let question = Question { about: namespace.map(Namespace::from), answer };
    let not_now = || refused((StatusCode::SERVICE_UNAVAILABLE, "the books are not open yet; try again".to_owned()));
    if desk.ask.send(question).await.is_err() {
        return not_now();
    }
    match answered.await {
        Ok(Value::Null) | Err(_) => not_now(),
        Ok(view) => Json(view).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    /// `alice` may read team-a, `root` everything.
    #[derive(Clone)]
    struct Names;

    impl Judge for Names {
        async fn may(&self, token: &str, namespace: Option<&str>) -> Result<(), (StatusCode, String)> {
            match (token, namespace) {
                ("root", _) | ("alice", Some("team-a")) => Ok(()),
                ("alice", _) => Err((StatusCode::FORBIDDEN, "no".into())),
                _ => Err((StatusCode::UNAUTHORIZED, "who?".into())),
            }
        }
    }

    async fn ask(path: &str, token: Option<&str>) -> (StatusCode, Value) {
        let (to, mut questions) = mpsc::channel::<Question>(4);
        let answering = tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                let _ = question.answer.send(json!({"about": question.about}));
            }
        });
        let mut request = Request::get(path);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let reply = routes(Names, to).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let status = reply.status();
        let bytes = axum::body::to_bytes(reply.into_body(), 1 << 20).await.unwrap();
        answering.abort();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    #[tokio::test]
    async fn a_namespace_is_shown_to_those_who_may_read_its_budgets() {
        assert_eq!(ask("/budget/team-a", Some("alice")).await, (StatusCode::OK, json!({"about": "team-a"})));
        assert_eq!(ask("/budget/team-b", Some("alice")).await.0, StatusCode::FORBIDDEN);
        assert_eq!(ask("/budgets", Some("alice")).await.0, StatusCode::FORBIDDEN);
        assert_eq!(ask("/budgets", Some("root")).await.0, StatusCode::OK);
        assert_eq!(ask("/budget/team-a", Some("mallory")).await.0, StatusCode::UNAUTHORIZED);
        assert_eq!(ask("/budget/team-a", None).await.0, StatusCode::UNAUTHORIZED);
    }
}
