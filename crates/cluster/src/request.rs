//! Plain requests to the API server, with a time limit and a failure that says what to do next.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::effect::Failure;

/// How long one request may take. The API server's own limit is a minute; a scheduler that waits that long has better things to do.
const LIMIT: Duration = Duration::from_secs(15);

/// Reads an object.
pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Failure> {
    send(client, Method::GET, path, None, None).await
}

/// Makes an object, or calls a subresource.
pub async fn post<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, Failure> {
    send(client, Method::POST, path, Some("application/json"), Some(body)).await
}

/// Replaces an object.
pub async fn put<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, Failure> {
    send(client, Method::PUT, path, Some("application/json"), Some(body)).await
}

/// Deletes an object, or everything in a list.
pub async fn delete(client: &Client, path: &str) -> Result<(), Failure> {
    send::<serde::de::IgnoredAny>(client, Method::DELETE, path, None, None).await?;
    Ok(())
}

/// Changes an object. An array is a JSON patch; an object is a merge patch (strategic where it is a built-in object's status, so
/// that conditions merge by their type).
pub async fn patch<T: DeserializeOwned>(client: &Client, path: &str, body: &Value) -> Result<T, Failure> {
    let kind = match body {
        Value::Array(_) => "application/json-patch+json",
        _ if path.starts_with("/api/") && path.ends_with("/status") => "application/strategic-merge-patch+json",
        _ => "application/merge-patch+json",
    };
    send(client, Method::PATCH, path, Some(kind), Some(body)).await
}

/// Applies fields of an object as `owner`; the object is made where it is missing, and nobody else's fields are touched.
pub async fn apply(client: &Client, path: &str, owner: &str, body: &Value) -> Result<(), Failure> {
    let path = format!("{path}?fieldManager={owner}&force=true");
    send::<serde::de::IgnoredAny>(client, Method::PATCH, &path, Some("application/apply-patch+yaml"), Some(body))
        .await?;
    Ok(())
}

async fn send<T: DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    kind: Option<&str>,
    body: Option<&Value>,
) -> Result<T, Failure> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(kind) = kind {
        request = request.header(http::header::CONTENT_TYPE, kind);
    }
    let bytes = body.map(|b| b.to_string().into_bytes()).unwrap_or_default();
    let request =
        request.body(bytes).map_err(|e| Failure::Refused { code: 0, message: format!("bad request: {e}") })?;
    match tokio::time::timeout(LIMIT, client.request::<T>(request)).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(failure(error)),
        Err(_) => Err(Failure::Unavailable { message: format!("no answer within {LIMIT:?}") }),
    }
}

/// What a client error means for the one who asked.
pub(crate) fn failure(error: kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => match status.code {
            404 | 410 => Failure::Gone,
            409 => Failure::Conflict { message: status.message.clone() },
            // Too many requests is also how the API server says that a disruption budget has nothing left.
            429 => Failure::Blocked { message: status.message.clone() },
            code @ (400..=499) => Failure::Refused { code, message: status.message.clone() },
            _ => Failure::Unavailable { message: status.message.clone() },
        },
        other => Failure::Unavailable { message: chain(&other) },
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
