//! `divvy-agent run`: everything the agent does, as supervised tasks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use divvy_core::device::MemoryUnit;
use divvy_core::units::Bytes;
use divvy_service::http::{self, Port};
use divvy_service::{Health, Stop, Tasks};
use kube::Client;
use tokio::sync::watch;

use crate::arbiter::audit;
use crate::device::{self, Settings};
use crate::events::Events;
use crate::explore::Explorer;
use crate::farewell;
use crate::health::Policy;
use crate::hold::Hold;
use crate::home::Home;
use crate::inventory::{Advertise, Style};
use crate::journal::Journal;
use crate::kubelet::Kubelet;
use crate::library::Shelf;
use crate::metrics::Scrape;
use crate::node::Node;
use crate::nonsense::{Nonsense, Socket};
use crate::offer;
use crate::ops::{self, Reach};
use crate::owners;
use crate::patches::Patches;
use crate::plugin::slots::Slots;
use crate::plugin::{Carrier, Plugin, serve};
use crate::pods::Pods;
use crate::publish::{self, NodeView};
use crate::resize::Resize;
use crate::runtime::Runtime;
use crate::settle::{Settle, now};
use crate::shim::desk;
use crate::ward::Ward;

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
    /// Slots per device: how many containers can share one at most. More than a node takes pods by default (110), so that memory and
    /// time are what runs out; a slot costs one short entry in the list of ids that the kubelet keeps
    #[arg(long, env = "DIVVY_SLOTS", default_value_t = 128)]
    pub slots: usize,
    /// Start a keeper where none runs (not where one runs as a container of its own)
    #[arg(long, env = "DIVVY_KEEPER", default_value_t = true, action = clap::ArgAction::Set)]
    pub keeper: bool,
    /// Whose resource names the node's status shows
    #[arg(long, env = "DIVVY_ADVERTISE", value_enum, default_value = "all")]
    pub advertise: Advertise,
    /// The unit of aliyun.com/gpu-mem on this node (GiB or MiB; anything else is GiB, with a warning)
    #[arg(long, env = "DIVVY_MEMORY_UNIT", default_value = "GiB")]
    pub memory_unit: String,
    /// What a CUDA context takes of a card here (about 520Mi on an H200), to be counted within what each container was granted. Nothing:
    /// contexts come on top of grants, and the card must have room for them
    #[arg(long, env = "DIVVY_CONTEXT_MEMORY", default_value = "0", value_parser = memory)]
    pub context_memory: Bytes,
    /// What device errors mean and what is done about failed devices (docs/concepts/health.md)
    #[arg(long, env = "DIVVY_HEALTH", value_name = "FILE.yaml")]
    pub health: Option<PathBuf>,
    /// Seconds between two looks at the devices
    #[arg(long, env = "DIVVY_LOOK", default_value_t = 5)]
    pub look: u64,
    /// What is done about a process that uses a card and goes around the library
    #[arg(long, env = "DIVVY_BYPASS", value_enum, default_value = "report")]
    pub bypass: audit::watch::Policy,
    /// Where to answer probes, /metrics and /journal
    #[arg(long, env = "DIVVY_LISTEN", default_value = "0.0.0.0:9411")]
    pub listen: SocketAddr,
    /// The address of this host, by which others reach that port; by default the node object's internal one
    #[arg(long, env = "HOST_IP")]
    pub host: Option<String>,
    /// Show metrics also under the names of the emulated systems
    #[arg(long, env = "DIVVY_EMULATE_METRICS", default_value_t = false, action = clap::ArgAction::Set)]
    pub emulate_metrics: bool,
    /// The most bytes the usage journal takes before it is thinned
    #[arg(long, env = "DIVVY_JOURNAL_BYTES", default_value_t = 32 << 20)]
    pub journal_bytes: u64,
    /// The devices
    #[command(flatten)]
    pub devices: Settings,
}

fn memory(text: &str) -> Result<Bytes, String> {
    if text == "0" {
        return Ok(Bytes::ZERO);
    }
    device::file::parse_memory(text).ok_or_else(|| format!("{text:?} is no amount of memory: such as 520Mi, or 0"))
}

