//! Nonsense on every socket, and programs that are no containers: refused, counted, survived.

use std::fs;

use divvy_core::keys;
use divvy_e2e::{Kubectl, eventually, own};
use serde_json::Value;

use divvy_e2e::site::{CARDS, Guest, LATER, SOON, Site, pod, site, slice};

/// Somebody on the node says a MiB of random bytes to each of these, three times: paths of sockets, or a port of the node's.
fn babble(site: &Site, places: &[&str]) {
    let script = "
import os, socket, sys
def call(place):
    if place.isdigit():
        s = socket.socket(socket.AF_INET)
        s.connect(('127.0.0.1', int(place)))
        return s
    try:
        s = socket.socket(socket.AF_UNIX)
        s.connect(place)
    except OSError:
        # Messages are kept apart there.
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        s.connect(place)
    return s
for place in sys.argv[1:]:
    for _ in range(3):
        s = call(place)
        s.settimeout(20)
        try:
            for _ in range(256):
                s.sendall(os.urandom(4096))
            s.shutdown(socket.SHUT_WR)
            s.recv(1)
        except OSError:
            pass
        s.close()
";
    fs::write(site.on_node("/run/babble.py"), script).unwrap();
    let done = site.cluster.nodes()[0].shell(&format!("python3 /run/babble.py {}", places.join(" "))).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn metric(site: &Site, name: &str) -> f64 {
    let metrics = site.ask("/metrics");
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.rsplit(' ').next()?.parse().ok());
    value.unwrap_or_else(|| panic!("{name} is not in {metrics}"))
}

fn runs(kubectl: &Kubectl, name: &str) {
    kubectl
        .create(&pod(name, &[("main", "main", vec![slice(CARDS[0], 1024, 100)], "sleep 3600")]).to_string())
        .unwrap();
    kubectl.wait_phase(name, "Running", SOON).unwrap_or_else(|e| panic!("{e:#}\n{}", kubectl.story()));
}

#[test]
fn random_bytes_on_every_socket_are_refused_and_counted_and_the_agent_works_on() {
    let mut site = site();
    let kubectl = site.namespace();
    let words = vec![own::agent().unwrap().display().to_string(), "cri-shim".to_owned()];
    let shim = Guest::start(site.cluster.nodes()[0].program("cri-shim", words));
    eventually("the shim listens", SOON, || {
        anyhow::ensure!(site.on_node("/run/divvy/cri.sock").exists(), "not yet");
        Ok(())
    })
    .unwrap();
    runs(&kubectl, "before");
    let (pid, said_before) = (site.agent.pid(), site.agent_log().len());
    let names = ["agent", "desk", "plugin", "cri", "port"];
    let count = |name: &str| metric(&site, &format!("divvy_agent_nonsense_total{{socket=\"{name}\"}}"));
    let before = names.map(count);
    babble(
        &site,
        &[
            "/run/divvy/socket/agent.sock",
            "/run/divvy/desk.sock",
            "/var/lib/kubelet/device-plugins/divvy.sock",
            "/run/divvy/cri.sock",
            "9411",
        ],
    );
    for (name, before) in names.into_iter().zip(before) {
        eventually("every socket counts what it refused", SOON, || {
            let now = count(name);
            anyhow::ensure!(now >= before + 3.0, "{name}: {before} before, {now} now");
            Ok(())
        })
        .unwrap();
    }
    runs(&kubectl, "after");
    assert_eq!(site.agent.pid(), pid, "the agent lives");
    shim.0.must_run().unwrap();
    drop(shim);
    let said = site.agent_log()[said_before..].matches("somebody talks nonsense to this socket").count();
    assert!(said <= 4, "said once for each socket, not {said} times");
    assert_eq!(kubectl.get("pod", "before").unwrap()["status"]["phase"], "Running");
}

#[test]
fn a_node_that_lost_its_agents_notes_counts_what_runs_all_the_same() {
    let mut site = site();
    let kubectl = site.namespace();
    let big =
        |name: &str| pod(name, &[("main", "main", vec![slice(CARDS[0], 60 << 10, 300)], "sleep 3600")]).to_string();
    kubectl.create(&big("runs")).unwrap();
    kubectl.wait_phase("runs", "Running", SOON).unwrap();
    site.crash_agent(|| {
        for entry in fs::read_dir(site.on_node("/run/divvy/containers")).unwrap() {
            let _ = fs::remove_file(entry.unwrap().path().join("pod.json"));
        }
    });
    eventually("the container that runs is in the ledger", SOON, || {
        anyhow::ensure!(site.ledger().contains_key("runs"), "not yet");
        Ok(())
    })
    .unwrap();
    kubectl.create(&big("late")).unwrap();
    let refused = |p: &Value| {
        let state = &p["status"]["containerStatuses"][0]["state"]["waiting"];
        state["message"].as_str().is_some_and(|m| m.contains("is refused"))
    };
    kubectl.wait("pod", "late", LATER, refused).unwrap();
    let grant = kubectl.get("pod", "runs").unwrap()["metadata"]["annotations"][keys::GRANT].clone();
    assert!(grant.is_string());
}
