//! The node that the tests share, and short ways to make pods with grants on it.

use std::fs;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use divvy_core::keys;
use divvy_e2e::{Cluster, Kubectl, Options, Program, own};
use serde_json::{Value, json};

/// Long enough for a busy machine; tests wait for conditions, not for this.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Cards of the node.
pub(crate) const CARDS: [&str; 2] =
    ["GPU-00000000-0000-4000-8000-000000000000", "GPU-00000000-0000-4000-8000-000000000001"];

/// A cluster with one node and the agent on it.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    pub(crate) agent: Program,
    namespaces: usize,
}

/// The site, for one test at a time.
pub(crate) fn site() -> MutexGuard<'static, Site> {
    static SITE: OnceLock<Mutex<Site>> = OnceLock::new();
    SITE.get_or_init(|| Mutex::new(Site::start())).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Site {
    fn start() -> Site {
        let cluster = Cluster::start(Options::with_node()).unwrap();
        let node = &cluster.nodes()[0];
        let gpus = cluster.folder().join("gpus.yaml");
        fs::write(&gpus, "gpus: [{model: NVIDIA-H200, count: 2, memory: 100GiB, nvlink: true}]").unwrap();
        let kubeconfig = cluster.kubeconfig().display();
        let words = vec![
            "env".to_owned(),
            format!("KUBECONFIG={kubeconfig}"),
            "DIVVY_LOG=info,divvy_agent=debug".to_owned(),
            own::agent().unwrap().display().to_string(),
            "run".to_owned(),
            format!("--node={}", node.name()),
            format!("--gpus={}", gpus.display()),
            format!("--library={}", own::library().unwrap().display()),
        ];
        let mut agent = node.program("agent", words);
        agent.start().unwrap();
        let site = Site { cluster, agent, namespaces: 0 };
        let admin = site.cluster.admin();
        admin
            .wait("node", "node-0", SOON, |n| n["status"]["allocatable"][keys::SLOT] == "32")
            .unwrap_or_else(|e| panic!("{e:#}\n{}", site.agent_log()));
        site
    }

    /// kubectl in a fresh namespace.
    pub(crate) fn namespace(&mut self) -> Kubectl {
        self.namespaces += 1;
        let name = format!("test-{}", self.namespaces);
        self.cluster.admin().say(&["create", "namespace", &name]).unwrap();
        let kubectl = self.cluster.admin().in_namespace(&name);
        kubectl.wait("serviceaccount", "default", SOON, |_| true).unwrap();
        kubectl
    }

    /// What the agent said.
    pub(crate) fn agent_log(&self) -> String {
        fs::read_to_string(self.agent.log()).unwrap_or_default()
    }
}

/// A slice of a card in a hand-written grant.
pub(crate) fn slice(card: &str, mib: u64, share: u32) -> Value {
    json!({"device": card, "memory": mib << 20, "memoryLimit": mib << 20, "share": share, "shareLimit": share.max(1),
        "isolation": "intercept"})
}

/// A pod that is bound to the node with a hand-written grant. Containers: name, role, slices, script.
pub(crate) fn pod(name: &str, containers: &[(&str, &str, Vec<Value>, &str)]) -> Value {
    let grant = json!({"v": 1, "at": 1, "policy": "test",
        "containers": containers.iter().filter(|c| !c.2.is_empty())
            .map(|(name, role, slices, _)| json!({"name": name, "role": role, "slices": slices})).collect::<Vec<_>>()});
    let manifest = |(name, _, slices, script): &(&str, &str, Vec<Value>, &str)| {
        let mut container = json!({"name": name, "image": divvy_e2e::BUSYBOX, "command": ["sh", "-c", script]});
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