/// The unit of that name. As with gpushare's plugin a name that is none must not keep the node's cards from everybody.
fn memory_unit(text: &str) -> MemoryUnit {
    match text {
        "GiB" => MemoryUnit::GiB,
        "MiB" => MemoryUnit::MiB,
        other => {
            tracing::warn!(unit = other, "this is no unit of memory here, GiB or MiB: GiB is used");
            MemoryUnit::GiB
        }
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
    let style = Style {
        advertise: args.advertise,
        memory_unit: memory_unit(&args.memory_unit),
        slots_per_device: args.slots,
        context: args.context_memory,
    };
    let node = Node::new(args.node.clone(), style, pods.clone(), providers, home, shelf, args.cdi.clone())?;
    let node = Arc::new(node);
    let (events, queue) = Events::new(&args.node);
    let (patches, orders) = Patches::new();
    let kubelet = Kubelet::new(&args.plugins, &args.pod_resources);
    let runtime = Runtime::new(&args.cri);
    let secret = args.state.join("slots.key");
    let slots = Slots::open(args.run.join("slots.json"), &secret, args.slots)
        .with_context(|| format!("cannot keep {}", secret.display()))?;
    let nonsense = Nonsense::default();
    let health = Health::new();
    let plugin = Plugin {
        node: node.clone(),
        kubelet: kubelet.clone(),
        runtime: runtime.clone(),
        events: events.clone(),
        patches: patches.clone(),
        slots: slots.clone(),
        carrier: args.carrier,
        nonsense: nonsense.clone(),
        listened: health.condition("the kubelet follows the slots"),
    };
    let listener = http::bind(args.listen)?;
    let journal = Journal::open(&args.state.join("journal"), args.node.as_str().into(), args.journal_bytes, now());
    let journal = Arc::new(journal.with_context(|| format!("cannot keep a journal in {}", args.state.display()))?);
    let (view, _) = watch::channel(None);
    let sys = args.devices.on_host("/sys".as_ref());

    let mut tasks = Tasks::new();
    let stop = || tasks.stop();
    let (follow_pods, follow_node) = (
        pods.clone().follow(client.clone(), args.node.clone(), stop()),
        publish::follow(client.clone(), args.node.clone(), view.clone(), stop()),
    );
    let follow_policy = offer::follow(client.clone(), node.clone(), stop());
    let reached = Reach { listens: listener.local_addr()?, host: args.host.clone() };
    let publish = publish::publish(client.clone(), args.node.clone(), node.clone(), reached, view.subscribe(), stop());
    let farewell = farewell::say(node.clone(), view.subscribe());
    let look = Duration::from_secs(args.look.max(1));
    let (owners, known_owners) = watch::channel(None);
    let (usage, known_usage) = watch::channel(Vec::new());
    let explorer = Explorer {
        node: node.clone(),
        policy: args.health.as_deref().map(Policy::read).transpose()?.unwrap_or_default(),
        sys,
        notes: args.run.join("health.json"),
        ward: Ward { events: events.clone(), patches: patches.clone() },
        usage,
        owners: known_owners,
    };
    let explore = explorer.run(look, view.subscribe(), stop());
    let owners = owners::watch(client.clone(), node.clone(), kubelet.clone(), events.clone(), owners, stop());
    let hold =
        Hold::start(node.home().clone(), runtime.clone(), args.keeper, nonsense.clone(), |(container, pid, event)| {
            tracing::warn!(container = %container.display(), pid, ?event, "a container reports");
        });
    let hold = Arc::new(hold.with_context(|| format!("cannot listen in {}", args.run.display()))?);
    let identify = crate::hold::identify(node.home().clone(), runtime.clone());
    let audit = audit::watch::run(node.clone(), hold.clone(), identify, events.clone(), args.bypass, stop());
    let scrape = Scrape {
        node: node.clone(),
        accounts: hold.accounts(),
        usage: known_usage,
        journal: journal.clone(),
        nonsense: nonsense.clone(),
        emulate: args.emulate_metrics,
    };
    let ready = health.condition("devices looked at");
    let heard = nonsense.clone();
    let routes = ops::routes(health, scrape, journal.clone());
    let port = Port {
        limits: ops::limits(),
        turned_away: Some(Arc::new(move || heard.note(Socket::Port, "no HTTP"))),
        ..Port::new(listener, routes)
    };
    let tell = port.serve(stop());
    let resize =
        Resize { node: node.clone(), accounts: hold.accounts(), events: events.clone(), patches: patches.clone() };
    let resize = resize.run(stop());
    let cut = acknowledge(journal.clone(), view.subscribe(), stop());
    let settle = Settle { node: node.clone(), hold, journal, runtime, kubelet, slots, events: events.clone(), ready };
    let settle = settle.run(stop());
    let desk = desk::serve(args.run.join("desk.sock"), node.clone(), events.clone(), nonsense.clone(), stop());
    let (serve, send) = (serve::run(plugin, args.plugins.clone(), stop()), queue.send(client.clone(), stop()));
    let patch = orders.send(client, stop());
    tasks.add("pods", follow_pods);
    tasks.add("node object", follow_node);
    tasks.add("policy", follow_policy);
    tasks.add("inventory", publish);
    tasks.add("devices", explore);
    tasks.add("ledger", settle);
    tasks.add("audit", audit);
    tasks.add("device plugin", serve);
    tasks.add("events", send);
    tasks.add("desk", desk);
    tasks.add("patches", patch);
    tasks.add("owners", owners);
    tasks.add("resize", resize);
    tasks.add("port", tell);
    tasks.add("journal", cut);
    tasks.run_with_farewell(farewell).await
}

/// Cuts the journal as far as it has been stored elsewhere.
async fn acknowledge(
    journal: Arc<Journal>,
    mut view: watch::Receiver<Option<NodeView>>,
    stop: Stop,
) -> anyhow::Result<()> {
    loop {
        let cut = view.borrow_and_update().as_ref().and_then(|v| v.cut);
        if let Some(cut) = cut {
            let journal = journal.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || journal.acknowledge(cut)).await? {
                tracing::error!(%error, "cannot cut the journal");
            }
        }
        tokio::select! {
            changed = view.changed() => changed?,
            () = stop.requested() => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn read(words: &[&str]) -> Args {
        Line::try_parse_from(["run", "--node=n1"].iter().chain(words)).unwrap().args
    }

    #[test]
    fn al_14_a_unit_of_memory_that_is_none_is_gib() {
        for (text, unit) in [("MB", MemoryUnit::GiB), ("MiB", MemoryUnit::MiB), ("GiB", MemoryUnit::GiB)] {
            let args = read(&[&format!("--memory-unit={text}")]);
            assert_eq!(memory_unit(&args.memory_unit), unit, "{text}");
        }
    }

    #[test]
    fn a_node_has_a_slot_for_each_pod_it_may_run_even_with_one_card() {
        assert!(read(&[]).slots > 110);
    }
}
