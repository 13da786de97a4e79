//! Events, as `kubectl describe` shows them. The same news about the same object is one event with a count.

use std::hash::{DefaultHasher, Hash, Hasher};

use kube::Client;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::effect::{About, Event, Failure};
use crate::request;

/// The API server refuses a longer one.
const LONGEST: usize = 1024;

pub(super) async fn carry_out(client: &Client, reporter: &str, event: &Event) -> Result<(), Failure> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let (namespace, object, subject) = subject(&event.about);
    let name = format!("{subject}.{:016x}", fingerprint(event));
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": object,
        "reason": event.reason,
        "message": shortened(&event.message),
        "type": if event.warning { "Warning" } else { "Normal" },
        "source": {"component": reporter},
        "reportingComponent": reporter,
        "reportingInstance": reporter,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    });
    let list = format!("/api/v1/namespaces/{namespace}/events");
    match request::post::<IgnoredAny>(client, &list, &body).await {
        Ok(_) => Ok(()),
        Err(Failure::Conflict { .. }) => again(client, &format!("{list}/{name}"), &now).await,
        Err(failure) => Err(failure),
    }
}

/// It was told before: count it.
async fn again(client: &Client, path: &str, now: &str) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Told {
        #[serde(default)]
        count: u64,
    }
    let told: Told = request::get(client, path).await?;
    let body = json!({"count": told.count + 1, "lastTimestamp": now});
    request::patch::<IgnoredAny>(client, path, &body).await?;
    Ok(())
}

/// The namespace the event lives in, the reference to its object, and the start of its name.
fn subject(about: &About) -> (String, Value, String) {
    match about {
        About::Pod(target) => {
            let (namespace, name) = (target.pod.namespace.to_string(), target.pod.name.to_string());
            let object =
                json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": target.uid});
            (namespace, object, name)
        }
        About::Node(node) => {
            let object = json!({"apiVersion": "v1", "kind": "Node", "name": node, "uid": node});
            ("default".to_owned(), object, node.to_string())
        }
    }
}

/// The same for the same news about the same object.
fn fingerprint(event: &Event) -> u64 {
    let mut hasher = DefaultHasher::new();
    match &event.about {
        About::Pod(target) => target.uid.hash(&mut hasher),
        About::Node(node) => node.hash(&mut hasher),
    }
    event.reason.hash(&mut hasher);
    event.message.hash(&mut hasher);
    hasher.finish()
}

fn shortened(message: &str) -> &str {
    match message.char_indices().nth(LONGEST) {
        None => message,
        Some((end, _)) => &message[..end],
    }
}
