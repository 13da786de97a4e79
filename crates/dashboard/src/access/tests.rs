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
async fn the_api_server_is_asked_about_so_many_strangers_and_viewers_look_on() {
    let (access, asked) = access(&["a"], false);
    assert!(access.sight(Some("good"), there()).await.is_ok());
    let before = asked.load(Ordering::Relaxed);
    let mut busy = 0;
    for n in 0..2_000 {
        match access.sight(Some(&format!("bad-{n}")), there()).await {
            Err(Denied::Busy) => busy += 1,
            other => assert_eq!(other, Err(Denied::NoToken)),
        }
    }
    assert!(busy > 0, "however long it took");
    assert_eq!(asked.load(Ordering::Relaxed) - before, 2_000 - busy);
    // Its review has grown old meanwhile.
    let Access::Kubernetes(gate) = &access else { panic!("open") };
    for (at, _) in gate.known.lock().unwrap().values_mut() {
        *at = at.checked_sub(BELIEVED).unwrap();
    }
    assert!(access.sight(Some("good"), there()).await.is_ok());
    assert_eq!(access.sight(Some(&"x".repeat(LONGEST + 1)), there()).await, Err(Denied::NoToken));
}

#[test]
fn strangers_are_asked_about_again_when_time_has_passed() {
    let begin = Instant::now();
    let mut strangers = Strangers { may: 0.0, at: begin };
    assert!(!strangers.one_more(begin));
    let later = begin + Duration::from_secs(1);
    assert_eq!((0..100).filter(|_| strangers.one_more(later)).count(), 10);
    let long_after = later + Duration::from_secs(3_600);
    assert_eq!((0..1_000).filter(|_| strangers.one_more(long_after)).count(), 100);
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
