//! The demo answers its own page alone. Anybody on this machine may use it, but a web page from elsewhere, open in a browser here, may not:
//! it would come under the name of its own site (DNS rebinding), or say where it is from.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Lets a request pass that asks for this machine by its address or as `localhost`, from a page of the same origin or from none.
pub(super) async fn alone(request: Request, next: Next) -> Response {
    if is_own(request.headers()) {
        return next.run(request).await;
    }
    let message = "the demo is asked for as localhost or by its address, and by its own page alone\n";
    (StatusCode::FORBIDDEN, message).into_response()
}

fn is_own(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let Some(host) = text(header::HOST) else { return false };
    let from_here = text(header::ORIGIN).is_none_or(|origin| origin == format!("http://{host}"));
    is_here(host) && from_here
}

/// `localhost`, or an address: names can be made to mean this machine, numbers cannot.
fn is_here(host: &str) -> bool {
    let Ok(uri) = host.parse::<Uri>() else { return false };
    let name = uri.host().unwrap_or_default();
    name == "localhost" || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_from_elsewhere_is_not_answered() {
        let asked = |host: Option<&str>, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            host.map(|host| headers.insert(header::HOST, host.parse().unwrap()));
            origin.map(|origin| headers.insert(header::ORIGIN, origin.parse().unwrap()));
            is_own(&headers)
        };
        for host in ["localhost:8088", "127.0.0.1:8088", "[::1]:8088", "10.0.0.7"] {
            assert!(asked(Some(host), None) && asked(Some(host), Some(&format!("http://{host}"))), "{host}");
            assert!(!asked(Some(host), Some("http://evil.test")) && !asked(Some(host), Some("null")), "{host}");
        }
        assert!(!asked(Some("evil.test:8088"), None) && !asked(Some("localhost.evil.test"), None));
        assert!(!asked(Some("evil.test"), Some("http://evil.test")) && !asked(None, None) && !asked(Some(""), None));
    }
}
