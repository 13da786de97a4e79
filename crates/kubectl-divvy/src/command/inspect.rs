//! `kubectl divvy inspect`: nodes and cards, what is held of them and by whom.

mod gpushare;

use divvy_core::device::{Device, DeviceKind, Health};
use divvy_core::snapshot::NodeState;
use divvy_core::units::{Bytes, Share};
use serde::Serialize;

use crate::cluster::{Source, View};
use crate::ending::{Ending, NotFound};
use crate::output::{self, BAD, Cell, GOOD, PLAIN, QUIET, Table, WARN, paint};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only this node
    node: Option<String>,
    /// The pods on each card too
    #[arg(short, long)]
    details: bool,
    /// Print as `kubectl inspect gpushare` did: memory alone, in the nodes' units
    #[arg(long)]
    gpushare: bool,
}

/// A node as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeShown {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<String>,
    pub(crate) ready: bool,
    pub(crate) schedulable: bool,
    pub(crate) agent: String,
    pub(crate) driver: String,
    /// Why its devices are not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
    pub(crate) devices: Vec<DeviceShown>,
}

/// A device as it is shown. Amounts are bytes, and thousandths of one device's time.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeviceShown {
    pub(crate) id: String,
    pub(crate) kind: DeviceKind,
    pub(crate) index: u32,
    pub(crate) model: String,
    pub(crate) memory: Bytes,
    pub(crate) used_memory: Bytes,
    pub(crate) share: Share,
    pub(crate) used_share: Share,
    pub(crate) containers: u32,
    pub(crate) exclusive: bool,
    /// `ok`, `cordoned`, or what the agent saw.
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) numa: Option<u32>,
    #[serde(skip_serializing_if = "is_nothing")]
    pub(crate) foreign_memory: Bytes,
    pub(crate) pods: Vec<PodShown>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_nothing(bytes: &Bytes) -> bool {
    *bytes == Bytes::ZERO
}

/// What a pod holds of a device.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodShown {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) memory: Bytes,
    pub(crate) share: Share,
    pub(crate) containers: u32,
    pub(crate) exclusive: bool,
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    if args.gpushare {
        gpushare::print(&view, args.node.as_deref(), args.details)?;
        return Ok(Ending::Yes);
    }
    let nodes = nodes(&view, args.node.as_deref())?;
    source.output.print(&nodes, |wide| table(&nodes, args.details, wide))?;
    Ok(Ending::Yes)
}

/// The nodes that have devices, or had: one that is named, whatever it has.
pub(crate) fn nodes(view: &View, only: Option<&str>) -> anyhow::Result<Vec<NodeShown>> {
    let problem = |state: &NodeState| view.notes.get(&state.node().name).and_then(|note| note.problem.clone());
    let mut shown: Vec<NodeShown> = view
        .snapshot
        .nodes()
        .map(|(_, state)| state)
        .filter(|state| match only {
            Some(only) => state.node().name.as_str() == only,
            None => !state.node().inventory.devices.is_empty() || problem(state).is_some(),
        })
        .map(|state| NodeShown { problem: problem(state), ..node(view, state) })
        .collect();
    if let Some(only) = only.filter(|_| shown.is_empty()) {
        return Err(NotFound(format!("there is no node {only}")).into());
    }
    shown.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(shown)
}

