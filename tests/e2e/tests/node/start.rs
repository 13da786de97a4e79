//! A container starts with exactly its slice, or not at all.

use divvy_e2e::{Kubectl, eventually};
use serde_json::{Value, json};

use divvy_e2e::site::{CARDS, CUDA, GREEDY, SOON, pod, site, slice, uid};

const SHOW: &str = "env | grep NVIDIA_VISIBLE; sleep 3600";

/// What a container of a running pod sees.
fn visible(kubectl: &Kubectl, pod: &str, container: &str) -> String {
    let words = [
        "exec",
        pod,
        "-c",
        container,
        "--",
        "sh",
        "-c",
        "tr '\\0' '\\n' </proc/1/environ | grep ^NVIDIA_VISIBLE_DEVICES",
    ];
    kubectl.say(&words).unwrap().trim().trim_start_matches("NVIDIA_VISIBLE_DEVICES=").to_owned()
}

fn events(kubectl: &Kubectl, reason: &str) -> Vec<String> {
    let events = kubectl.list("events").unwrap();
    let text = |e: &Value| e["message"].as_str().unwrap_or_default().to_owned();
    events.iter().filter(|e| e["reason"] == reason).map(text).collect()
}

#[test]
fn tk_23_a_container_has_exactly_its_slice() {
    let mut site = site();
    let kubectl = site.namespace();
    let script = "{ cat /etc/ld.so.preload; ls /run/divvy; mount | grep divvy; touch /run/divvy/gate; echo said; } 2>&1; sleep 3600";
    kubectl.create(&pod("one", &[("main", "main", vec![slice(CARDS[1], 4096, 300)], script)]).to_string()).unwrap();
    let running = kubectl.wait_phase("one", "Running", SOON).unwrap();
    assert_eq!(visible(&kubectl, "one", "main"), CARDS[1]);
    let said = eventually("all is said", SOON, || {
        let said = kubectl.say(&["logs", "one"])?;
        anyhow::ensure!(said.ends_with("said\n"), "{said}");
        Ok(said)
    })
    .unwrap();
    assert!(said.starts_with("/usr/local/lib/divvy/libdivvy.so\n"), "{said}");
    assert!(
        said.contains("/run/divvy/gate type ext4 (ro,") || said.contains("/run/divvy/gate type tmpfs (ro,"),
        "{said}"
    );
    assert!(said.contains("touch: /run/divvy/gate: Read-only file system"), "{said}");
    let gate = site.gate(&uid(&running), "main");
    assert_eq!(gate.devices.len(), 1);
    assert_eq!((gate.devices[0].id.as_str(), gate.devices[0].memory_limit), (CARDS[1], 4096 << 20));
    assert_eq!((gate.devices[0].share_request, gate.devices[0].share_limit), (300, 300));
}

#[test]
fn fp_22_tk_22_every_container_of_a_pod_has_its_own_slice_and_one_without_a_grant_has_none() {
    let mut site = site();
    let kubectl = site.namespace();
    let mut many = pod(
        "many",
        &[
            ("both", "main", vec![slice(CARDS[0], 1024, 100), slice(CARDS[1], 2048, 100)], SHOW),
            ("second", "main", vec![slice(CARDS[1], 4096, 200)], SHOW),
            ("plain", "main", vec![], SHOW),
        ],
    );
    many["spec"]["containers"][1]["image"] = json!(GREEDY);
    kubectl.create(&many.to_string()).unwrap();
    let running = kubectl.wait_phase("many", "Running", SOON).unwrap();
    assert_eq!(visible(&kubectl, "many", "both"), CARDS.join(","));
    assert_eq!(visible(&kubectl, "many", "second"), CARDS[1]);
    let plain = ["exec", "many", "-c", "plain", "--", "ls", "/run/divvy", "/etc/ld.so.preload"];
    assert!(kubectl.say(&plain).is_err(), "a container without a grant has nothing of ours");
    let devices = |container: &str| -> Vec<(String, u64)> {
        site.gate(&uid(&running), container).devices.iter().map(|d| (d.id.clone(), d.memory_limit >> 20)).collect()
    };
    assert_eq!(devices("both"), [(CARDS[0].to_owned(), 1024), (CARDS[1].to_owned(), 2048)]);
    assert_eq!(devices("second"), [(CARDS[1].to_owned(), 4096)]);
}

#[test]
fn an_init_container_with_the_main_ones_slots_gets_its_own_slice_and_the_main_one_its() {
    let mut site = site();
    let kubectl = site.namespace();
    let init = "env | grep NVIDIA_VISIBLE";
    let two = pod(
        "two-steps",
        &[
            ("prepare", "init", vec![slice(CARDS[1], 512, 100)], init),
            ("again", "init", vec![slice(CARDS[0], 256, 100), slice(CARDS[1], 256, 100)], init),
            ("main", "main", vec![slice(CARDS[0], 1024, 100)], SHOW),
        ],
    );
    kubectl.create(&two.to_string()).unwrap();
    kubectl.wait_phase("two-steps", "Running", SOON).unwrap();
    let logs = |container: &str| kubectl.say(&["logs", "two-steps", "-c", container]).unwrap();
    assert_eq!(logs("prepare").trim(), format!("NVIDIA_VISIBLE_DEVICES={}", CARDS[1]));
    assert_eq!(logs("again").trim(), format!("NVIDIA_VISIBLE_DEVICES={}", CARDS.join(",")));
    assert_eq!(visible(&kubectl, "two-steps", "main"), CARDS[0]);
}

