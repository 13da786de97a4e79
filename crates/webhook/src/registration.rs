//! What the API server must know about the webhook: where it is, whom to trust, and which pods to send. Kept current by the webhook
//! itself, field by field (server-side apply), so that a chart may own the same objects.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use divvy_api::managed;
use divvy_cluster::{Failure, apply};
use divvy_core::keys;
use divvy_dialects::DialectConfig;
use kube::Client;
use serde_json::{Value, json};

/// The name of both configuration objects.
pub const NAME: &str = "divvy";
/// The name of the webhook in them.
const WEBHOOK: &str = "pods.divvy.dev";
/// Who owns the fields we write.
const OWNER: &str = "divvy-webhook";

/// Where the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A Service in the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// A URL without a path, for a webhook outside the cluster.
    Url(String),
}

impl Reach {
    fn client_config(&self, path: &str, bundle: &str) -> Value {
        let mut config = match self {
            Reach::Service { namespace, name, port } => {
                json!({"service": {"namespace": namespace, "name": name, "port": port, "path": path}})
            }
            Reach::Url(base) => json!({"url": format!("{base}{path}")}),
        };
        if !bundle.is_empty() {
            config["caBundle"] = json!(BASE64_STANDARD.encode(bundle));
        }
        config
    }
}

/// Writes both configurations. An empty bundle leaves the trust to whoever else keeps it (cert-manager).
pub async fn register(client: &Client, reach: &Reach, bundle: &str, dialects: &DialectConfig) -> Result<(), Failure> {
    for (resource, object) in configurations(reach, bundle, dialects) {
        apply(client, &format!("/apis/admissionregistration.k8s.io/v1/{resource}/{NAME}"), OWNER, &object).await?;
    }
    Ok(())
}

/// Both configurations, by resource.
pub fn configurations(reach: &Reach, bundle: &str, dialects: &DialectConfig) -> [(&'static str, Value); 2] {
    let make = |kind: &str, path: &str, more: Value| {
        let mut webhook = json!({
            "name": WEBHOOK,
            "admissionReviewVersions": ["v1"],
            "clientConfig": reach.client_config(path, bundle),
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "Namespaced"}],
            "matchConditions": [{"name": "asks-for-a-device", "expression": asks_for_a_device(dialects)}],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 10,
        });
        if let (Some(fields), Value::Object(more)) = (webhook.as_object_mut(), more) {
            fields.extend(more);
        }
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": NAME},
            "webhooks": [webhook],
        })
    };
    [
        // A later webhook may add containers: then ours is asked again.
        (
            "mutatingwebhookconfigurations",
            make("MutatingWebhookConfiguration", "/mutate", json!({"reinvocationPolicy": "IfNeeded"})),
        ),
        ("validatingwebhookconfigurations", make("ValidatingWebhookConfiguration", "/validate", json!({}))),
    ]
}

/// The ConfigMap with the names of resources that stand for devices, for the policy under which pods that ask for none see none.
pub const PLAIN_PODS: &str = "divvy-plain-pods";

/// Keeps that ConfigMap, which is installed with the policy (`deploy/blind-plain-pods.yaml`), at the names of now.
pub async fn blind_plain_pods(client: &Client, namespace: &str, dialects: &DialectConfig) -> Result<(), Failure> {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{PLAIN_PODS}");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PLAIN_PODS},
        "data": {"resources": resources(dialects).join(" ")},
    });
    apply(client, &path, OWNER, &object).await
}

/// The condition, in the API server's own expression language, under which a pod is sent here: it has a word of some dialect in its
/// labels, annotations or resources. Everything else is admitted without us. What the policy may change of it, the names of resources,
/// stands before the rest, which `deploy/admission-policy.yaml` holds us to.
pub fn asks_for_a_device(dialects: &DialectConfig) -> String {
    let names: Vec<String> = resources(dialects).iter().map(|name| quoted(name)).collect();
    format!("[[{}]]{}", names.join(", "), asks())
}

/// The names of resources that stand for devices. A name that no extended resource can have stands for none.
fn resources(dialects: &DialectConfig) -> Vec<String> {
    let is_resource = |name: &str| {
        let allowed = |text: &str, more: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
        };
        name.split_once('/').is_some_and(|(domain, rest)| {
            allowed(domain, ".-") && !domain.contains(|c: char| c.is_ascii_uppercase()) && allowed(rest, "._-")
        })
    };
    managed::names(dialects).into_iter().filter(|name| is_resource(name)).collect()
}

