//! What the accounts of the control plane and of agents may write of which object, tried with their tokens: whoever takes one over has that
//! and no more. That they may do all that Divvy does, every other test shows.

use divvy_core::keys;
use divvy_e2e::install::{AGENT, CONTROLLER, NAMESPACE};
use divvy_e2e::{Kubectl, Namespace};
use serde_json::{Value, json};

use crate::ground::{SHARED, SOON, pod};

/// One try: an object, what is to become of it, and what the refusal says.
type Try = (&'static str, Value, &'static str);

/// Somebody with the controller's token.
fn taken_over(kubectl: &Kubectl) -> Kubectl {
    with_token(kubectl, CONTROLLER, None)
}

/// Somebody with the token of an account, as its pods on a node have it. kubectl looks at an object before it patches it, which the account
/// itself need not: here it may.
fn with_token(kubectl: &Kubectl, account: &str, node: Option<&str>) -> Kubectl {
    let looks = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "looks"}, "rules": [
        {"apiGroups": ["", keys::GROUP], "verbs": ["get"], "resources":
            ["nodes", "nodes/status", "pods/status", "persistentvolumes", "gpubudgets", "gpuquotas"]}]});
    let accounts =
        [CONTROLLER, AGENT].map(|name| json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}));
    let bound = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "looks"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"},
        "subjects": accounts});
    for object in [looks, bound] {
        SHARED.cluster.admin().apply(&object.to_string()).unwrap();
    }
    kubectl.with_kubeconfig(&SHARED.cluster.kubeconfig_of(NAMESPACE, account, node).unwrap())
}

/// Patches an object (`KIND/NAME`, with `@status` its status).
fn patch(kubectl: &Kubectl, object: &str, change: &Value) -> anyhow::Result<String> {
    let (object, status) = object.split_once('@').map_or((object, None), |(object, sub)| (object, Some(sub)));
    let (kind, name) = object.split_once('/').unwrap();
    let subresource = status.map(|sub| format!("--subresource={sub}"));
    // Conditions and containers merge by their names where the API server knows them; gates are replaced.
    let builtin = ["pod", "node"].contains(&kind) && change["spec"]["schedulingGates"].is_null();
    let how = if builtin { "--type=strategic" } else { "--type=merge" };
    let change = change.to_string();
    let mut words = vec!["patch", kind, name, how, "--patch", &change];
    words.extend(subresource.as_deref());
    kubectl.say(&words)
}

/// Tries everything, and says what went through, or was refused in other words.
fn refused(thief: &Kubectl, tries: &[Try]) {
    let mut wrong = Vec::new();
    for (object, change, part) in tries {
        match patch(thief, object, change) {
            Ok(said) => wrong.push(format!("{object} {change}: {said}")),
            Err(error) if format!("{error:#}").contains(part) => {}
            Err(error) => wrong.push(format!("{object} {change}: {part:?} is not in: {error:#}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {} tries:\n{}", wrong.len(), tries.len(), wrong.join("\n"));
}

/// A space with a plain pod that runs for all the API server knows, and one behind two gates.
fn space() -> Namespace<'static> {
    let space = SHARED.cluster.namespace("rights").unwrap();
    space.create(&pod("victim", json!({})).to_string()).unwrap();
    let mut gated = pod("gated", json!({}));
    gated["spec"]["schedulingGates"] = json!([{"name": "theirs"}, {"name": keys::GANG_GATE}]);
    space.create(&gated.to_string()).unwrap();
    space
}

#[test]
fn of_pods_the_controller_changes_its_annotations_its_gate_and_its_conditions_alone() {
    let space = space();
    let thief = taken_over(&space);
    let evil = json!([{"name": "main", "image": "divvy.test/evil:1"}]);
    refused(
        &thief,
        &[
            ("pod/victim", json!({"spec": {"containers": evil}}), "not spec.containers"),
            ("pod/victim", json!({"spec": {"activeDeadlineSeconds": 1}}), "not spec.activeDeadlineSeconds"),
            ("pod/victim", json!({"metadata": {"labels": {"app": "bank"}}}), "not metadata.labels"),
            ("pod/victim", json!({"metadata": {"finalizers": ["a.b/c"]}}), "not metadata.finalizers"),
            ("pod/victim", json!({"metadata": {"annotations": {"note": "x"}}}), "not note"),
            ("pod/victim@status", json!({"metadata": {"labels": {"app": "bank"}}}), "not metadata.labels"),
            ("pod/victim@status", json!({"metadata": {"annotations": {"note": "x"}}}), "not note"),
            ("pod/victim@status", json!({"status": {"phase": "Failed"}}), "not status.phase"),
            (
                "pod/victim@status",
                json!({"status": {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]}}),
                "not status.podIP",
            ),
            (
                "pod/victim@status",
                json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
                "not Ready",
            ),
            ("pod/gated", json!({"spec": {"schedulingGates": [{"name": keys::GANG_GATE}]}}), "not theirs"),
            ("pod/gated", json!({"spec": {"nodeSelector": {"disk": "ssd"}}}), "not spec.nodeSelector"),
        ],
    );
    let path = format!("/api/v1/namespaces/{}/pods/victim/binding", space.name());
    let bind = |metadata: Value| {
        let mut binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": "big-0"}});
        binding["metadata"]["name"] = json!("victim");
        thief.feed(&["create", "--raw", &path, "-f", "-"], &binding.to_string())
    };
    let error = bind(json!({"labels": {"app": "bank"}})).unwrap_err().to_string();
    assert!(error.contains("sets no labels"), "{error}");
    let error = bind(json!({"annotations": {"note": "x"}})).unwrap_err().to_string();
    assert!(error.contains("not note"), "{error}");
    for (object, change) in [
        ("pod/victim", json!({"metadata": {"annotations": {keys::CLASS_NOW: "guaranteed"}}})),
        ("pod/victim@status", json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}})),
        ("pod/gated", json!({"spec": {"schedulingGates": [{"name": "theirs"}]}})),
    ] {
        patch(&thief, object, &change).unwrap();
    }
}

