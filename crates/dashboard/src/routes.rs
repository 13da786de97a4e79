//! What browsers ask for: the page, the picture, a stream of what changes, a pod's story.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use divvy_core::id::PodKey;
use futures::Stream;
use serde::Deserialize;
use serde_json::json;

use crate::access::{Access, Denied, Sight};
use crate::assets;
use crate::shared::Shared;

/// Least time between two updates to one viewer.
const PAUSE: Duration = Duration::from_millis(250);
/// Cookie in which a browser keeps its token: a stream cannot carry a header.
const COOKIE: &str = "divvy-token";
/// Only what this page brought itself is loaded or run.
const POLICY: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'";

#[derive(Clone)]
struct Desk {
    shared: Shared,
    access: Access,
    over_tls: bool,
}

/// Everything the dashboard answers. Over TLS a browser is told to send the token over TLS alone.
pub fn routes(shared: Shared, access: Access, over_tls: bool) -> Router {
    let mut router = Router::new();
    for asset in assets::ALL {
        let serve = || async {
            let headers = [
                (header::CONTENT_TYPE, asset.kind),
                (header::CACHE_CONTROL, "no-cache"),
                (header::CONTENT_SECURITY_POLICY, POLICY),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
                (header::REFERRER_POLICY, "no-referrer"),
            ];
            (headers, asset.body)
        };
        router = router.route(asset.path, get(serve));
    }
    router
        .route("/api/cluster", get(cluster))
        .route("/api/stream", get(stream))
        .route("/api/pods/{namespace}/{name}", get(story))
        .route("/api/login", post(login))
        .with_state(Desk { shared, access, over_tls })
}

impl Desk {
    async fn sight(&self, headers: &HeaderMap) -> Result<Sight, Denied> {
        let namespaces = self.shared.look(|board| board.namespaces());
        self.access.sight(token(headers).as_deref(), namespaces).await
    }
}

/// A request that is not answered.
struct Refusal(Denied);

impl From<Denied> for Refusal {
    fn from(denied: Denied) -> Refusal {
        Refusal(denied)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match &self.0 {
            Denied::NoToken => StatusCode::UNAUTHORIZED,
            Denied::Nothing { .. } => StatusCode::FORBIDDEN,
            Denied::Unavailable(_) => StatusCode::BAD_GATEWAY,
            Denied::Busy => StatusCode::TOO_MANY_REQUESTS,
        };
        (status, Json(json!({"error": self.0.to_string()}))).into_response()
    }
}

/// The token of a request: its bearer header, or our cookie.
fn token(headers: &HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let bearer = headers.get(header::AUTHORIZATION).and_then(text);
    if let Some(token) = bearer.as_deref().and_then(|value| value.strip_prefix("Bearer ")) {
        return Some(token.trim().to_owned());
    }
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(text).collect::<Vec<_>>().join("; ");
    let ours = cookies.split("; ").find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='));
    ours.filter(|token| !token.is_empty()).map(str::to_owned)
}

async fn cluster(State(desk): State<Desk>, headers: HeaderMap) -> Result<Response, Refusal> {
    let sight = desk.sight(&headers).await?;
    Ok(Json(desk.shared.look(|board| board.cluster(&sight))).into_response())
}

async fn story(
    State(desk): State<Desk>,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let sight = desk.sight(&headers).await?;
    let found = sight.sees(&namespace).then(|| {
        let key = PodKey::new(namespace.as_str(), name.as_str());
        desk.shared.look(|board| board.story(&key)).map(|mut story| {
            story.neighbours.iter_mut().for_each(|other| {
                if !other.split_once('/').is_some_and(|(namespace, _)| sight.sees(namespace)) {
                    "a pod of another namespace".clone_into(other);
                }
            });
            story
        })
    });
    Ok(match found.flatten() {
        Some(story) => Json(story).into_response(),
        None => {
            let error = format!("no pod {namespace}/{name} that asks for devices is known here, or you may not see it");
            (StatusCode::NOT_FOUND, Json(json!({"error": error}))).into_response()
        }
    })
}

/// The whole picture first, then what changes. What a viewer may see is asked again as long as the stream lasts.
async fn stream(
    State(desk): State<Desk>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let sight = desk.sight(&headers).await?;
    let first = desk.shared.look(|board| board.cluster(&sight));
    let begin = Viewer {
        version: first.version,
        sampled: first.history.last().map_or(0, |sample| sample.at),
        changes: desk.shared.watch(),
        first: Some(event("cluster", &first)),
        desk,
        headers,
        sight,
    };
    let events = futures::stream::unfold(begin, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok(event), viewer))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

struct Viewer {
    desk: Desk,
    headers: HeaderMap,
    sight: Sight,
    version: u64,
    sampled: u64,
    changes: tokio::sync::watch::Receiver<u64>,
    first: Option<Event>,
}

impl Viewer {
    /// The next event; none when nobody feeds the board any more, or the viewer may no longer look.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let since = self.version;
        self.changes.wait_for(|version| *version > since).await.ok()?;
        tokio::time::sleep(PAUSE).await;
        let sight = self.desk.sight(&self.headers).await.ok()?;
        if sight != self.sight {
            self.sight = sight;
            let all = self.desk.shared.look(|board| board.cluster(&self.sight));
            self.version = all.version;
            return Some(event("cluster", &all));
        }
        let update = self.desk.shared.look(|board| board.update(self.version, self.sampled, &self.sight));
        self.version = update.version;
        self.sampled = update.history.last().map_or(self.sampled, |sample| sample.at);
        Some(event("update", &update))
    }
}

fn event(name: &str, data: &impl serde::Serialize) -> Event {
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

#[derive(Deserialize)]
struct Login {
    token: String,
}

/// Puts a token that is good into a cookie that scripts cannot read and other sites cannot send.
async fn login(State(desk): State<Desk>, Json(login): Json<Login>) -> Result<Response, Refusal> {
    let token = login.token.trim();
    let namespaces = desk.shared.look(|board| board.namespaces());
    desk.access.sight(Some(token), namespaces).await?;
    let secure = if desk.over_tls { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/{secure}");
    match HeaderValue::from_str(&cookie) {
        Ok(cookie) => Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response()),
        Err(_) => Err(Refusal(Denied::NoToken)),
    }
}

#[cfg(test)]
mod tests;
