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

/// The name of the policy under which pods that ask for nothing see nothing.
pub const PLAIN_PODS: &str = "divvy-plain-pods";

/// Writes the policy under which pods that ask for nothing see nothing. It does so only where it is bound
/// (`deploy/blind-plain-pods.yaml`).
pub async fn blind_plain_pods(client: &Client, dialects: &DialectConfig) -> Result<(), Failure> {
    let path = format!("/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/{PLAIN_PODS}");
    apply(client, &path, OWNER, &plain_pods(dialects)).await
}

/// The API server itself tells the runtime to show no device to the containers of a pod that is not sent here: an image may say
/// otherwise, and so may a pod.
pub fn plain_pods(dialects: &DialectConfig) -> Value {
    let blind = |list: &str| {
        format!(
            "object.spec.{list}.map(c, Object.spec.{list}{{name: c.name, env: [Object.spec.{list}.env{{name: \
             'NVIDIA_VISIBLE_DEVICES', value: 'void'}}]}})"
        )
    };
    let (main, init) = (blind("containers"), blind("initContainers"));
    let change = format!(
        "has(object.spec.initContainers) ? Object{{spec: Object.spec{{containers: {main}, initContainers: {init}}}}} : \
         Object{{spec: Object.spec{{containers: {main}}}}}"
    );
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": PLAIN_PODS},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            },
            "matchConditions": [
                {"name": "asks-for-no-device", "expression": format!("!({})", asks_for_a_device(dialects))},
            ],
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": change}}],
        },
    })
}

/// The condition, in the API server's own expression language, under which a pod is sent here: it has a word of some dialect in its
/// labels, annotations or resources. Everything else is admitted without us.
pub fn asks_for_a_device(dialects: &DialectConfig) -> String {
    let resources = managed::names(dialects);
    let starts =
        |names: &[&str]| names.iter().map(|p| format!("k.startsWith({})", quoted(p))).collect::<Vec<_>>().join(" || ");
    let listed: Vec<String> = resources.iter().map(|name| quoted(name)).collect();
    let asked = format!("k, {} || k in [{}]", starts(&managed::PREFIXES), listed.join(", "));
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
    [annotations, labels, in_containers("containers"), in_containers("initContainers")].join(" || ")
}

/// A name as a string of the expression language. Names of resources have no quotes; a policy that writes one gets it escaped.
fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_resource_is_in_the_condition() {
        let mut dialects = DialectConfig::default();
        dialects.vgpu.names.resource_name = "acme.com/it's-a-gpu".into();
        let condition = asks_for_a_device(&dialects);
        assert!(condition.contains(r"'acme.com/it\'s-a-gpu'"), "{condition}");
        assert!(condition.contains("'tencent.com/vcuda-core'"));
    }

    #[test]
    fn a_pod_is_sent_here_or_sees_nothing() {
        let dialects = DialectConfig::default();
        let policy = plain_pods(&dialects);
        let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
        assert_eq!(condition, format!("!({})", asks_for_a_device(&dialects)));
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
