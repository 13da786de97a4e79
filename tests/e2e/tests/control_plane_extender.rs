//! An unmodified kube-scheduler that asks Divvy's extender, with the configuration that is delivered for it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/caller.rs"]
mod caller;
#[path = "control_plane/ground.rs"]
mod ground;
#[path = "control_plane/routes.rs"]
mod routes;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use caller::{Caller, Shows};
use divvy_core::keys;
use divvy_e2e::install::NAMESPACE;
use divvy_e2e::{Options, Scheduler, programs};
use ground::{Divvy, Ground, SOON, devices, file, free_ports, grant, pod, share, wait_bound, whole};
use serde_json::{Value, json};

/// An authority, and a certificate of it for the extender and its callers, as the chart makes them: `tls.crt`, `tls.key` and `ca.crt`.
fn certificates() -> PathBuf {
    let words = ["template", "divvy", "charts/divvy", "--namespace", NAMESPACE, "--set", "scheduler.mode=extender"];
    let mut helm = Command::new(programs::helm().unwrap());
    let output =
        helm.args(words).args(["--show-only", "templates/extender.yaml"]).current_dir(file(".")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let secret: Value = serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap().keep();
    for (name, text) in secret["data"].as_object().unwrap() {
        std::fs::write(folder.join(name), STANDARD.decode(text.as_str().unwrap()).unwrap()).unwrap();
    }
    folder
}

/// Where a replica answers, and what it shows and believes.
fn listens(port: u16, shown: &Path) -> Vec<String> {
    let (address, file) = (format!("127.0.0.1:{port}"), |name: &str| shown.join(name).display().to_string());
    let flags = [
        ("listen", address.clone()),
        ("advertise", address),
        ("certificate", file("tls.crt")),
        ("key", file("tls.key")),
        ("client-ca", file("ca.crt")),
    ];
    flags.map(|(name, value)| format!("--extender-{name}={value}")).into()
}

/// The extender of [`EXTENDED`]: the ports of leader and follower, and what both show.
static PORTS: LazyLock<([u16; 2], PathBuf)> = LazyLock::new(|| (free_ports(), certificates()));

/// Two nodes of two GPUs called `x-*`; pods keep their scheduler's name, and kube-scheduler places them. It asks a replica that does
/// not lead: any answers, and a bind is handed on to the one that does. All three show certificates.
static EXTENDED: LazyLock<Ground> = LazyLock::new(|| {
    let ([leader, follower], shown) = &*PORTS;
    let text = std::fs::read_to_string(file("deploy/kube-scheduler.yaml")).unwrap();
    let text = text.replace("/etc/kubernetes/divvy-extender", &shown.display().to_string());
    let mut configuration: Value = serde_saphyr::from_str(&text).unwrap();
    configuration["extenders"][0]["urlPrefix"] = json!(format!("https://127.0.0.1:{follower}/divvy"));
    let options = Options { scheduler: Scheduler::Configured(configuration), ..Options::control_plane() };
    let leads = listens(*leader, shown);
    let flags: Vec<&str> = leads.iter().map(String::as_str).chain(["--kube-scheduler", "default-scheduler"]).collect();
    let mut ground = Ground::start(options, "controller", &flags);
    divvy_e2e::eventually("it leads", SOON, || {
        anyhow::ensure!(ground.divvy.metric("divvy_leading") == 1.0);
        Ok(())
    })
    .unwrap();
    let follows = listens(*follower, shown);
    let flags: Vec<&str> = follows.iter().map(String::as_str).collect();
    let second = Divvy::new(&ground.cluster, "follower", "scheduler", &flags);
    second.start();
    ground.more.push(second);
    ground.simulate("x", 2, 2);
    ground
});

#[test]
fn a_pod_is_bound_by_the_extender_with_its_grant() {
    let space = EXTENDED.cluster.namespace("extended").unwrap();
    space.create(&share("half", 500).to_string()).unwrap();
    let bound = wait_bound(&space, "half");
    assert_eq!(bound["spec"]["schedulerName"], "default-scheduler");
    assert_eq!(grant(&bound).containers[0].slices[0].share.0, 500);
    let [follower] = &EXTENDED.more[..] else { panic!("one replica follows") };
    assert_eq!((EXTENDED.divvy.metric("divvy_leading"), follower.metric("divvy_leading")), (1.0, 0.0));
    assert_eq!(follower.metric("divvy_decisions_total{outcome=\"bound\"}"), 0.0);
    // A pod without devices is none of the extender's business.
    space.create(&pod("plain", json!({"cpu": "100m"})).to_string()).unwrap();
    let plain = wait_bound(&space, "plain");
    assert!(plain["metadata"].get("annotations").is_none());
}

#[test]
fn many_pods_through_kube_scheduler_over_commit_no_device() {
    let space = EXTENDED.cluster.namespace("many").unwrap();
    for n in 0..12 {
        space.create(&share(&format!("p{n}"), 300).to_string()).unwrap();
    }
    let bound = divvy_e2e::eventually("as many pods are bound as fit", SOON, || {
        let pods = space.list("pods")?;
        let bound: Vec<Value> = pods.into_iter().filter(|p| p["spec"]["nodeName"].is_string()).collect();
        // Others of this cluster's tests may hold a card.
        anyhow::ensure!(bound.len() >= 6, "{} bound", bound.len());
        Ok(bound)
    })
    .unwrap();
    let mut held: BTreeMap<String, u32> = BTreeMap::new();
    for pod in &bound {
        for slice in grant(pod).containers.iter().flat_map(|c| &c.slices) {
            *held.entry(slice.device.to_string()).or_default() += slice.share.0;
        }
    }
    assert!(held.values().all(|share| *share <= 1000), "{held:?}");
}

#[test]
fn a_gang_waits_behind_its_gate_until_all_of_it_fits() {
    let space = EXTENDED.cluster.namespace("gang").unwrap();
    EXTENDED.simulate_as("gang", 1, 4, &["--model", "Gang-4"]);
    let member = |name: &str, gang: &str, size: u32| {
        let mut pod = whole(name, 1);
        pod["metadata"]["annotations"] = json!({
            (keys::GANG): gang, (keys::GANG_SIZE): size.to_string(), (keys::GPU_MODEL): "Gang-4"});
        pod
    };
    // Five members for four cards: none starts.
    for n in 0..5 {
        space.create(&member(&format!("five-{n}"), "five", 5).to_string()).unwrap();
    }
    // Three for four: all start, though the five came first.
    for n in 0..3 {
        space.create(&member(&format!("three-{n}"), "three", 3).to_string()).unwrap();
    }
    let mut taken = Vec::new();
    for n in 0..3 {
        taken.extend(devices(&grant(&wait_bound(&space, &format!("three-{n}")))));
    }
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 3);
    for pod in space.list("pods").unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if name.starts_with("five-") {
            assert!(pod["spec"]["nodeName"].is_null(), "{name} is bound");
            assert_eq!(pod["spec"]["schedulingGates"], json!([{"name": keys::GANG_GATE}]), "{name}");
        }
    }
}

