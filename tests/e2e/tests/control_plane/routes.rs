//! The routes of the emulated systems on a running Divvy, with real pods: requests and answers as in the scheduler's own tests.

#[path = "../../../../crates/scheduler/tests/extender/same.rs"]
mod same;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use divvy_core::keys;
use divvy_e2e::{Kubectl, Options, Scheduler, eventually, simulated_node};
use same::same;
use serde_json::{Value, json};

use crate::ground::{Divvy, Ground, SOON, file, free_ports, share};

/// `{"name": "n1", "unit": "MiB", "gpus": [memory in units, ...]}` as an agent's node.
fn node(node: &Value) -> Value {
    let name = node["name"].as_str().unwrap();
    let unit = if node["unit"] == "MiB" { 1u64 << 20 } else { 1 << 30 };
    let device = |(i, size): (usize, &Value)| {
        json!({"id": format!("GPU-{name}-{i}"), "index": i, "model": "NVIDIA-Tesla-V100", "isolation": ["intercept"],
               "memory": size.as_u64().unwrap() * unit})
    };
    let devices: Vec<Value> = node["gpus"].as_array().unwrap().iter().enumerate().map(device).collect();
    let inventory =
        json!({"v": 1, "generation": 1, "devices": devices, "memoryUnit": node["unit"].as_str().unwrap_or("GiB")});
    let annotations = if devices.is_empty() { json!({}) } else { json!({(keys::INVENTORY): inventory.to_string()}) };
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "110", (keys::SLOT): "64"});
    simulated_node(name, &annotations, &json!({}), &resources)
}

/// One request, and what came back: the status and the body.
fn request(port: u16, line: &str, body: &Value) -> anyhow::Result<(u64, Value)> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(SOON))?;
    write!(stream, "{line} HTTP/1.0\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (head, body) = reply.split_once("\r\n\r\n").ok_or_else(|| anyhow::anyhow!("no answer: {reply}"))?;
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Ok((status, serde_json::from_str(body).unwrap_or_else(|_| json!(body))))
}

/// Creates a request's pod as its user would.
fn create(space: &Kubectl, written: &Value) -> Value {
    let mut spec = written["spec"].clone();
    for container in spec["containers"].as_array_mut().unwrap() {
        container["image"] = json!("divvy.test/none:1");
    }
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": written["metadata"]["name"]}, "spec": spec});
    space.create(&pod.to_string()).unwrap();
    space.get("pod", written["metadata"]["name"].as_str().unwrap()).unwrap()
}

fn replay(ground: &Ground, name: &str) {
    let text = std::fs::read_to_string(file("crates/scheduler/tests/extender").join(name)).unwrap();
    let space = ground.cluster.namespace("routes").unwrap();
    let place = |field: &str| format!("\"{field}\": \"{}\"", space.name());
    let text = text
        .replace("\"namespace\": \"d\"", &place("namespace"))
        .replace("\"PodNamespace\": \"d\"", &place("PodNamespace"));
    let case: Value = serde_json::from_str(&text).unwrap();
    let nodes: Vec<Value> = case["nodes"].as_array().unwrap().iter().map(node).collect();
    ground.cluster.simulate_nodes(&nodes).unwrap();
    // The one pod of the file, with the identity the API server gives it.
    let body = &case["steps"][0]["body"];
    let pod = create(&space, &body["Pod"]);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let steps = case["steps"]
        .to_string()
        .replace("\"ua\"", &format!("\"{uid}\""))
        .replace("pod ua has", &format!("pod {uid} has"));
    let steps: Vec<Value> = serde_json::from_str(&steps).unwrap();

    let [port] = free_ports();
    // Under a name no pod has: it places nobody on its own.
    let listen = format!("127.0.0.1:{port}");
    let flags =
        ["--no-leader-election", "--scheduler-name", "nobody", "--extender-listen", &listen, "--extender-inspect"];
    let divvy = Divvy::new(&ground.cluster, name, "scheduler", &flags);
    divvy.start();
    for step in steps {
        let title = format!("{name}: {}", step["step"]);
        let mut body = step["body"].clone();
        for field in ["Pod", "pod"] {
            if body[field].is_object() {
                body[field] = pod.clone();
            }
        }
        // As kube-scheduler does: one that leads but has not been told everything again asks to be asked again.
        let (status, reply) = eventually(&title, SOON, || {
            let (status, reply) = request(port, step["request"].as_str().unwrap(), &body)?;
            anyhow::ensure!(!reply.to_string().contains("well enough yet; try again"), "{reply}");
            Ok((status, reply))
        })
        .unwrap();
        assert_eq!(status, step.get("status").map_or(200, |s| s.as_u64().unwrap()), "{title}: {reply}");
        assert!(same(&step["reply"], &reply), "{title}\nexpected {}\nfound    {reply}", step["reply"]);
        if let Some(bound) = step.get("bound") {
            let pod = space.get("pod", pod["metadata"]["name"].as_str().unwrap()).unwrap();
            assert_eq!(pod["spec"]["nodeName"], bound["node"], "{title}");
            let annotations = &pod["metadata"]["annotations"];
            assert!(annotations[keys::GRANT].is_string(), "{title}: the grant is in the same write");
            for (key, value) in bound["annotations"].as_object().unwrap() {
                assert!(
                    annotations[key].is_string() && same(value, &annotations[key]),
                    "{title}: {key} in {annotations}"
                );
            }
        }
    }
    divvy.program.stop().unwrap();
    for node in &nodes {
        ground.cluster.admin().say(&["delete", "node", node["metadata"]["name"].as_str().unwrap()]).unwrap();
    }
}

#[test]
fn the_routes_of_the_emulated_systems_are_answered_by_a_running_divvy() {
    let options = Options { scheduler: Scheduler::Absent, ..Options::control_plane() };
    let ground = Ground::start(options, "webhook", &[]);
    for name in ["gpushare.json", "gpu-admission.json", "vgpu.json"] {
        replay(&ground, name);
    }
    // The vGPU scheduler's users have their webhook registered under a path of its own: with Divvy behind it, pods are admitted.
    let admin = ground.cluster.admin();
    let mut theirs = admin.get("mutatingwebhookconfiguration", "divvy").unwrap();
    let url = theirs["webhooks"][0]["clientConfig"]["url"].as_str().unwrap().replace("/mutate", "/webhook");
    theirs["metadata"] = json!({"name": "vgpu-webhook"});
    theirs["webhooks"][0]["name"] = json!("vgpu.hami.io");
    theirs["webhooks"][0]["clientConfig"]["url"] = json!(url);
    assert!(url.ends_with("/webhook"));
    admin.create(&theirs.to_string()).unwrap();
    let space = ground.cluster.namespace("webhook").unwrap();
    let reviews = || ground.divvy.metric("divvy_admission_reviews_total");
    let mut n = 0;
    eventually("the API server asks both", SOON, || {
        n += 1;
        let before = reviews();
        let name = format!("p{n}");
        space.create(&share(&name, 100).to_string())?;
        assert!(space.get("pod", &name)?["metadata"]["annotations"][keys::ASK].is_string());
        // Under our own path, under theirs, and once more to validate.
        anyhow::ensure!(reviews() >= before + 3.0, "{} reviews for one pod", reviews() - before);
        Ok(())
    })
    .unwrap();
}
