//! A whole cluster: started, used, gone.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Ground, write_kubeconfig};
use crate::folder::Folder;
use crate::image::Image;
use crate::kubectl::{Kubectl, eventually};
use crate::namespace::Namespace;
use crate::network::Network;
use crate::node::{self, Node, PAUSE};
use crate::options::Options;
use crate::packages;
use crate::pki::Authority;
use crate::process::tail;
use crate::programs::Programs;
use crate::registry::Registry;

/// A running Kubernetes. Dropped, or its process gone in whatever way, nothing of it remains.
#[derive(Debug)]
pub struct Cluster {
    // Ended in this order.
    nodes: Vec<Node>,
    control_plane: ControlPlane,
    kubectl: Kubectl,
    authority: Authority,
    registry: Option<Registry>,
    network: Option<Network>,
    programs: Programs,
    name: String,
    folder: Folder,
}

/// The image with a shell in it that every cluster with nodes offers.
pub const BUSYBOX: &str = "divvy.test/busybox:1";

/// How long a part of a cluster may take to come up, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(90);

impl Cluster {
    /// Starts a cluster and waits until it can be used: API server ready, default service account there, nodes ready.
    pub fn start(options: Options) -> anyhow::Result<Self> {
        let programs = Programs::ready(options.kubernetes, &options.programs())?;
        if !options.nodes.is_empty() {
            packages::ready()?;
        }
        let folder = Folder::create(&options.name)?;
        let network = if options.nodes.is_empty() { None } else { Some(Network::take()?) };
        if let Some(network) = &network {
            folder.note_bridge(&network.bridge())?;
        }
        let authority = Authority::create(&folder.path().join("pki"))?;
        let ground =
            Ground { folder: folder.path(), programs: &programs, authority: &authority, network: network.as_ref() };
        let control_plane = ControlPlane::start(&ground, &options)?;
        let kubectl = Kubectl::new(programs.path("kubectl")?, folder.path().join("admin.kubeconfig"));
        std::os::unix::fs::symlink(programs.folder_of("kubectl")?, folder.path().join("bin"))?;
        let registry = network.as_ref().map(|network| base_registry(network, folder.path())).transpose()?;
        let name = options.name.clone();
        let mut cluster =
            Self { nodes: Vec::new(), control_plane, kubectl, authority, registry, network, programs, name, folder };
        match cluster.finish(&options) {
            Ok(()) => Ok(cluster),
            Err(error) => Err(error.context(cluster.report())),
        }
    }

