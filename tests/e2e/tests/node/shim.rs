//! The CRI shim carries the same edits.

use divvy_e2e::{Kubectl, own};
use serde_json::{Value, json};

use divvy_e2e::site::{CARDS, CUDA, GREEDY, SOON, pod, site, slice, uid};

fn visible(kubectl: &Kubectl, pod: &str, container: &str) -> String {
    let script = "tr '\\0' '\\n' </proc/1/environ | grep ^NVIDIA_VISIBLE_DEVICES";
    kubectl.say(&["exec", pod, "-c", container, "--", "sh", "-c", script]).unwrap().trim().to_owned()
}

#[test]
fn through_the_cri_shim_containers_have_exactly_their_slices_and_all_others_none() {
    let mut site = site();
    let kubectl = site.namespace();
    let node = &site.cluster.nodes()[0];
    let shim = node.program("cri-shim", vec![own::agent().unwrap().display().to_string(), "cri-shim".into()]);
    shim.start().unwrap();
    let through = |socket: &str| {
        node.configure_kubelet(&json!({"containerRuntimeEndpoint": format!("unix://{socket}")})).unwrap();
        node.kubelet.restart().unwrap();
    };
    site.carrier("cri-shim");
    through("/run/divvy/cri.sock");

    let mut two = pod(
        "two",
        &[
            ("prepare", "init", vec![slice(CARDS[0], 512, 100)], "env | grep NVIDIA_VISIBLE"),
            ("cuda", "main", vec![slice(CARDS[1], 4096, 1000)], "sleep 3600"),
            ("plain", "main", vec![], "sleep 3600"),
        ],
    );
    two["spec"]["containers"][0]["image"] = json!(CUDA);
    two["spec"]["containers"][1]["image"] = json!(GREEDY);
    kubectl.create(&two.to_string()).unwrap();
    let mut stranger = pod("stranger", &[("main", "main", vec![], "sleep 3600")]);
    stranger["metadata"]["annotations"] = json!({});
    stranger["spec"]["containers"][0]["image"] = json!(GREEDY);
    kubectl.create(&stranger.to_string()).unwrap();
    let running = kubectl.wait_phase("two", "Running", SOON).unwrap();
    kubectl.wait_phase("stranger", "Running", SOON).unwrap();

    let init = kubectl.say(&["logs", "two", "-c", "prepare"]).unwrap();
    assert_eq!(init.trim(), format!("NVIDIA_VISIBLE_DEVICES={}", CARDS[0]));
    assert_eq!(visible(&kubectl, "two", "cuda"), format!("NVIDIA_VISIBLE_DEVICES={}", CARDS[1]));
    assert_eq!(visible(&kubectl, "two", "plain"), "NVIDIA_VISIBLE_DEVICES=void");
    assert_eq!(visible(&kubectl, "stranger", "main"), "NVIDIA_VISIBLE_DEVICES=void");
    assert_eq!(site.gate(&uid(&running), "cuda").devices[0].memory_limit, 4096 << 20);
    let said = site.tenant(&kubectl, "two", "ctx 0\nalloc 4294967297\nalloc 4096\nquit\n");
    assert_eq!(said[1], "error 2", "{said:?}");
    assert!(said[2].starts_with("ok "), "{said:?}");

    // Streams pass, and a restarted runtime is found again.
    node.containerd.stop().unwrap();
    node.start_containerd().unwrap();
    assert_eq!(kubectl.say(&["exec", "two", "-c", "plain", "--", "echo", "still here"]).unwrap().trim(), "still here");

    // Without the agent nothing with a grant starts.
    let crashing = "trap 'exit 1' TERM; while true; do sleep 0.1; done";
    kubectl.create(&pod("late", &[("main", "main", vec![slice(CARDS[0], 512, 100)], crashing)]).to_string()).unwrap();
    kubectl.wait_phase("late", "Running", SOON).unwrap();
    site.agent.kill().unwrap();
    let _ = kubectl.run(&["exec", "late", "--", "kill", "1"]).unwrap();
    let waits = |p: &Value| {
        let state = &p["status"]["containerStatuses"][0]["state"]["waiting"];
        state["message"].as_str().is_some_and(|m| m.contains("Divvy's agent does not answer"))
    };
    let late = kubectl.wait("pod", "late", SOON, waits);
    site.agent.start().unwrap();
    late.unwrap();
    let runs = |p: &Value| p["status"]["containerStatuses"][0]["state"]["running"].is_object();
    kubectl.wait("pod", "late", SOON, runs).unwrap();

    site.carrier("cdi");
    through("/run/containerd/containerd.sock");
    shim.stop().unwrap();
}