fn node(view: &View, state: &NodeState) -> NodeShown {
    let node = state.node();
    let inventory = &node.inventory;
    let mut devices: Vec<DeviceShown> = inventory
        .devices
        .iter()
        .zip(state.books())
        .map(|(device, book)| DeviceShown {
            id: device.id.to_string(),
            kind: device.kind,
            index: device.index,
            model: device.model.to_string(),
            memory: book.memory,
            used_memory: book.used_memory,
            share: book.share,
            used_share: book.used_share,
            containers: book.tasks,
            exclusive: book.exclusive > 0,
            state: state_of(device),
            numa: device.numa,
            foreign_memory: inventory.foreign.get(&device.id).copied().unwrap_or_default(),
            pods: Vec::new(),
        })
        .collect();
    for pod in state.pods().iter().filter_map(|ix| view.snapshot.pod_at(*ix)) {
        for (device, charge) in pod.charges() {
            if let Some(device) = devices.get_mut(*device as usize) {
                device.pods.push(PodShown {
                    namespace: pod.pod().key.namespace.to_string(),
                    name: pod.pod().key.name.to_string(),
                    memory: charge.memory,
                    share: charge.share,
                    containers: charge.tasks,
                    exclusive: charge.exclusive,
                });
            }
        }
    }
    for device in &mut devices {
        device.pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    NodeShown {
        name: node.name.to_string(),
        address: view.notes.get(&node.name).and_then(|note| note.address.clone()),
        ready: !node.unready,
        schedulable: !node.unschedulable,
        agent: inventory.agent.clone(),
        driver: inventory.driver.clone(),
        problem: None,
        devices,
    }
}

fn state_of(device: &Device) -> String {
    match &device.health {
        Health::Unhealthy { reason } => format!("unhealthy: {reason}"),
        Health::Healthy if device.cordoned => "cordoned".into(),
        Health::Healthy => "ok".into(),
    }
}

fn table(nodes: &[NodeShown], details: bool, wide: bool) -> String {
    if nodes.is_empty() {
        return "No node has a GPU that Divvy knows. `kubectl divvy doctor` looks for the reason.\n".into();
    }
    let mut table = Table::default();
    let mut header = vec!["NODE", "GPU", "MODEL", "MEMORY", "", "SHARE", "", "CONTAINERS", "STATE"];
    if wide {
        header.extend(["UUID", "NUMA", "ADDRESS", "DRIVER", "AGENT"]);
    }
    table.row(header);
    for node in nodes {
        if let Some(problem) = &node.problem {
            table.row([Cell(node.name.clone(), PLAIN), Cell(paint(problem, PLAIN), BAD)]);
        }
        for device in &node.devices {
            table.row(row(node, device, wide));
            for pod in device.pods.iter().filter(|_| details) {
                let alone = if pod.exclusive { " alone" } else { "" };
                table.row([
                    Cell::from(""),
                    Cell::from(""),
                    Cell(format!("  {}/{}", pod.namespace, pod.name), QUIET),
                    Cell::from(""),
                    Cell(pod.memory.to_string(), QUIET),
                    Cell::from(""),
                    Cell(format!("{}{alone}", pod.share), QUIET),
                    Cell(pod.containers.to_string(), QUIET),
                ]);
            }
        }
    }
    format!("{}{}", table.text(), totals(nodes))
}

fn row(node: &NodeShown, device: &DeviceShown, wide: bool) -> Vec<Cell> {
    let away = if !node.ready {
        Some("node not ready")
    } else if !node.schedulable {
        Some("node cordoned")
    } else {
        None
    };
    let state = away.unwrap_or(&device.state);
    let style = match state {
        "ok" => GOOD,
        "cordoned" | "node cordoned" => WARN,
        _ => BAD,
    };
    let (used, whole) = (device.used_memory, device.memory);
    // A card that one pod holds alone has nothing to give, whatever its books say.
    let time = if device.exclusive { device.share } else { device.used_share };
    let share = if device.exclusive { "held alone".into() } else { output::of_share(time, device.share) };
    let mut cells = vec![
        Cell::from(&node.name),
        Cell::from(device.index),
        Cell::from(&device.model),
        Cell(output::bar(used.0, whole.0), output::bar_style(used.0, whole.0)),
        Cell::from(output::of_memory(used, whole)),
        Cell(
            output::bar(time.0.into(), device.share.0.into()),
            output::bar_style(time.0.into(), device.share.0.into()),
        ),
        Cell::from(share),
        Cell::from(device.containers),
        Cell(state.to_owned(), style),
    ];
    if wide {
        let or_dash = |text: &str| Cell::from(if text.is_empty() { "-" } else { text });
        cells.extend([
            Cell::from(&device.id),
            Cell::from(device.numa.map_or_else(|| "-".into(), |n| n.to_string())),
            or_dash(node.address.as_deref().unwrap_or_default()),
            or_dash(&node.driver),
            or_dash(&node.agent),
        ]);
    }
    cells
}

fn totals(nodes: &[NodeShown]) -> String {
    let devices = || nodes.iter().flat_map(|node| &node.devices);
    let used: Bytes = devices().map(|d| d.used_memory).sum();
    let whole: Bytes = devices().map(|d| d.memory).sum();
    let held: Share = devices().map(|d| if d.exclusive { d.share } else { d.used_share }).sum();
    let idle = devices().filter(|d| d.containers == 0).count();
    format!(
        "\n{} on {}, {idle} idle: {} of memory and the time of {held} cards are allocated.\n",
        output::count(devices().count(), "card"),
        output::count(nodes.len(), "node"),
        output::of_memory(used, whole),
    )
}