    fn finish(&mut self, options: &Options) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        self.control_plane.wait_for_socket(deadline)?;
        eventually("the API server is ready", PATIENCE, || self.kubectl.say(&["get", "--raw", "/readyz"]))?;
        self.control_plane.start_clients()?;
        let ground = Ground {
            folder: self.folder.path(),
            programs: &self.programs,
            authority: &self.authority,
            network: self.network.as_ref(),
        };
        if let Some(registry) = &self.registry {
            for (index, node) in (0..).zip(&options.nodes) {
                self.nodes.push(Node::start(index, node, options, &self.folder, &ground, registry.address())?);
            }
        }
        if options.controller_manager.is_some() {
            self.kubectl.in_namespace("default").wait("serviceaccount", "default", PATIENCE, |_| true)?;
        }
        for node in &self.nodes {
            self.kubectl.wait("node", node.name(), PATIENCE, is_ready)?;
        }
        Ok(())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder with its files and logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// kubectl as the administrator.
    pub fn admin(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Runs kubectl as the administrator, whatever comes of it.
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<Output> {
        self.kubectl.run(words)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        self.kubectl.kubeconfig()
    }

    /// A kubeconfig for another user, who may do what RBAC says.
    pub fn kubeconfig_for(&self, user: &str, group: Option<&str>) -> anyhow::Result<PathBuf> {
        let config: Value = serde_json::from_slice(&fs::read(self.kubeconfig())?)?;
        let server = config["clusters"][0]["cluster"]["server"].as_str().context("a kubeconfig without a server")?;
        let file = format!("user-{}", user.replace(|c: char| !c.is_ascii_alphanumeric(), "-"));
        let ground =
            Ground { folder: self.folder.path(), programs: &self.programs, authority: &self.authority, network: None };
        write_kubeconfig(&ground, server, &file, user, group)
    }

    /// A kubeconfig with a token of an account, as the account's pods have it: where a node is named, as those on it have it.
    pub fn kubeconfig_of(&self, namespace: &str, account: &str, node: Option<&str>) -> anyhow::Result<PathBuf> {
        // Longer than any test.
        let mut words = vec!["create".to_owned(), "token".to_owned(), account.to_owned(), "--duration=24h".to_owned()];
        if let Some(node) = node {
            let object = self.kubectl.get("node", node)?;
            let uid = object["metadata"]["uid"].as_str().context("a node without a uid")?;
            words.push("--bound-object-kind=Node".to_owned());
            words.push(format!("--bound-object-name={node}"));
            words.push(format!("--bound-object-uid={uid}"));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let token = self.kubectl.in_namespace(namespace).say(&words)?;
        let mut config: Value = serde_json::from_slice(&fs::read(self.kubeconfig())?)?;
        config["users"][0]["user"] = json!({"token": token.trim()});
        let at = self.folder.path().join(format!("{namespace}-{account}-{}.kubeconfig", node.unwrap_or("anywhere")));
        fs::write(&at, serde_json::to_vec_pretty(&config)?)?;
        Ok(at)
    }

    /// The authority that signed the cluster's certificates; tests let it sign their webhooks' too.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The control plane, to crash and restart its parts.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.control_plane
    }

    /// The real nodes, to crash and restart their parts.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One of the real nodes.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// This machine's address as the nodes and pods see it, if there are nodes.
    pub fn host_address(&self) -> Option<std::net::Ipv4Addr> {
        self.network.as_ref().map(Network::host)
    }

    /// Offers an image to the nodes under any name, also of foreign registries.
    pub fn offer_image(&self, name: &str, image: &Image) -> anyhow::Result<()> {
        self.registry.as_ref().context("a cluster without nodes pulls no images")?.offer(name, image)
    }

    /// Waits until the API server answers again, after it was restarted.
    pub fn wait_for_api_server(&self) -> anyhow::Result<()> {
        self.control_plane.wait_for_socket(Instant::now() + PATIENCE)?;
        eventually("the API server is ready", PATIENCE, || self.kubectl.say(&["get", "--raw", "/readyz"])).map(drop)
    }

    /// Makes nodes that exist in the API server only, ready for pods. See [`simulated_node`].
    pub fn simulate_nodes(&self, nodes: &[Value]) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes});
        self.kubectl.create(&list.to_string())?;
        // Where the admission plugin is on it taints a new node whatever its status says.
        for node in nodes {
            let name = node["metadata"]["name"].as_str().context("a simulated node without a name")?;
            self.kubectl.say(&["patch", "node", name, "--type=merge", "--patch", r#"{"spec":{"taints":null}}"#])?;
        }
        Ok(())
    }

    /// A namespace of its own for a test. See [`Namespace`].
    pub fn namespace(&self, hint: &str) -> anyhow::Result<Namespace<'_>> {
        Namespace::create(self, hint)
    }

    /// What its programs said last, for the report of a failure.
    pub fn report(&self) -> String {
        let mut text = format!("cluster {}:\n", self.name);
        let programs = self.control_plane.programs().chain(self.nodes.iter().flat_map(Node::programs));
        for program in programs {
            let state = if program.running() { "running" } else { "ENDED" };
            let last = tail(program.log(), 12);
            text.push_str(&format!("--- {} ({state})\n{last}\n", program.name()));
        }
        text
    }
}

/// A registry with what every node needs.
fn base_registry(network: &Network, folder: &Path) -> anyhow::Result<Registry> {
    let registry = Registry::serve(SocketAddr::from((network.host(), 5000)))?;
    let pause = folder.join("pause");
    node::compile_pause(&pause)?;
    registry.offer(PAUSE, &Image::new().file("/pause", &pause).command(["/pause"]))?;
    registry.offer(BUSYBOX, &Image::busybox()?)?;
    Ok(registry)
}

/// Whether a Node object says it is ready.
pub fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A Node object as a kubelet would have registered it: 64 CPUs, 256 GiB, 110 pods, ready; with these annotations, labels and
/// extended resources.
pub fn simulated_node(name: &str, annotations: &Value, labels: &Value, resources: &Value) -> Value {
    let mut capacity = json!({"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "1Ti"});
    crate::control_plane::merge(&mut capacity, resources);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": labels},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Simulated", "message": "exists in the API server only"}],
        },
    })
}
