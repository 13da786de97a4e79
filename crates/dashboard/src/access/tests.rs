use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use axum::body::Body;

/// An API server that knows one token, whose owner may list pods in these namespaces.
fn access(namespaces: &'static [&'static str], everywhere: bool) -> (Access, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        counter.fetch_add(1, Ordering::Relaxed);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let status = if path.ends_with("tokenreviews") {
                match asked["spec"]["token"].as_str() {
                    Some("good") => json!({"authenticated": true, "user": {"username": "ada", "groups": ["dev"]}}),
                    _ => json!({"authenticated": false}),
                }
            } else {
                assert_eq!((&asked["spec"]["user"], &asked["spec"]["groups"][0]), (&json!("ada"), &json!("dev")));
                let allowed = match asked["spec"]["resourceAttributes"]["namespace"].as_str() {
                    None => everywhere,
                    Some(namespace) => namespaces.contains(&namespace),
                };
                json!({"allowed": allowed})
            };
            let reply = json!({"status": status}).to_string();
            Ok::<_, std::convert::Infallible>(http::Response::builder().status(201).body(Body::from(reply)).unwrap())
        }
    });
    (Access::kubernetes(Client::new(service, "default")), asked)
}

fn there() -> Vec<String> {
    ["a", "b", "c"].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn without_a_good_token_nobody_looks() {
    let (access, _) = access(&["a"], true);
    assert_eq!(access.sight(None, there()).await, Err(Denied::NoToken));
    assert_eq!(access.sight(Some("bad"), there()).await, Err(Denied::NoToken));
}

#[tokio::test]
async fn who_may_list_all_pods_sees_everything_and_is_not_asked_about_twice() {
    let (access, asked) = access(&[], true);
    for _ in 0..3 {
        assert_eq!(access.sight(Some("good"), there()).await, Ok(Sight::All));
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2, "one TokenReview and one SubjectAccessReview");
}

#[tokio::test]
async fn others_see_the_namespaces_whose_pods_they_may_list() {
    let (some, _) = access(&["b"], false);
    let sight = some.sight(Some("good"), there()).await.unwrap();
    assert!(sight.sees("b") && !sight.sees("a") && !sight.sees("c"));
    let (none, _) = access(&[], false);
    let denied = none.sight(Some("good"), there()).await.unwrap_err();
    assert_eq!(denied, Denied::Nothing { user: "ada".into() });
}
