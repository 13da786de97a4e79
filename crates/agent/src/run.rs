//! `divvy-agent run`: everything the agent does, as supervised tasks.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use divvy_core::device::MemoryUnit;
use divvy_service::{Stop, Tasks};
use kube::Client;
use tokio::sync::watch;

use crate::arbiter::audit;
use crate::device::{self, Settings};
use crate::events::Events;
use crate::explore;
use crate::hold::Hold;
use crate::home::Home;
use crate::inventory::{Advertise, Style};
use crate::kubelet::Kubelet;
use crate::library::Shelf;
use crate::node::Node;
use crate::patches::Patches;
use crate::plugin::slots::Slots;
use crate::plugin::{Carrier, Plugin, serve};
use crate::pods::Pods;
use crate::publish;
use crate::runtime::Runtime;
use crate::shim::desk::{self, Babble};

/// How the agent runs.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// This node's name
    #[arg(long, env = "NODE_NAME")]
    pub node: String,
    /// Where the agent keeps containers' pages: a tmpfs that outlives it
    #[arg(long, env = "DIVVY_RUN", default_value = "/run/divvy")]
    pub run: PathBuf,
    /// Where the agent keeps libraries
    #[arg(long, env = "DIVVY_STATE", default_value = "/var/lib/divvy")]
    pub state: PathBuf,
    /// The libdivvy.so that containers get
    #[arg(long, env = "DIVVY_LIBRARY")]
    pub library: Option<PathBuf>,
    /// Where the runtime looks for CDI specs
    #[arg(long, env = "DIVVY_CDI", default_value = "/var/run/cdi")]
    pub cdi: PathBuf,
    /// The kubelet's folder of device plugins
    #[arg(long, env = "DIVVY_PLUGINS", default_value = "/var/lib/kubelet/device-plugins")]
    pub plugins: PathBuf,
    /// The kubelet's pod-resources socket
    #[arg(long, env = "DIVVY_POD_RESOURCES", default_value = "/var/lib/kubelet/pod-resources/kubelet.sock")]
    pub pod_resources: PathBuf,
    /// The container runtime's socket
    #[arg(long, env = "DIVVY_CRI", default_value = "/run/containerd/containerd.sock")]
    pub cri: PathBuf,
    /// How edits reach containers
    #[arg(long, env = "DIVVY_CARRIER", value_enum, default_value = "cdi")]
    pub carrier: Carrier,
    /// Slots per device: how many containers can share one at most
    #[arg(long, env = "DIVVY_SLOTS", default_value_t = 16)]
    pub slots: usize,
    /// Start a keeper where none runs (not where one runs as a container of its own)
    #[arg(long, env = "DIVVY_KEEPER", default_value_t = true, action = clap::ArgAction::Set)]
    pub keeper: bool,
    /// Whose resource names the node's status shows
    #[arg(long, env = "DIVVY_ADVERTISE", value_enum, default_value = "all")]
    pub advertise: Advertise,
    /// The unit of aliyun.com/gpu-mem on this node (GiB or MiB)
    #[arg(long, env = "DIVVY_MEMORY_UNIT", default_value = "GiB", value_parser = memory_unit)]
    pub memory_unit: MemoryUnit,
    /// Seconds between two looks at the devices
    #[arg(long, env = "DIVVY_LOOK", default_value_t = 5)]
    pub look: u64,
    /// What is done about a process that uses a card and goes around the library
    #[arg(long, env = "DIVVY_BYPASS", value_enum, default_value = "report")]
    pub bypass: audit::watch::Policy,
    /// The devices
    #[command(flatten)]
    pub devices: Settings,
}

fn memory_unit(text: &str) -> Result<MemoryUnit, String> {
    match text {
        "GiB" => Ok(MemoryUnit::GiB),
        "MiB" => Ok(MemoryUnit::MiB),
        other => Err(format!("{other:?} is no unit of memory here: GiB or MiB")),
    }
}