#[test]
fn of_nodes_volumes_and_claims_the_controller_changes_what_binding_takes() {
    let space = space();
    let thief = taken_over(&space);
    let claim = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let volume = |name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp/none"}, "claimRef": {"namespace": "somebody", "name": "elses"}}})
    };
    let name = format!("volume-of-{}", space.name());
    space.create(&claim("data").to_string()).unwrap();
    space.create(&volume(&name).to_string()).unwrap();
    let taken = json!({"claimRef": {"kind": "PersistentVolumeClaim", "namespace": space.name(), "name": "data"}});
    let volume: &'static str = format!("persistentvolume/{name}").leak();
    refused(
        &thief,
        &[
            ("node/big-0", json!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}), "not metadata.labels"),
            ("node/big-0", json!({"metadata": {"annotations": {keys::INVENTORY: "{}"}}}), "not divvy.dev/inventory"),
            ("node/big-0", json!({"spec": {"unschedulable": true}}), "spec.unschedulable"),
            ("node/big-0", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), "spec.taints"),
            ("node/big-0@status", json!({"status": {"capacity": {"cpu": "1"}}}), "orbidden"),
            ("persistentvolumeclaim/data", json!({"metadata": {"labels": {"app": "bank"}}}), "not metadata.labels"),
            ("persistentvolumeclaim/data", json!({"metadata": {"annotations": {"note": "x"}}}), "not note"),
            (
                volume,
                json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}),
                "spec.persistentVolumeReclaimPolicy",
            ),
            (volume, json!({"spec": taken}), "another claim's"),
        ],
    );
    patch(&thief, "node/big-0", &json!({"metadata": {"annotations": {keys::JOURNAL_CUT: null}}})).unwrap();
    let node = json!({"metadata": {"annotations": {keys::SELECTED_NODE: "big-0"}}});
    patch(&thief, "persistentvolumeclaim/data", &node).unwrap();
    space.say(&["delete", "persistentvolume", &name]).unwrap();
}

#[test]
fn tenants_own_budgets_and_quotas_are_theirs() {
    let space = space();
    let thief = taken_over(&space);
    let object = |kind: &str, name: &str, labels: Value, spec: Value| {
        json!({"apiVersion": keys::GROUP_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec})
            .to_string()
    };
    let budget = |name: &str, labels: Value| object("GpuBudget", name, labels, json!({"gpuTime": "1h"}));
    space.create(&budget("own", json!({}))).unwrap();
    space.create(&object("GpuQuota", "own", json!({}), json!({"limits": [{"share": 800}]}))).unwrap();
    refused(
        &thief,
        &[
            ("gpubudget/own", json!({"spec": {"gpuTime": "9000h"}}), "those alone whose label"),
            (
                "gpubudget/own",
                json!({"metadata": {"labels": {keys::BUDGET_TEMPLATE: "own"}}}),
                "those alone whose label",
            ),
            ("gpuquota/own", json!({"spec": {"otherModels": "refuse"}}), "those alone whose label"),
        ],
    );
    for words in [["delete", "gpubudget", "own"], ["delete", "gpuquota", "own"]] {
        let error = thief.say(&words).unwrap_err().to_string();
        assert!(error.contains("those alone whose label"), "{words:?}: {error}");
    }
    let error = thief.create(&budget("new", json!({}))).unwrap_err().to_string();
    assert!(error.contains("those alone whose label"), "{error}");
    thief.create(&budget("copy", json!({keys::BUDGET_TEMPLATE: "copy"}))).unwrap();
    thief.say(&["delete", "gpubudget", "copy"]).unwrap();
}

