use axum::body::Body;
use divvy_core::time::Time;
use http_body_util::BodyExt;
use tower::ServiceExt;

use super::*;

async fn ask(routes: &Router, path: &str) -> Response {
    let request = axum::http::Request::get(path).body(Body::empty()).unwrap();
    routes.clone().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn the_page_and_its_parts_are_there_and_run_nothing_from_elsewhere() {
    let routes = routes(Shared::default(), Access::Open, false);
    for asset in assets::ALL {
        let reply = ask(&routes, asset.path).await;
        assert_eq!(reply.status(), StatusCode::OK, "{}", asset.path);
        assert_eq!(reply.headers()[header::CONTENT_TYPE], asset.kind);
        assert!(reply.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().starts_with("default-src 'self'"));
    }
    assert_eq!(ask(&routes, "/api/pods/a/b").await.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_changes_is_pushed_after_the_whole_picture() {
    let shared = Shared::default();
    let routes = routes(shared.clone(), Access::Open, false);
    let mut body = ask(&routes, "/api/stream").await.into_body();
    let mut next = async || {
        let frame = tokio::time::timeout(Duration::from_secs(60), body.frame()).await.unwrap().unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert!(next().await.starts_with("event: cluster\n"));
    shared.change(|board| board.tell(Time(5), "failed", "n1".into(), "a card".into()));
    let told = next().await;
    assert!(told.starts_with("event: update\n") && told.contains("\"about\":\"n1\""), "{told}");
}

#[test]
fn the_token_comes_by_header_or_by_cookie() {
    let of = |name: header::HeaderName, value: &str| {
        token(&HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]))
    };
    assert_eq!(of(header::AUTHORIZATION, "Bearer abc"), Some("abc".into()));
    assert_eq!(of(header::COOKIE, "x=1; divvy-token=abc; y=2"), Some("abc".into()));
    assert_eq!(of(header::COOKIE, "divvy-token=; other-divvy-token=abc"), None);
    assert_eq!(of(header::AUTHORIZATION, "Basic abc"), None);
}
