//! Devices of a program that is not part of Divvy, from its socket to a container.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use divvy_core::keys;
use divvy_e2e::eventually;
use serde_json::{Value, json};

use super::health::{is_sick, wait_card, wait_event};
use divvy_e2e::site::{SOON, pod, site, slice};

/// A provider of one device, which has an error for as long as it is told so.
fn provide(listener: UnixListener, fails: Arc<AtomicBool>) {
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            if BufReader::new(&stream).read_line(&mut line).is_err() {
                continue;
            }
            let call: Value = serde_json::from_str(&line).unwrap();
            let answer = match call["call"].as_str().unwrap() {
                "discover" => json!({"devices": [{"id": "X-1", "index": 0, "model": "X", "memory": 8u64 << 30}]}),
                "signs" if fails.load(Ordering::Relaxed) => json!([{"device": "X-1", "seen": {"error": 7}}]),
                "signs" => json!([{"device": "X-1", "seen": "answer"}]),
                "edits" => json!({"env": {"X_VISIBLE": call["parts"][0]["device"]["id"],
                    "X_MEMORY": call["parts"][0]["slice"]["memory"].to_string()}}),
                _ => json!([{"device": "X-1", "memory": 12_345_678, "busy": 125}]),
            };
            let _ = writeln!(&stream, "{answer}");
        }
    });
}

#[test]
fn devices_of_a_program_behind_a_socket_are_offered_reach_a_container_and_their_health_and_use_are_told() {
    let mut site = site();
    let kubectl = site.namespace();
    let fails = Arc::new(AtomicBool::new(false));
    // From outside the path is too long for a socket's address.
    let folder = fs::File::open(site.on_node("/run")).unwrap();
    provide(UnixListener::bind(format!("/proc/self/fd/{}/x.sock", folder.as_raw_fd())).unwrap(), fails.clone());
    site.flags(&["--providers=/run/x.sock"]);
    wait_card(&site, "X-1", |card| card["model"] == "X" && !is_sick(card));

    // Nothing of Divvy holds the container to a part of such a device: it gets the device alone.
    let mut whole = slice("X-1", 8192, 1000);
    whole["isolation"] = json!("none");
    whole["exclusive"] = json!(true);
    kubectl.create(&pod("x", &[("main", "main", vec![whole], "env; sleep 3600")]).to_string()).unwrap();
    kubectl.wait_phase("x", "Running", SOON).unwrap_or_else(|e| panic!("{e:#}\n{}", kubectl.story()));
    eventually("the container has what the program gives", SOON, || {
        let env = kubectl.say(&["logs", "x"])?;
        anyhow::ensure!(env.contains("X_VISIBLE=X-1\n") && env.contains("X_MEMORY=8589934592\n"), "{env}");
        Ok(())
    })
    .unwrap();
    eventually("its use is among the metrics", SOON, || {
        let metrics = site.ask("/metrics");
        let shows = |name: &str, value: &str| {
            metrics.lines().any(|l| l.starts_with(name) && l.contains("\"X-1\"") && l.contains(value))
        };
        let used = shows("divvy_device_memory_used_bytes", " 12345678");
        anyhow::ensure!(used && shows("divvy_device_busy_ratio", " 0.125"), "{metrics}");
        Ok(())
    })
    .unwrap();

    fails.store(true, Ordering::Relaxed);
    wait_card(&site, "X-1", is_sick);
    wait_event(&kubectl, "DeviceUnhealthy", "X-1");
    fails.store(false, Ordering::Relaxed);
    wait_card(&site, "X-1", |card| !is_sick(card));

    site.flags(&[]);
    let gone = |node: &Value| {
        node["metadata"]["annotations"][keys::INVENTORY].as_str().is_some_and(|inventory| !inventory.contains("X-1"))
    };
    site.cluster.admin().wait("node", "node-0", SOON, gone).unwrap();
}