#[test]
fn the_webhook_is_asked_about_pods_that_ask_for_a_device_and_about_nothing_else() {
    let admin = SHARED.cluster.admin();
    let thief = taken_over(admin);
    for kind in ["mutatingwebhookconfiguration", "validatingwebhookconfiguration"] {
        let stands = admin.wait(kind, "divvy", SOON, |object| object["webhooks"][0]["rules"].is_array()).unwrap();
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut hook = stands["webhooks"][0].clone();
            change(&mut hook);
            json!({"webhooks": [hook]})
        };
        let object: &'static str = format!("{kind}/divvy").leak();
        let condition = stands["webhooks"][0]["matchConditions"][0]["expression"].as_str().unwrap().to_owned();
        let every_pod = condition.replacen("[['", "[['cpu', '", 1);
        assert_ne!(every_pod, condition);
        let other = |name: &str| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": stands["kind"], "metadata": {"name": name}});
        refused(
            &thief,
            &[
                (
                    object,
                    changed(&|h| h["rules"][0]["resources"] = json!(["pods", "secrets"])),
                    "about pods and about nothing else",
                ),
                (object, changed(&|h| h["rules"][0]["operations"] = json!(["*"])), "about pods and about nothing else"),
                (object, changed(&|h| h["rules"][0]["apiGroups"] = json!(["*"])), "about pods and about nothing else"),
                (object, changed(&|h| h["matchConditions"] = json!([])), "and about no others"),
                (object, changed(&|h| h["matchConditions"][0]["expression"] = json!("true")), "and about no others"),
                (object, changed(&|h| h["matchConditions"][0]["expression"] = json!(every_pod)), "and about no others"),
                (
                    object,
                    changed(&|h| h["clientConfig"]["url"] = json!("https://evil.test/mutate")),
                    "the Service divvy-webhook",
                ),
                (object, changed(&|h| h["name"] = json!("secrets.divvy.dev")), "pods.divvy.dev"),
                (object, json!({"metadata": {"labels": {"app": "bank"}}}), "of its registration's metadata"),
            ],
        );
        let error = thief.create(&other("more").to_string()).unwrap_err().to_string();
        assert!(error.contains("forbidden"), "{error}");
    }
}

#[test]
fn the_controllers_token_makes_no_policies_and_no_tokens_and_reads_what_it_uses() {
    let space = space();
    let thief = taken_over(&space);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "more", "namespace": NAMESPACE, "annotations": {"kubernetes.io/service-account.name": CONTROLLER}}});
    let error = thief.in_namespace(NAMESPACE).create(&secret.to_string()).unwrap_err().to_string();
    assert!(error.contains("the only one that Divvy writes"), "{error}");
    for (verb, what) in [
        ("create", "mutatingwebhookconfigurations"),
        ("create", "validatingwebhookconfigurations"),
        ("create", "mutatingadmissionpolicies"),
        ("patch", "mutatingadmissionpolicies"),
        ("create", "pods"),
        ("delete", "pods"),
        ("update", "pods"),
        ("get", "secrets"),
        ("list", "secrets"),
    ] {
        let said = thief.run(&["auth", "can-i", verb, what]).unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "no", "{verb} {what}");
    }
    // What it does need is there, or none of the other tests would pass; this one says that the question above can be answered with yes.
    assert_eq!(thief.say(&["auth", "can-i", "create", "pods", "--subresource=eviction"]).unwrap().trim(), "yes");
}

