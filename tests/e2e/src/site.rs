//! A node with cards and the agent on it for the tests of the agent, and short ways to make pods with grants on it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use divvy_core::keys;
use divvy_fakedriver::machine::Machine;
use divvy_shm::{ContainerConfig, GateReader};
use serde_json::{Value, json};

use crate::{Cluster, Image, Kubectl, Options, Program, eventually, install, own};

/// Long enough for a busy machine; tests wait for conditions, not for this.
pub const SOON: Duration = Duration::from_secs(60);
/// The same for what the kubelet tries again by itself, with pauses that grow.
pub const LATER: Duration = Duration::from_secs(120);
/// An image that says it wants to see every card.
pub const GREEDY: &str = "divvy.test/greedy:1";
/// An image with a CUDA program (`tenant`) that does what it is told.
pub const CUDA: &str = "divvy.test/cuda:1";
/// Cards of the node.
pub const CARDS: [&str; 2] = ["GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"];
/// Where the kubelet writes down devices, and who has them.
const CHECKPOINT: &str = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint";
/// The machine that the fake driver simulates. Shares are held, so time is simulated too.
const MACHINE: &str = "H200 memory=100GiB uuid=GPU-00000000-0000-4000-8000-000000000000; \
    H200 memory=100GiB uuid=GPU-00000000-0000-4000-8000-000000000001";

/// A cluster with one node and the agent on it.
pub struct Site {
    /// The cluster.
    pub cluster: Cluster,
    /// The agent, on the cluster's node.
    pub agent: Program,
    machine: String,
    account: String,
    namespaces: usize,
}

/// The site, for one test at a time.
pub fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceLock<Mutex<Site>> = OnceLock::new();
    let site = SITE.get_or_init(|| Mutex::new(Site::start()));
    let taken = site.lock().unwrap_or_else(PoisonError::into_inner);
    if site.is_poisoned() {
        // A test failed in the middle; the others are not to fail with it.
        taken.mend();
        site.clear_poison();
    }
    taken
}

impl Site {
    fn start() -> Site {
        Site::start_with(MACHINE, "divvy-agent")
    }

    /// A node with this machine behind its fake driver, and the agent on it under its own account.
    pub fn start_with(machine: &str, account: &str) -> Site {
        let cluster = Cluster::start(Options::with_node()).unwrap();
        let node = &cluster.nodes()[0];
        install::install(cluster.admin()).unwrap();
        // These tests write grants themselves: the administrator plays the scheduler.
        let exempt = r#"!(request.userInfo.username in ["system:serviceaccount:divvy-system:divvy", "admin"])"#;
        let patch =
            json!([{"op": "replace", "path": "/spec/matchConditions/0/expression", "value": exempt}]).to_string();
        let policy = ["patch", "validatingadmissionpolicy", "divvy-grants", "--type=json", "--patch", &patch];
        cluster.admin().say(&policy).unwrap();
        let agent = node.program("agent", words(&cluster, machine, account, "cdi"));
        let greedy = Image::busybox().unwrap().env("NVIDIA_VISIBLE_DEVICES", "all");
        cluster.offer_image(GREEDY, &greedy).unwrap();
        let cuda = Image::busybox().unwrap().program("/bin/tenant", &own::tenant().unwrap()).unwrap();
        cluster.offer_image(CUDA, &cuda).unwrap();
        agent.start().unwrap();
        let site = Site { cluster, agent, machine: machine.to_owned(), account: account.to_owned(), namespaces: 0 };
        let admin = site.cluster.admin();
        admin
            .wait("node", "node-0", SOON, |n| n["status"]["allocatable"][keys::SLOT].as_str().is_some_and(|s| s != "0"))
            .unwrap_or_else(|e| panic!("{e:#}\n{}", site.agent_log()));
        site
    }

    /// kubectl in a fresh namespace, on a node that holds nothing.
    pub fn namespace(&mut self) -> Kubectl {
        self.agent.must_run().unwrap();
        self.cluster.nodes()[0].kubelet.must_run().unwrap();
        let admin = self.cluster.admin();
        for old in (1..=self.namespaces).map(|n| format!("test-{n}")) {
            let words = ["delete", "pods", "--all", "--force", "--grace-period=0", "--ignore-not-found"];
            admin.in_namespace(&old).say(&words).unwrap();
        }
        self.settled();
        self.listened();
        self.namespaces += 1;
        let name = format!("test-{}", self.namespaces);
        admin.say(&["create", "namespace", &name]).unwrap();
        let kubectl = admin.in_namespace(&name);
        kubectl.wait("serviceaccount", "default", SOON, |_| true).unwrap();
        kubectl
    }

