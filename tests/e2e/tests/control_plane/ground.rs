//! A cluster with Divvy installed as its chart says: its own accounts, their rights and admission policies.

#![allow(dead_code, reason = "each test program uses its part of this")]

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use divvy_core::grant::Grant;
use divvy_core::keys;
use divvy_e2e::install::{CONTROLLER, NAMESPACE, install};
use divvy_e2e::{Cluster, Kubectl, Options, Program, eventually, own};
use serde_json::{Value, json};

/// What anything in a healthy control plane may take on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(90);

/// A cluster with Divvy's objects in it, and its programs.
pub(crate) struct Ground {
    pub(crate) divvy: Divvy,
    /// Further replicas.
    pub(crate) more: Vec<Divvy>,
    pub(crate) kubelets: Program,
    pub(crate) cluster: Cluster,
}

/// One process of `divvy`.
pub(crate) struct Divvy {
    pub(crate) program: Program,
    ops: u16,
}

/// The cluster of the tests that crash nothing: two nodes of four GPUs called `big-*`.
pub(crate) static SHARED: LazyLock<Ground> = LazyLock::new(|| {
    let ground = Ground::start(Options::control_plane(), "controller", &[]);
    ground.simulate("big", 2, 4);
    ground
});

/// A file of the repository.
pub(crate) fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

impl Ground {
    /// Starts a cluster, installs Divvy in it and waits until it is ready.
    pub(crate) fn start(options: Options, service: &str, flags: &[&str]) -> Ground {
        let cluster = Cluster::start(options).unwrap();
        install(cluster.admin()).unwrap();
        let divvy = Divvy::new(&cluster, "divvy", service, flags);
        divvy.start();
        let words = ["simnode", "keep", "--kubeconfig"].map(String::from);
        let mut argv = vec![own::divvy().unwrap().display().to_string()];
        argv.extend(words);
        argv.push(cluster.kubeconfig().display().to_string());
        let kubelets = Program::new("kubelets", cluster.folder(), argv);
        kubelets.start().unwrap();
        Ground { divvy, more: Vec::new(), kubelets, cluster }
    }

    /// Makes simulated nodes `PREFIX-0`, `PREFIX-1`, ...
    pub(crate) fn simulate(&self, prefix: &str, nodes: u32, gpus: u32) {
        self.simulate_as(prefix, nodes, gpus, &[]);
    }

    /// The same with more flags.
    pub(crate) fn simulate_as(&self, prefix: &str, nodes: u32, gpus: u32, flags: &[&str]) {
        let mut command = std::process::Command::new(own::divvy().unwrap());
        command.args(["simnode", "create", "--prefix", prefix]);
        command.args(["--nodes", &nodes.to_string(), "--gpus", &gpus.to_string()]).args(flags);
        command.arg("--kubeconfig").arg(self.cluster.kubeconfig());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Divvy {
    /// A process under Divvy's own account, not started yet.
    pub(crate) fn new(cluster: &Cluster, name: &str, service: &str, flags: &[&str]) -> Divvy {
        let kubeconfig = cluster.kubeconfig_of(NAMESPACE, CONTROLLER, None).unwrap();
        let [ops, webhook] = free_ports();
        let mut argv = vec![own::divvy().unwrap().display().to_string(), service.to_owned()];
        argv.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
        argv.extend(["--ops-listen".to_owned(), format!("127.0.0.1:{ops}")]);
        if service != "scheduler" {
            argv.extend(["--webhook-listen".to_owned(), format!("127.0.0.1:{webhook}")]);
            argv.extend(["--webhook-url".to_owned(), format!("https://127.0.0.1:{webhook}")]);
        }
        argv.extend(flags.iter().map(ToString::to_string));
        Divvy { program: Program::new(name, cluster.folder(), argv), ops }
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn start(&self) {
        self.program.start().unwrap();
        self.wait_ready();
    }

    /// Waits until it says it is ready.
    pub(crate) fn wait_ready(&self) {
        eventually("Divvy is ready", SOON, || {
            self.program.must_run()?;
            anyhow::ensure!(self.ask("/readyz")? == "ok\n");
            Ok(())
        })
        .unwrap();
    }

    /// What it answers on its probes' port.
    pub(crate) fn ask(&self, path: &str) -> anyhow::Result<String> {
        http_get(self.ops, path)
    }

    /// The value of a metric, summed over its labels; zero where it was never counted.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.try_metric(name).unwrap()
    }

    /// The same of a process that may not be there.
    pub(crate) fn try_metric(&self, name: &str) -> anyhow::Result<f64> {
        let text = self.ask("/metrics")?;
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let of_name = lines.filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with([' ', '{']));
        Ok(of_name.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }
}

/// The body of a plain HTTP answer.
pub(crate) fn http_get(port: u16, path: &str) -> anyhow::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let (_, body) = reply.split_once("\r\n\r\n").ok_or_else(|| anyhow::anyhow!("not an HTTP answer: {reply}"))?;
    Ok(body.to_owned())
}

/// Ports nobody listens on at the moment.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let sockets: Vec<TcpListener> = (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
    std::array::from_fn(|i| sockets[i].local_addr().unwrap().port())
}

/// A pod of one container with these limits.
pub(crate) fn pod(name: &str, limits: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "divvy.test/none:1", "resources": {"limits": limits}}],
        },
    })
}

/// A pod that asks for this share of one GPU.
pub(crate) fn share(name: &str, thousandths: u32) -> Value {
    pod(name, json!({(keys::GPU_SHARE): thousandths}))
}

/// A pod that asks for whole GPUs.
pub(crate) fn whole(name: &str, gpus: u32) -> Value {
    pod(name, json!({(keys::GPU): gpus}))
}

/// The pod once it is bound.
pub(crate) fn wait_bound(space: &Kubectl, name: &str) -> Value {
    space.wait("pod", name, SOON, |pod| pod["spec"]["nodeName"].is_string()).unwrap()
}

/// The words with which a pod is told why it waits.
pub(crate) fn wait_unschedulable(space: &Kubectl, name: &str) -> String {
    let condition = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|c| c["type"] == "PodScheduled" && c["status"] == "False")
    };
    let pod = space.wait("pod", name, SOON, |pod| condition(pod).is_some()).unwrap();
    let condition = condition(&pod).unwrap();
    assert_eq!(condition["reason"], "Unschedulable");
    condition["message"].as_str().unwrap().to_owned()
}

/// What a pod was granted.
pub(crate) fn grant(pod: &Value) -> Grant {
    let text = pod["metadata"]["annotations"][keys::GRANT].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("no grant on {}", pod["metadata"]["name"]))).unwrap()
}

/// The devices of a grant, in order.
pub(crate) fn devices(grant: &Grant) -> Vec<String> {
    grant.containers.iter().flat_map(|c| &c.slices).map(|s| s.device.to_string()).collect()
}