#[test]
fn an_agent_changes_of_its_own_node_what_divvy_writes_there() {
    let thief = with_token(SHARED.cluster.admin(), AGENT, Some("big-0"));
    let ready = json!([{"type": "Ready", "status": "False"}]);
    refused(
        &thief,
        &[
            (
                "node/big-0",
                json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}),
                "not metadata.labels",
            ),
            ("node/big-0", json!({"metadata": {"annotations": {"note": "x"}}}), "not note"),
            ("node/big-0", json!({"metadata": {"annotations": {keys::CORDON: "GPU-0"}}}), "not divvy.dev/cordon"),
            (
                "node/big-0",
                json!({"metadata": {"annotations": {keys::JOURNAL_CUT: "{}"}}}),
                "not divvy.dev/journal-cut",
            ),
            ("node/big-0", json!({"spec": {"unschedulable": true}}), "not spec.unschedulable"),
            ("node/big-0", json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), "not spec.taints"),
            ("node/big-0@status", json!({"metadata": {"labels": {"a": "b"}}}), "not metadata.labels"),
            ("node/big-0@status", json!({"status": {"capacity": {"cpu": "999"}}}), "not cpu"),
            ("node/big-0@status", json!({"status": {"allocatable": {"memory": "9Ti"}}}), "not memory"),
            ("node/big-0@status", json!({"status": {"conditions": ready}}), "not status.conditions"),
            ("node/big-1", json!({"metadata": {"annotations": {keys::INVENTORY: "{}"}}}), "its own node"),
            ("node/big-1@status", json!({"status": {"capacity": {"divvy.dev/test": "1"}}}), "its own node"),
        ],
    );
    let elsewhere = with_token(SHARED.cluster.admin(), AGENT, None);
    refused(&elsewhere, &[("node/big-0", json!({"metadata": {"annotations": {keys::AGENT: "x"}}}), "its own node")]);
    for amount in [json!("1"), Value::Null] {
        patch(&thief, "node/big-0@status", &json!({"status": {"capacity": {"divvy.dev/test": amount}}})).unwrap();
    }
    for text in [json!("x"), Value::Null] {
        patch(&thief, "node/big-0", &json!({"metadata": {"annotations": {keys::VGPU_NODE_REGISTER: text}}})).unwrap();
    }
}

#[test]
fn of_pods_an_agent_changes_annotations_and_conditions_of_those_on_its_node_alone() {
    let space = space();
    for (name, node) in [("here", "big-0"), ("elsewhere", "big-1")] {
        let mut placed = pod(name, json!({}));
        placed["spec"]["nodeName"] = json!(node);
        space.create(&placed.to_string()).unwrap();
    }
    let thief = with_token(&space, AGENT, Some("big-0"));
    let evil = json!([{"name": "main", "image": "divvy.test/evil:1"}]);
    let note = json!({"metadata": {"annotations": {"tencent.com/gpu-assigned": "true"}}});
    let unhealthy = json!({"status": {"conditions": [{"type": keys::CONDITION_DEVICES, "status": "False"}]}});
    refused(
        &thief,
        &[
            ("pod/here", json!({"spec": {"containers": evil}}), "not spec.containers"),
            ("pod/here", json!({"spec": {"activeDeadlineSeconds": 1}}), "not spec.activeDeadlineSeconds"),
            ("pod/here", json!({"metadata": {"labels": {"app": "bank"}}}), "not metadata.labels"),
            ("pod/here", json!({"metadata": {"finalizers": ["a.b/c"]}}), "not metadata.finalizers"),
            ("pod/here", json!({"metadata": {"annotations": {"note": "x"}}}), "not note"),
            ("pod/here", json!({"metadata": {"annotations": {keys::GRANT: "{}"}}}), "only Divvy writes"),
            ("pod/here@status", json!({"status": {"phase": "Failed"}}), "not status.phase"),
            ("pod/here@status", json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}), "not Ready"),
            ("pod/elsewhere", note.clone(), "the pods on it alone"),
            ("pod/elsewhere@status", unhealthy.clone(), "the pods on it alone"),
            ("pod/gated", note.clone(), "the pods on it alone"),
        ],
    );
    patch(&thief, "pod/here", &note).unwrap();
    patch(&thief, "pod/here@status", &unhealthy).unwrap();
    for (verb, what) in [
        ("create", "pods/eviction"),
        ("create", "pods/binding"),
        ("delete", "pods"),
        ("create", "pods"),
        ("create", "nodes"),
        ("update", "nodes"),
        ("create", "events."),
        ("list", "secrets"),
        ("create", "serviceaccounts/token"),
    ] {
        let said = thief.run(&["auth", "can-i", verb, what]).unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), "no", "{verb} {what}");
    }
    assert_eq!(thief.say(&["auth", "can-i", "create", "events.events.k8s.io"]).unwrap().trim(), "yes");
}