/// What a tenant would send: a pod of its own making that asks for a card with the highest priority, the pod that shall leave for it, and the bind.
fn questions(made_up: &Value, holder: &Value) -> [(&'static str, Value); 3] {
    let (uid, node) = (&holder["metadata"]["uid"], holder["spec"]["nodeName"].as_str().unwrap());
    let victims = json!({node: {"Pods": [{"UID": uid}], "NumPDBViolations": 0}});
    let (namespace, name, of) =
        (&made_up["metadata"]["namespace"], &made_up["metadata"]["name"], &made_up["metadata"]["uid"]);
    [
        ("/divvy/filter", json!({"Pod": made_up, "NodeNames": [node]})),
        ("/divvy/preempt", json!({"Pod": made_up, "NodeNameToMetaVictims": victims})),
        ("/divvy/bind", json!({"PodNamespace": namespace, "PodName": name, "PodUID": of, "Node": node})),
    ]
}

#[test]
fn a_tenant_has_no_answer_of_the_extender_and_a_made_up_pod_makes_no_pod_leave() {
    let space = EXTENDED.cluster.namespace("tenant").unwrap();
    EXTENDED.simulate_as("tenant", 1, 1, &["--model", "Tenant-1"]);
    EXTENDED.simulate_as("later", 1, 1, &["--model", "Later-1"]);
    let mut holder = whole("holder", 1);
    holder["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Tenant-1", (keys::CLASS): "opportunistic"});
    space.create(&holder.to_string()).unwrap();
    let holder = wait_bound(&space, "holder");
    // The ask and the specification are a real pod's: only this pod is not there.
    let mut made_up = holder.clone();
    made_up["metadata"]["uid"] = json!("1b4e28ba-2fa1-11d2-883f-0016d3cca427");
    made_up["metadata"]["name"] = json!("made-up");
    made_up["metadata"]["annotations"].as_object_mut().unwrap().retain(|key, _| key == keys::ASK);
    made_up["spec"].as_object_mut().unwrap().remove("nodeName");
    made_up["spec"]["schedulerName"] = json!(keys::SCHEDULER);
    made_up["spec"]["priority"] = json!(2_000_000_000);

    let ((ports, shown), stranger) = (&*PORTS, certificates());
    let authority = shown.join("ca.crt");
    let refused = [Shows::Plain, Shows::Nothing, Shows::Certificate(&stranger)];
    for port in ports {
        for shows in &refused {
            let caller = Caller { port: *port, authority: &authority, shows };
            for (path, body) in questions(&made_up, &holder) {
                let answer = caller.ask(path, &body);
                assert!(answer.is_err(), "{shows:?} is answered by {path}: {answer:?}");
            }
        }
        let caller = Caller { port: *port, authority: &authority, shows: &Shows::Certificate(shown) };
        let [filter, preempt, bind] = questions(&made_up, &holder).map(|(path, body)| caller.ask(path, &body).unwrap());
        let error = filter["Error"].as_str().unwrap();
        assert!(error.starts_with("the API server has not told this replica of pod"), "{filter}");
        assert_eq!(preempt["NodeNameToMetaVictims"], json!({}));
        assert_eq!(bind["Error"], "the pod is not known here, or is bound already");
    }
    // An eviction that was decided by then is carried out before a pod that comes later is bound.
    let mut later = whole("later", 1);
    later["metadata"]["annotations"] = json!({(keys::GPU_MODEL): "Later-1"});
    space.create(&later.to_string()).unwrap();
    wait_bound(&space, "later");
    assert_eq!(EXTENDED.divvy.metric("divvy_evictions_total"), 0.0);
    let still = space.get("pod", "holder").unwrap();
    assert_eq!(still["metadata"]["uid"], holder["metadata"]["uid"]);
    assert!(still["metadata"]["deletionTimestamp"].is_null(), "{}", still["metadata"]);
}
