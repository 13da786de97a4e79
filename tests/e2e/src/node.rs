//! A real node: kubelet and containerd in namespaces of their own, so that they find the paths, the devices and the network that a
//! machine has for itself, and several nodes live side by side.
//!
//! `/var/lib/kubelet`, `/run`, `/etc`, `/dev`... are the node's alone, at their usual places; from outside they are found under
//! [`Node::root`]. Everything in a node ends with its process 1: containers, mounts, networks.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::control_plane::{Ground, merge, path};
use crate::folder::Folder;
use crate::kubectl::eventually;
use crate::network::Network;
use crate::options::{NodeOptions, Options};
use crate::process::{Program, tail};
use crate::programs::sources;

mod configuration;

/// A running node.
#[derive(Debug)]
pub struct Node {
    name: String,
    index: u8,
    init: u32,
    folder: PathBuf,
    network: Network,
    enter: Vec<String>,
    /// Process 1 of the node; its end is the end of everything in the node.
    machine: Program,
    /// containerd.
    pub containerd: Program,
    /// The kubelet.
    pub kubelet: Program,
}

/// The image that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "divvy.test/pause:1";

impl Node {
    /// Starts node number `index`. It registers with the API server by itself, a moment later.
    pub(crate) fn start(
        index: u8,
        options: &NodeOptions,
        all: &Options,
        cluster: &Folder,
        ground: &Ground<'_>,
        registry: SocketAddr,
    ) -> anyhow::Result<Self> {
        let network = ground.network.context("a node needs the cluster's network")?.clone();
        let folder = cluster.path().join(&options.name);
        fs::create_dir_all(folder.join("log"))?;
        let group = format!("divvy.{}.{}", all.name, options.name);
        cluster.note_control_group(&group)?;
        configuration::write(&folder.join("root/etc"), index, options, all, ground, registry)?;
        let machine = machine(&folder, &group)?;
        machine.start()?;
        let init = wait_for_init(&folder, &machine)?;
        network.connect(index, init)?;

        let mut enter = enter_group(&group);
        let target = init.to_string();
        let namespaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup", "--"];
        enter.extend(["nsenter", "--target", &target].into_iter().chain(namespaces).map(String::from));
        let tools =
            format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", ground.programs.folder_of("containerd")?.display());
        let words = |program: &str, flags: &[String]| -> anyhow::Result<Vec<String>> {
            let mut words = vec!["env".to_owned(), tools.clone(), path(ground.programs.path(program)?)];
            words.extend_from_slice(flags);
            Ok(words)
        };
        let labels: Vec<String> = options.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let containerd = words("containerd", &["--config=/etc/containerd/config.toml".into()])?;
        let kubelet = words(
            "kubelet",
            &[
                "--config=/etc/kubernetes/kubelet.json".into(),
                "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig".into(),
                format!("--hostname-override={}", options.name),
                format!("--node-ip={}", network.node(index)),
                format!("--node-labels={}", labels.join(",")),
            ],
        )?;
        let node = Self {
            name: options.name.clone(),
            index,
            init,
            network,
            machine,
            containerd: Program::new("containerd", &folder, containerd).inside(enter.clone()),
            kubelet: Program::new("kubelet", &folder, kubelet).inside(enter.clone()),
            enter,
            folder,
        };
        node.start_containerd()?;
        node.kubelet.start()?;
        Ok(node)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the node's own files are, seen from outside: `root()/var/lib/kubelet` and so on, for `/run`, `/var/lib`, `/var/log`
    /// (whole), and `/etc`, `/opt`, `/usr/local` (what the node has changed).
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// The node's log folder.
    pub fn logs(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Runs a shell script on the node, as root there.
    pub fn shell(&self, script: &str) -> anyhow::Result<Output> {
        let mut command = Command::new(&self.enter[0]);
        command.args(&self.enter[1..]).args(["sh", "-c", script]).stdin(Stdio::null());
        command.output().with_context(|| format!("could not enter {}", self.name))
    }

    /// A program that runs on the node until this process ends, with its output in the node's log folder.
    pub fn program(&self, name: &str, argv: Vec<String>) -> Program {
        Program::new(name, &self.folder, argv).inside(self.enter.clone())
    }

    /// The name and end of every log of the node.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &Program> {
        [&self.machine, &self.containerd, &self.kubelet].into_iter()
    }

    /// Starts containerd, after it was killed or stopped, and waits until it listens: a kubelet that starts without it gives up.
    /// Containers run on meanwhile.
    pub fn start_containerd(&self) -> anyhow::Result<()> {
        self.containerd.start()?;
        // Through the node's own root: from outside the path is too long for a socket's address.
        let socket = format!("/proc/{}/root/run/containerd/containerd.sock", self.init);
        eventually("containerd listens", Duration::from_secs(30), || {
            self.containerd.must_run()?;
            UnixStream::connect(&socket).with_context(|| tail(self.containerd.log(), 15))
        })?;
        Ok(())
    }

    /// Restarts containerd and waits until it listens.
    pub fn restart_containerd(&self) -> anyhow::Result<()> {
        self.containerd.stop()?;
        self.start_containerd()
    }

    /// Changes the kubelet's configuration; it takes effect when the kubelet is restarted.
    pub fn configure_kubelet(&self, over: &Value) -> anyhow::Result<()> {
        let file = self.root().join("etc/kubernetes/kubelet.json");
        let mut config: Value = serde_json::from_slice(&fs::read(&file)?)?;
        merge(&mut config, over);
        write_inside(&self.enter, "/etc/kubernetes/kubelet.json", &serde_json::to_vec_pretty(&config)?)
    }

    /// Cuts the node off from the control plane, or joins it again.
    pub fn partition(&self, cut: bool) -> anyhow::Result<()> {
        self.network.partition(self.index, cut)
    }
}

/// The words that move what follows them into a control group, on this machine.
fn enter_group(group: &str) -> Vec<String> {
    ["sh", "-c", include_str!("node/enter.sh"), "enter.sh", group].map(String::from).to_vec()
}

/// Process 1 of a node.
fn machine(folder: &Path, group: &str) -> anyhow::Result<Program> {
    let init = folder.join("init");
    compile_pause(&init)?;
    let mut argv = enter_group(group);
    argv.extend(
        ["unshare", "--fork", "--pid", "--kill-child", "--mount", "--net", "--uts", "--ipc", "--cgroup"]
            .map(String::from),
    );
    argv.extend(["sh", "-c", include_str!("node/boot.sh"), "boot.sh"].map(String::from));
    argv.extend([path(folder), path(&init)]);
    Ok(Program::new("machine", folder, argv))
}

/// Builds `tests/cluster/images/pause.c`.
pub(crate) fn compile_pause(into: &Path) -> anyhow::Result<()> {
    let source = sources().join("images/pause.c");
    let status = Command::new("cc")
        .args(["-static", "-Os", "-s", "-o"])
        .arg(into)
        .arg(&source)
        .status()
        .context("no C compiler")?;
    ensure!(status.success(), "could not compile {}", source.display());
    Ok(())
}

fn wait_for_init(folder: &Path, machine: &Program) -> anyhow::Result<u32> {
    eventually("the node boots", Duration::from_secs(30), || {
        machine.must_run()?;
        let pid = fs::read_to_string(folder.join("init.pid")).with_context(|| tail(machine.log(), 15))?;
        Ok(pid.trim().parse()?)
    })
}

/// Writes a file as the node sees it.
fn write_inside(enter: &[String], at: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let mut command = Command::new(&enter[0]);
    command.args(&enter[1..]).args(["sh", "-c", r#"mkdir -p "$(dirname "$1")" && cat >"$1""#, "write", at]);
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(bytes)?;
    ensure!(child.wait()?.success(), "could not write {at} on the node");
    Ok(())
}