    /// Waits until nobody holds anything on the node.
    pub fn settled(&self) {
        eventually("the node's ledger is empty", SOON, || {
            let held = self.ledger();
            anyhow::ensure!(held.is_empty(), "{held:?} are still held");
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e:#}\n{}", self.agent_log()));
    }

    /// Waits until the kubelet has heard of the agent's slots: a pod that is made sooner is turned away by the kubelet for good.
    pub fn listened(&self) {
        eventually("the agent is ready", SOON, || self.try_ask("/readyz").map(drop))
            .unwrap_or_else(|e| panic!("{e:#}\n{}", self.agent_log()));
    }

    /// Where a file of the node is, seen from here.
    pub fn on_node(&self, path: &str) -> PathBuf {
        self.cluster.nodes()[0].root().join(path.trim_start_matches('/'))
    }

    /// What the agent has written down: by pod's name, the grant.
    pub fn ledger(&self) -> BTreeMap<String, Value> {
        let folder = self.on_node("/run/divvy/containers");
        let mut held = BTreeMap::new();
        for pod in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(text) = fs::read(pod.path().join("pod.json")) else { continue };
            let note: Value = serde_json::from_slice(&text).unwrap();
            held.insert(note["pod"]["name"].as_str().unwrap().to_owned(), note["grant"].clone());
        }
        held
    }

    /// What a container's library reads.
    pub fn gate(&self, uid: &str, container: &str) -> ContainerConfig {
        let folder = self.on_node("/run/divvy/containers").join(uid).join(container);
        GateReader::open(&folder).unwrap().config().1
    }

    fn kubelet_notes(&self) -> Value {
        let text: Value = serde_json::from_slice(&fs::read(self.on_node(CHECKPOINT)).unwrap()).unwrap();
        text["Data"].clone()
    }

    /// What the kubelet has written down: by pod uid and container, the ids.
    pub fn checkpoint(&self) -> BTreeMap<(String, String), Vec<String>> {
        let entries = self.kubelet_notes()["PodDeviceEntries"].as_array().cloned().unwrap_or_default();
        let word = |v: &Value| v.as_str().unwrap().to_owned();
        let ids = |v: &Value| v["-1"].as_array().unwrap().iter().map(word).collect();
        entries.iter().map(|e| ((word(&e["PodUID"]), word(&e["ContainerName"])), ids(&e["DeviceIDs"]))).collect()
    }

    /// Starts the agent anew, with edits reaching containers in another way.
    pub fn carrier(&self, carrier: &str) {
        self.anew(words(&self.cluster, &self.machine, &self.account, carrier));
    }

    /// Starts the agent anew, with more flags than usual.
    pub fn flags(&self, flags: &[&str]) {
        let mut argv = words(&self.cluster, &self.machine, &self.account, "cdi");
        let named = |word: &String| flags.iter().any(|f| f.split('=').next() == word.split('=').next());
        argv.retain(|word| !named(word));
        argv.extend(flags.iter().map(ToString::to_string));
        self.anew(argv);
    }

    /// Undoes whatever a test may have done to the node.
    fn mend(&self) {
        let (node, admin) = (&self.cluster.nodes()[0], self.cluster.admin());
        let _ = node.partition(false);
        let _ = admin.run(&["delete", "resourceslices", "--all"]);
        let _ = admin.run(&["annotate", "node", "node-0", &format!("{}-", keys::CORDON)]);
        if let Ok(machine) = Machine::open(&self.on_node("/run/fake-gpu"), None) {
            (0..CARDS.len()).for_each(|card| machine.lose(card, false));
        }
        let _ = std::fs::remove_file(self.on_node("/run/divvy/health.json"));
        self.flags(&[]);
    }

    fn anew(&self, argv: Vec<String>) {
        self.agent.stop().unwrap();
        self.agent.set_argv(argv);
        self.come_back();
    }

    /// Kills the agent as a crash would, does something while it is away, and starts it again.
    pub fn crash_agent(&self, meanwhile: impl FnOnce()) {
        self.agent.kill().unwrap();
        meanwhile();
        self.come_back();
    }

    /// Starts an agent that was ended, and waits until the kubelet has heard of both: its node's status says so.
    fn come_back(&self) {
        let admin = self.cluster.admin();
        let slots = |none: bool| move |n: &Value| (n["status"]["allocatable"][keys::SLOT] == "0") == none;
        admin.wait("node", "node-0", SOON, slots(true)).unwrap();
        self.agent.start().unwrap();
        self.listened();
        admin.wait("node", "node-0", SOON, slots(false)).unwrap_or_else(|e| panic!("{e:#}\n{}", self.agent_log()));
    }

    /// Does something that makes the agent register anew, and waits until the kubelet has taken its slots. Works on a node
    /// that is cut off too: the kubelet writes down what it took.
    pub fn registers_anew(&self, act: impl FnOnce(&Site)) {
        let registered = || self.agent_log().matches("registered with the kubelet").count();
        let written = || fs::metadata(self.on_node(CHECKPOINT)).map(|m| (m.ino(), m.mtime(), m.mtime_nsec())).ok();
        let before = (registered(), written());
        act(self);
        eventually("the kubelet has taken the agent's slots", SOON, || {
            anyhow::ensure!(registered() > before.0, "not registered yet");
            anyhow::ensure!(written() != before.1, "registered, and not taken yet");
            let slots = &self.kubelet_notes()["RegisteredDevices"][keys::SLOT];
            anyhow::ensure!(slots.as_array().is_some_and(|s| !s.is_empty()), "registered without slots: {slots}");
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e:#}\n{}", self.agent_log()));
    }

    /// Tells the CUDA program in a container what to do; its answers.
    pub fn tenant(&self, kubectl: &Kubectl, pod: &str, commands: &str) -> Vec<String> {
        let words = ["exec", "-i", pod, "--", "tenant"];
        kubectl.feed(&words, commands).unwrap().lines().map(str::to_owned).collect()
    }

    /// A CUDA program in a container that waits for what it is told next.
    pub fn session(&self, kubectl: &Kubectl, pod: &str) -> Session {
        let mut command = kubectl.command(&["exec", "-i", pod, "--", "tenant"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (ear, mouth) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()).lines());
        Session { child, ear, mouth }
    }

    /// What the agent's port answers.
    pub fn ask(&self, path: &str) -> String {
        self.try_ask(path).unwrap()
    }

    fn try_ask(&self, path: &str) -> anyhow::Result<String> {
        let reached = |node: &Value| node["metadata"]["annotations"][keys::AGENT].is_string();
        let node = self.cluster.admin().wait("node", "node-0", SOON, reached)?;
        let address = node["metadata"]["annotations"][keys::AGENT].as_str().unwrap();
        let mut stream = std::net::TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SOON))?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: agent\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or_default();
        anyhow::ensure!(head.contains(" 200 "), "{path}: {head}\n{body}");
        Ok(body.to_owned())
    }

    /// What the agent said.
    pub fn agent_log(&self) -> String {
        fs::read_to_string(self.agent.log()).unwrap_or_default()
    }
}

/// A program on the node that ends with the test, however the test ends.
pub struct Guest(pub Program);

impl Guest {
    /// Starts it.
    pub fn start(program: Program) -> Guest {
        program.start().unwrap();
        Guest(program)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.stop();
    }
}

/// A program in a container, told one thing after another.
pub struct Session {
    child: Child,
    ear: ChildStdin,
    mouth: Lines<BufReader<ChildStdout>>,
}

impl Session {
    /// Tells it one thing; its answer.
    pub fn tell(&mut self, command: &str) -> String {
        writeln!(self.ear, "{command}").unwrap();
        self.mouth.next().unwrap_or_else(|| panic!("no answer to {command:?}")).unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The agent's command line.
fn words(cluster: &Cluster, machine: &str, account: &str, carrier: &str) -> Vec<String> {
    let kubeconfig = cluster.kubeconfig_of(install::NAMESPACE, account, Some(cluster.nodes()[0].name())).unwrap();
    vec![
        "env".to_owned(),
        format!("KUBECONFIG={}", kubeconfig.display()),
        "DIVVY_LOG=info,divvy_agent=debug".to_owned(),
        "FAKE_GPU_STATE=/run/fake-gpu".to_owned(),
        format!("FAKE_GPU_CONFIG={machine}"),
        own::agent().unwrap().display().to_string(),
        "run".to_owned(),
        format!("--node={}", cluster.nodes()[0].name()),
        format!("--fake-driver={}", own::fake_driver().unwrap().display()),
        format!("--library={}", own::library().unwrap().display()),
        format!("--carrier={carrier}"),
        "--look=1".to_owned(),
    ]
}

/// The uid of a pod.
pub fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// A slice of a card in a hand-written grant.
pub fn slice(card: &str, mib: u64, share: u32) -> Value {
    json!({"device": card, "memory": mib << 20, "memoryLimit": mib << 20, "share": share, "shareLimit": share.max(1),
        "isolation": "intercept"})
}

/// A pod that is bound to the node with a hand-written grant. Containers: name, role, slices, script.
pub fn pod(name: &str, containers: &[(&str, &str, Vec<Value>, &str)]) -> Value {
    let grant = json!({"v": 1, "at": 1, "policy": "test",
        "containers": containers.iter().filter(|c| !c.2.is_empty())
            .map(|(name, role, slices, _)| json!({"name": name, "role": role, "slices": slices})).collect::<Vec<_>>()});
    let manifest = |(name, _, slices, script): &(&str, &str, Vec<Value>, &str)| {
        let mut container = json!({"name": name, "image": crate::BUSYBOX, "command": ["sh", "-c", script]});
        if !slices.is_empty() {
            container["resources"] = json!({"limits": {keys::SLOT: slices.len().to_string()}});
        }
        container
    };
    let of = |is_init: bool| -> Vec<Value> {
        containers.iter().filter(|c| (c.1 == "init") == is_init).map(manifest).collect()
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {keys::GRANT: grant.to_string()}},
        "spec": {"nodeName": "node-0", "terminationGracePeriodSeconds": 1, "restartPolicy": "Always",
            "initContainers": of(true), "containers": of(false)},
    })
}
