//! What is let in, what is refused and in which words, and who may write what later.

use divvy_core::keys;
use serde_json::json;

use crate::ground::{SHARED, SOON, pod, share, wait_bound};

#[test]
fn a_malformed_pod_is_refused_with_all_its_mistakes() {
    let space = SHARED.cluster.namespace("malformed").unwrap();
    let mut wrong = pod("wrong", json!({(keys::GPU_SHARE): 3000}));
    wrong["metadata"]["annotations"] = json!({(keys::GPU_SHARE_LIMIT): "lots"});
    let error = space.create(&wrong.to_string()).unwrap_err().to_string();
    for part in ["2 mistakes", keys::GPU_SHARE, keys::GPU_SHARE_LIMIT] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
}

#[test]
fn ways_around_a_grant_are_refused_in_one_message() {
    let space = SHARED.cluster.namespace("tricks").unwrap();
    let mut tricky = share("tricky", 300);
    tricky["spec"]["nodeName"] = json!("big-0");
    tricky["spec"]["containers"][0]["env"] =
        json!([{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "CUDA_DISABLE_CONTROL", "value": "true"}]);
    tricky["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let error = space.create(&tricky.to_string()).unwrap_err().to_string();
    for part in ["4 mistakes", "nodeName", "NVIDIA_VISIBLE_DEVICES", "CUDA_DISABLE_CONTROL", "privileged"] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    // Each of them alone, too.
    let mut named = share("named", 300);
    named["spec"]["nodeName"] = json!("big-0");
    let with = |name: &str, variable: &str| {
        let mut pod = share(name, 300);
        pod["spec"]["containers"][0]["env"] = json!([{"name": variable, "value": "1"}]);
        pod
    };
    for (pod, part) in [
        (named, "nodeName"),
        (with("sees-all", "NVIDIA_VISIBLE_DEVICES"), "NVIDIA_VISIBLE_DEVICES"),
        (with("switches-off", "CUDA_DISABLE_CONTROL"), "CUDA_DISABLE_CONTROL"),
    ] {
        let error = space.create(&pod.to_string()).unwrap_err().to_string();
        assert!(error.contains("denied the request") && error.contains(part), "{error}");
    }
    assert!(space.list("pods").unwrap().is_empty());
}

#[test]
fn a_plain_pod_is_not_touched() {
    let space = SHARED.cluster.namespace("plain").unwrap();
    space.create(&pod("plain", json!({"cpu": "100m"})).to_string()).unwrap();
    let plain = space.get("pod", "plain").unwrap();
    assert_eq!(plain["spec"]["schedulerName"], "default-scheduler");
    assert!(plain["metadata"].get("annotations").is_none());
}

#[test]
fn a_deployment_or_job_is_admitted_and_its_pods_are_read_when_they_come() {
    let space = SHARED.cluster.namespace("job").unwrap();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": share("x", 200)["spec"]["containers"]}}},
    });
    space.create(&job.to_string()).unwrap();
    let pods = divvy_e2e::eventually("the job's pod is bound", SOON, || {
        let pods = space.list("pods")?;
        anyhow::ensure!(pods.iter().any(|p| p["spec"]["nodeName"].is_string()));
        Ok(pods)
    })
    .unwrap();
    assert!(pods[0]["metadata"]["annotations"][keys::GRANT].is_string());
}

#[test]
fn a_namespace_admin_cannot_write_what_only_divvy_may() {
    let space = SHARED.cluster.namespace("tenant").unwrap();
    let user = format!("admin-of-{}", space.name());
    space.say(&["create", "rolebinding", "tenant", "--clusterrole=admin", &format!("--user={user}")]).unwrap();
    let tenant = space.with_kubeconfig(&SHARED.cluster.kubeconfig_for(&user, None).unwrap());
    tenant.create(&share("mine", 300).to_string()).unwrap();
    let bound = wait_bound(&space, "mine");

    let grant = bound["metadata"]["annotations"][keys::GRANT].as_str().unwrap();
    let more = grant.replace("\"share\":300", "\"share\":900");
    assert_ne!(grant, more);
    for (key, value) in [
        (keys::GRANT, more.as_str()),
        (keys::ASK, "{}"),
        (keys::CLASS_NOW, "guarantee+"),
        (keys::GRANT_OVERRIDE, &more),
    ] {
        let patch = json!({"metadata": {"annotations": {key: value}}}).to_string();
        for words in [
            vec!["patch", "pod", "mine", "--type=merge", "--patch", &patch],
            vec!["patch", "pod", "mine", "--subresource=status", "--type=merge", "--patch", &patch],
        ] {
            let error = tenant.say(&words).unwrap_err().to_string();
            assert!(error.contains("orbidden"), "{words:?}: {error}");
        }
    }
    // Taking one away is writing it, too.
    let error = tenant.say(&["annotate", "pod", "mine", &format!("{}-", keys::GRANT)]).unwrap_err().to_string();
    assert!(error.contains("only Divvy writes divvy.dev/grant"), "{error}");
    // A pod that brings its own grant or ask is refused, and so is one that is written for a node.
    let mut forged = share("forged", 300);
    forged["metadata"]["annotations"] = json!({(keys::GRANT): grant});
    let error = tenant.create(&forged.to_string()).unwrap_err().to_string();
    assert!(error.contains(keys::GRANT), "{error}");
    // A Binding with a grant of one's own: the built-in admin role may not bind at all, so one who may is asked to try.
    let binder = format!("binder-of-{}", space.name());
    space.say(&["create", "role", "binder", "--verb=create,get", "--resource=pods/binding,pods"]).unwrap();
    space.say(&["create", "rolebinding", "binder", "--role=binder", &format!("--user={binder}")]).unwrap();
    tenant.create(&pod("plain", json!({})).to_string()).unwrap();
    let binder = space.with_kubeconfig(&SHARED.cluster.kubeconfig_for(&binder, None).unwrap());
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "plain", "annotations": {(keys::GRANT): grant}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "big-0"},
    });
    let path = format!("/api/v1/namespaces/{}/pods/plain/binding", space.name());
    let error = binder.feed(&["create", "--raw", &path, "-f", "-"], &binding.to_string()).unwrap_err().to_string();
    assert!(error.contains("only Divvy writes divvy.dev/grant"), "{error}");
    // What is theirs they may write.
    tenant.say(&["annotate", "pod", "mine", "note=ours"]).unwrap();
}