#[test]
fn a_grant_that_would_over_commit_is_refused_with_an_event_until_there_is_room() {
    let mut site = site();
    let kubectl = site.namespace();
    let big = |name: &str| pod(name, &[("main", "main", vec![slice(CARDS[0], 60 << 10, 300)], SHOW)]).to_string();
    kubectl.create(&big("first")).unwrap();
    kubectl.wait_phase("first", "Running", SOON).unwrap();
    kubectl.create(&big("second")).unwrap();
    let refused = eventually("the second pod is refused", SOON, || {
        events(&kubectl, "GrantRefused").pop().ok_or_else(|| anyhow::anyhow!("no event"))
    })
    .unwrap();
    assert!(refused.contains("60 GiB of memory asked, 40 GiB of 100 GiB free, held by test-"), "{refused}");
    let second = uid(&kubectl.get("pod", "second").unwrap());
    let told = |node: &Value| {
        let text = node["metadata"]["annotations"][divvy_core::keys::INVENTORY].as_str().unwrap_or("{}");
        let inventory: Value = serde_json::from_str(text).unwrap();
        inventory["refused"].get(&second).is_some()
    };
    site.cluster.admin().wait("node", "node-0", SOON, told).unwrap();
    assert_eq!(kubectl.get("pod", "second").unwrap()["status"]["phase"], "Pending");
    kubectl.say(&["delete", "pod", "first", "--wait=false"]).unwrap();
    kubectl.wait_phase("second", "Running", SOON).unwrap();
    site.cluster.admin().wait("node", "node-0", SOON, |node| !told(node)).unwrap();
}

#[test]
fn al_11_al_12_fp_21_bad_grants_are_refused_with_a_sentence_and_the_agent_lives() {
    let mut site = site();
    let kubectl = site.namespace();
    let mut garbage = pod("garbage", &[("main", "main", vec![slice(CARDS[0], 1, 1)], SHOW)]);
    garbage["metadata"]["annotations"][divvy_core::keys::GRANT] = json!("{\"v\":");
    let unknown = pod("unknown", &[("main", "main", vec![slice("GPU-of-another-node", 1, 1)], SHOW)]);
    let mut without = pod("without", &[("main", "main", vec![slice(CARDS[0], 1, 1)], SHOW)]);
    without["metadata"]["annotations"] = json!({});
    let mut miscounted = pod("miscounted", &[("main", "main", vec![slice(CARDS[0], 1, 1)], SHOW)]);
    miscounted["spec"]["containers"][0]["resources"]["limits"][divvy_core::keys::SLOT] = json!("2");
    for manifest in [&garbage, &unknown, &without, &miscounted] {
        kubectl.create(&manifest.to_string()).unwrap();
    }
    for (name, sentence) in [
        ("garbage", "cannot be read"),
        ("unknown", "this node has no device GPU-of-another-node"),
        ("without", "has no grant: it was not bound by Divvy's scheduler"),
        ("miscounted", "has 1 devices for 2 slots"),
    ] {
        let waiting = |p: &Value| {
            let state = &p["status"]["containerStatuses"][0]["state"]["waiting"];
            state["message"].as_str().is_some_and(|m| m.contains(sentence))
        };
        kubectl.wait("pod", name, SOON, waiting).unwrap();
    }
    assert!(site.agent.running());
}

#[test]
fn a_cuda_program_is_refused_memory_above_its_grant_and_sees_its_slice() {
    let mut site = site();
    let kubectl = site.namespace();
    let mut cuda = pod("cuda", &[("main", "main", vec![slice(CARDS[1], 4096, 1000)], "sleep 3600")]);
    cuda["spec"]["containers"][0]["image"] = json!(CUDA);
    kubectl.create(&cuda.to_string()).unwrap();
    kubectl.wait_phase("cuda", "Running", SOON).unwrap();
    let said = site.tenant(&kubectl, "cuda", "ctx 0\ninfo\nalloc 3221225472\nalloc 1073741825\nalloc 4096\nquit\n");
    let total = format!(" {}", 4096u64 << 20);
    assert!(said[1].starts_with("ok ") && said[1].ends_with(&total), "cuMemGetInfo shows the slice: {said:?}");
    assert!(said[2].starts_with("ok "), "3 GiB of 4 fit: {said:?}");
    assert_eq!(said[3], "error 2", "a byte above the fourth does not: {said:?}");
    assert!(said[4].starts_with("ok "), "but a page does: {said:?}");
}