/// The part of the condition that no policy changes; `names` are the resources.
fn asks() -> String {
    let starts =
        |names: &[&str]| names.iter().map(|p| format!("k.startsWith({})", quoted(p))).collect::<Vec<_>>().join(" || ");
    let asked = format!("k, {} || k in names", starts(&managed::PREFIXES));
    let in_containers = |list: &str| {
        format!(
            "(has(object.spec.{list}) && object.spec.{list}.exists(c, has(c.resources) && \
             ((has(c.resources.limits) && c.resources.limits.exists({asked})) || \
             (has(c.resources.requests) && c.resources.requests.exists({asked})))))"
        )
    };
    let annotations = format!(
        "(has(object.metadata.annotations) && object.metadata.annotations.exists(k, {} || k in [{}, {}]))",
        starts(&[keys::DOMAIN, keys::KUBESHARE1_DOMAIN]),
        quoted(keys::KUBEGPU_DEVICE_INFO),
        quoted(keys::KUBEGPU_POD_2018),
    );
    let labels = format!(
        "(has(object.metadata.labels) && object.metadata.labels.exists(k, {}))",
        starts(&[keys::KUBESHARE_DOMAIN, keys::DOMAIN])
    );
    let any = [annotations, labels, in_containers("containers"), in_containers("initContainers")].join(" || ");
    format!(".exists(names, {any})")
}

/// A name as a string of the expression language. Names have no quotes.
fn quoted(name: &str) -> String {
    format!("'{name}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_resource_is_in_the_condition_and_what_can_be_none_is_not() {
        for (name, is_there) in
            [("acme.com/a-gpu", true), ("cpu", false), ("acme.com/a'||true||'", false), ("/gpu", false)]
        {
            let mut dialects = DialectConfig::default();
            dialects.vgpu.names.resource_name = name.into();
            let condition = asks_for_a_device(&dialects);
            assert_eq!(condition.contains(&format!("'{name}'")), is_there, "{condition}");
            assert!(condition.contains("'tencent.com/vcuda-core'"));
        }
    }

    /// Compares what stands in a file of `deploy` between two marks, the first time they occur, with what should stand there.
    fn installed(file: &str, parts: &[(&str, &str, &str)]) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
        let found = std::fs::read_to_string(&path).unwrap();
        let expected = parts.iter().fold(found.clone(), |text, (from, to, part)| {
            let (before, rest) = text.split_once(from).unwrap();
            let (_, after) = rest.split_once(to).unwrap();
            format!("{before}{from}{part}{to}{after}")
        });
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, &expected).unwrap();
        }
        assert!(found == expected, "deploy/{file} is out of date: see this test");
    }

    /// `UPDATE=1 cargo test -p divvy-webhook installed_policy` writes it.
    #[test]
    fn the_installed_policy_holds_us_to_the_condition_that_is_registered() {
        installed("admission-policy.yaml", &[("\"\"\"", "\"\"\"", &asks())]);
    }

    /// `UPDATE=1 cargo test -p divvy-webhook sees_nothing` writes it.
    #[test]
    fn a_pod_is_sent_here_or_sees_nothing() {
        let names = format!("\"{}\"", resources(&DialectConfig::default()).join(" "));
        installed("blind-plain-pods.yaml", &[("  resources: ", "\n", &names), ("split(' ')]", "\n", &asks())]);
    }

    #[test]
    fn the_bundle_is_base64_and_an_empty_one_is_left_to_others() {
        let reach = Reach::Url("https://127.0.0.1:9443".into());
        let [(_, mutating), (_, validating)] = configurations(&reach, "PEM", &DialectConfig::default());
        assert_eq!(
            mutating["webhooks"][0]["clientConfig"],
            json!({"url": "https://127.0.0.1:9443/mutate", "caBundle": "UEVN"})
        );
        assert_eq!(validating["webhooks"][0]["failurePolicy"], "Fail");
        let reach = Reach::Service { namespace: "n".into(), name: "s".into(), port: 443 };
        let [(_, mutating), _] = configurations(&reach, "", &DialectConfig::default());
        assert_eq!(
            mutating["webhooks"][0]["clientConfig"],
            json!({"service": {"namespace": "n", "name": "s", "port": 443, "path": "/mutate"}})
        );
    }
}