/// Runs until told to stop.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client =
        Client::try_default().await.context("no way to the API server: neither kubeconfig nor service account")?;
    let (providers, troubles) = device::open(&args.devices);
    for trouble in troubles {
        tracing::error!(%trouble, "these devices are not offered");
    }
    let home = Home::open(&args.run).with_context(|| format!("cannot use {}", args.run.display()))?;
    let shelf = match &args.library {
        Some(library) => Some(
            Shelf::stock(&args.state.join("lib"), library)
                .with_context(|| format!("cannot put {} into {}", library.display(), args.state.display()))?,
        ),
        None => None,
    };
    std::fs::create_dir_all(&args.cdi).with_context(|| format!("cannot use {}", args.cdi.display()))?;
    let pods = Pods::default();
    let style = Style { advertise: args.advertise, memory_unit: args.memory_unit, slots_per_device: args.slots };
    let node = Node::new(args.node.clone(), style, pods.clone(), providers, home, shelf, args.cdi.clone())?;
    let node = Arc::new(node);
    let (events, queue) = Events::new(&args.node);
    let (patches, orders) = Patches::new();
    let kubelet = Kubelet::new(&args.plugins, &args.pod_resources);
    let runtime = Runtime::new(&args.cri);
    let slots = Slots::new(args.slots);
    let plugin = Plugin {
        node: node.clone(),
        kubelet: kubelet.clone(),
        runtime: runtime.clone(),
        events: events.clone(),
        patches: patches.clone(),
        slots: slots.clone(),
        carrier: args.carrier,
    };
    let (view, _) = watch::channel(None);
    let sys = args.devices.on_host("/sys".as_ref());

    let mut tasks = Tasks::new();
    let stop = || tasks.stop();
    let (follow_pods, follow_node) = (
        pods.clone().follow(client.clone(), args.node.clone(), stop()),
        publish::follow(client.clone(), args.node.clone(), view.clone(), stop()),
    );
    let publish = publish::publish(client.clone(), args.node.clone(), node.clone(), view.subscribe(), stop());
    let look = Duration::from_secs(args.look.max(1));
    let explore = explore::run(node.clone(), look, sys, view.subscribe(), stop());
    let hold = Hold::start(node.home().clone(), runtime.clone(), args.keeper, |(container, pid, event)| {
        tracing::warn!(container = %container.display(), pid, ?event, "a container reports");
    });
    let hold = Arc::new(hold.with_context(|| format!("cannot listen in {}", args.run.display()))?);
    let identify = crate::hold::identify(node.home().clone(), runtime.clone());
    let audit = audit::watch::run(node.clone(), identify, events.clone(), args.bypass, stop());
    let settle = settle(node.clone(), hold, runtime, kubelet, slots, stop());
    let babble = Babble::default();
    let desk = desk::serve(args.run.join("desk.sock"), node.clone(), events.clone(), babble, stop());
    let (serve, send) = (serve::run(plugin, args.plugins.clone(), stop()), queue.send(client.clone(), stop()));
    let patch = orders.send(client, stop());
    tasks.add("pods", follow_pods);
    tasks.add("node object", follow_node);
    tasks.add("inventory", publish);
    tasks.add("devices", explore);
    tasks.add("ledger", settle);
    tasks.add("audit", audit);
    tasks.add("device plugin", serve);
    tasks.add("events", send);
    tasks.add("desk", desk);
    tasks.add("patches", patch);
    tasks.run().await
}

/// Keeps the ledger in line with the API server and the runtime, and the slots with the ledger.
async fn settle(
    node: Arc<Node>,
    hold: Arc<Hold>,
    runtime: Runtime,
    kubelet: Kubelet,
    slots: Slots,
    stop: Stop,
) -> anyhow::Result<()> {
    let mut pods = node.pods.changes();
    let mut devices = node.changes();
    loop {
        let running = match runtime.running().await {
            Ok(running) => Some(running),
            // What cannot be seen is not given back.
            Err(error) => {
                tracing::warn!(%error, "the container runtime does not answer");
                None
            }
        };
        let (settled, held) = (node.clone(), hold.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(running) = running {
                settled.settle(&running);
                settled.sweep();
            }
            held.update(&settled.places());
        })
        .await?;
        update_slots(&node, &kubelet, &slots).await;
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(5)) => {}
            Ok(()) = pods.changed() => {}
            Ok(()) = devices.changed() => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

async fn update_slots(node: &Node, kubelet: &Kubelet, slots: &Slots) {
    if !node.is_explored() {
        return;
    }
    let held: BTreeSet<String> = match kubelet.checkpoint() {
        Some(entries) => entries.into_iter().flat_map(|e| e.ids).collect(),
        None => kubelet.listed().await.into_iter().flatten().flat_map(|l| l.ids).collect(),
    };
    let devices = node.devices();
    let closed = devices.iter().filter(|d| !d.is_open()).count();
    slots.update(devices.len(), closed, &held);
    slots.set_leaving(node.leaving_slots());
}
