//! What a cluster should be like.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::programs::Release;

/// A cluster to start. Begin with [`Options::control_plane`] or [`Options::with_node`] and change what matters.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name; unique among the clusters that run on this machine.
    pub name: String,
    /// Which Kubernetes.
    pub kubernetes: Release,
    /// Real nodes (kubelet and containerd). None: a control plane alone, which needs no root.
    pub nodes: Vec<NodeOptions>,
    /// Feature gates, for every program that has them.
    pub feature_gates: BTreeMap<String, bool>,
    /// More flags of the API server.
    pub api_server: Vec<String>,
    /// Admission plugins to switch off.
    pub without_admission: Vec<String>,
    /// More flags of the controller manager; `None` runs none (then there are no default service accounts and none is asked for).
    pub controller_manager: Option<Vec<String>>,
    /// The scheduler.
    pub scheduler: Scheduler,
}

/// Which kube-scheduler runs.
#[derive(Debug, Clone, Default)]
pub enum Scheduler {
    /// With its defaults.
    #[default]
    Default,
    /// With this KubeSchedulerConfiguration; `clientConnection` and `leaderElection` are filled in.
    Configured(Value),
    /// None.
    Absent,
}

/// A real node to start.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// The node's name.
    pub name: String,
    /// Labels it registers with.
    pub labels: BTreeMap<String, String>,
    /// Merged into the kubelet's configuration.
    pub kubelet: Value,
    /// Appended to containerd's configuration.
    pub containerd: String,
}

impl NodeOptions {
    /// A node of this name with nothing special.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), labels: BTreeMap::new(), kubelet: json!({}), containerd: String::new() }
    }
}

impl Options {
    /// A control plane alone, made for simulated nodes: nothing taints or evicts for want of heartbeats.
    pub fn control_plane() -> Self {
        Self {
            name: unique_name(),
            kubernetes: release(),
            nodes: Vec::new(),
            feature_gates: BTreeMap::new(),
            api_server: Vec::new(),
            without_admission: vec!["TaintNodesByCondition".into()],
            controller_manager: Some(vec!["--controllers=*,-node-lifecycle-controller".into()]),
            scheduler: Scheduler::default(),
        }
    }

    /// A control plane and one real node called `node-0`.
    pub fn with_node() -> Self {
        Self {
            nodes: vec![NodeOptions::new("node-0")],
            without_admission: Vec::new(),
            controller_manager: Some(Vec::new()),
            ..Self::control_plane()
        }
    }

    /// Sets the name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a flag of the API server.
    pub fn api_server_flag(mut self, flag: &str) -> Self {
        self.api_server.push(flag.into());
        self
    }

    /// Chooses the scheduler.
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// Switches a feature gate.
    pub fn feature_gate(mut self, name: &str, on: bool) -> Self {
        self.feature_gates.insert(name.into(), on);
        self
    }

    /// The programs it takes.
    pub fn programs(&self) -> Vec<&'static str> {
        let mut names = vec!["etcd", "kube-apiserver", "kubectl"];
        if self.controller_manager.is_some() {
            names.push("kube-controller-manager");
        }
        if !matches!(self.scheduler, Scheduler::Absent) {
            names.push("kube-scheduler");
        }
        if !self.nodes.is_empty() {
            names.extend(["kubelet", "containerd", "containerd-shim-runc-v2", "ctr"]);
        }
        names
    }

    /// The feature gates as programs take them on the command line.
    pub(crate) fn gates_flag(&self) -> Option<String> {
        let gates: Vec<String> = self.feature_gates.iter().map(|(name, on)| format!("{name}={on}")).collect();
        (!gates.is_empty()).then(|| format!("--feature-gates={}", gates.join(",")))
    }
}

/// `DIVVY_TEST_KUBERNETES=1.34` runs any test on that Kubernetes.
fn release() -> Release {
    let chosen = std::env::var("DIVVY_TEST_KUBERNETES").ok();
    chosen.map_or_else(Release::default, |text| {
        text.parse().unwrap_or_else(|error| panic!("DIVVY_TEST_KUBERNETES: {error}"))
    })
}

/// A name no other cluster of this machine has: by process, and by count within it.
fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}
