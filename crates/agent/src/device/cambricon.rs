//! Cambricon's MLUs, by what their own command-line tool prints. Cards are shared by memory where the hardware can
//! (`CAMBRICON_SPLIT_*`, MLU370), and given whole elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use divvy_core::device::{Device, DeviceKind, Isolation};
use divvy_core::id::DeviceId;
use divvy_core::units::Bytes;

use super::{Found, Part, Process, Provider, Seen, Settings, Sign, Trouble, Usage};
use crate::edits::{ContainerEdits, DeviceNode, Mount};

const NAME: &str = "cambricon";
/// What splits a card's memory inside a container.
const SPLITTER: &str = "/usr/bin/smlu-containerd";

/// The cards that `cnmon` shows.
pub struct Cambricon {
    settings: Settings,
}

/// A provider, if the tool is there.
pub fn open(settings: &Settings) -> Result<Option<Box<dyn Provider>>, Trouble> {
    if !settings.on_host(&settings.cnmon).exists() {
        return Ok(None);
    }
    Ok(Some(Box::new(Cambricon::new(settings.clone()))))
}

/// One card of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    card: u32,
    model: String,
    bus: Option<String>,
    busy: u32,
    used: Bytes,
    total: Bytes,
}

/// The whole table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Table {
    driver: String,
    rows: Vec<Row>,
    /// Card, pid, memory.
    processes: Vec<(u32, u32, Bytes)>,
}

/// Reads the table of `cnmon` (4.20 to 6.5): two lines per card, columns between bars.
fn parse(text: &str) -> Result<Table, String> {
    let mut table = Table::default();
    let mut first: Option<(u32, String, Option<String>, u32)> = None;
    let mut in_processes = false;
    for line in text.lines() {
        let Some(inner) = line.trim().strip_prefix('|').and_then(|l| l.strip_suffix('|')) else { continue };
        if let Some((_, version)) = inner.split_once("Driver v") {
            table.driver = version.trim().to_owned();
        }
        in_processes |= inner.trim_start().starts_with("Processes:");
        let columns: Vec<&str> = inner.split('|').map(str::trim).collect();
        if in_processes {
            table.processes.extend(process(inner));
            continue;
        }
        let [left, middle, right] = columns[..] else { continue };
        let mut words = left.split_whitespace();
        match (first.take(), words.next().and_then(|w| w.parse::<u32>().ok())) {
            // | 0     /   MLU370-X4    v1.1.6 |         0000:1B:00.0 | 0%                N/A |
            (None, Some(card)) => {
                let model = words.nth(1).ok_or_else(|| format!("no model in {line:?}"))?.to_owned();
                let bus = Some(middle.to_ascii_lowercase()).filter(|b| b.matches(':').count() == 2);
                let busy = right.split('%').next().and_then(|p| p.trim().parse().ok()).unwrap_or(0u32);
                first = Some((card, model, bus, busy.min(100) * 10));
            }
            // |  0%   41C         27 W/ 150 W |     0 MiB/ 23308 MiB | N/A         Exclusive |
            (Some((card, model, bus, busy)), _) => {
                let (used, total) = memory(middle).ok_or_else(|| format!("no memory in {line:?}"))?;
                table.rows.push(Row { card, model, bus, busy, used, total });
            }
            (None, None) => {}
        }
    }
    if let Some((card, ..)) = first {
        return Err(format!("the second line of card {card} is missing"));
    }
    Ok(table)
}

/// `0 MiB/ 23308 MiB`.
fn memory(column: &str) -> Option<(Bytes, Bytes)> {
    let mib = |part: &str| part.trim().strip_suffix("MiB")?.trim().parse().ok().map(Bytes::mib);
    let (used, total) = column.split_once('/')?;
    Some((mib(used)?, mib(total)?))
}

/// `0     /   12345   python train.py                                  1024 MiB`.
fn process(line: &str) -> Option<(u32, u32, Bytes)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [card, _, pid, .., amount, "MiB"] = words[..] else { return None };
    Some((card.parse().ok()?, pid.parse().ok()?, Bytes::mib(amount.parse().ok()?)))
}

impl Row {
    /// By its place on the bus, which survives renumbering; tools that do not show it leave only the number.
    fn id(&self) -> DeviceId {
        match &self.bus {
            Some(bus) => format!("MLU-{bus}").into(),
            None => format!("MLU-{}", self.card).into(),
        }
    }

    fn device(&self) -> Device {
        Device {
            kind: DeviceKind::Mlu,
            pci: self.bus.clone(),
            isolation: vec![Isolation::Driver, Isolation::None],
            attributes: BTreeMap::from([("card".to_owned(), self.card.to_string())]),
            ..Device::gpu(self.id(), self.card, self.model.as_str(), self.total)
        }
    }
}

impl Cambricon {
    /// The cards that the tool of `settings` shows.
    pub fn new(settings: Settings) -> Cambricon {
        Cambricon { settings }
    }

    fn table(&self) -> Result<Table, Trouble> {
        let tool = self.settings.on_host(&self.settings.cnmon);
        let output = Command::new(&tool)
            .output()
            .map_err(|e| Trouble::new(NAME, format!("cannot run {}: {e}", tool.display())))?;
        if !output.status.success() {
            return Err(Trouble::new(NAME, format!("{} ended with {}", tool.display(), output.status)));
        }
        parse(&String::from_utf8_lossy(&output.stdout))
            .map_err(|e| Trouble::new(NAME, format!("{} printed something new: {e}", tool.display())))
    }

    /// A node of the host, if it has it.
    fn node(&self, name: &str) -> Option<DeviceNode> {
        let host = self.settings.cambricon_dev.join(name);
        let inside = PathBuf::from("/dev").join(name);
        self.settings.on_host(&host).exists().then_some(DeviceNode { host, container: inside })
    }
}

impl Provider for Cambricon {
    fn name(&self) -> &str {
        NAME
    }

    fn discover(&self) -> Result<Found, Trouble> {
        let table = self.table()?;
        Ok(Found { devices: table.rows.iter().map(Row::device).collect(), driver: table.driver })
    }

    fn signs(&self) -> Result<Vec<Sign>, Trouble> {
        Ok(self.table()?.rows.iter().map(|row| Sign { device: row.id(), seen: Seen::Answer }).collect())
    }

    fn edits(&self, parts: &[Part<'_>]) -> Result<ContainerEdits, Trouble> {
        let mut edits = ContainerEdits::default();
        let mut cards = Vec::new();
        for part in parts {
            let card = part.device.attributes.get("card").cloned().unwrap_or_else(|| part.device.index.to_string());
            let node = format!("cambricon_dev{card}");
            edits.devices.push(self.node(&node).ok_or_else(|| {
                Trouble::new(
                    NAME,
                    format!("{}/{node} is missing: is the driver loaded?", self.settings.cambricon_dev.display()),
                )
            })?);
            cards.push(card);
        }
        edits.devices.extend(["cambricon_ctl", "cambricon_ipcm0"].iter().filter_map(|name| self.node(name)));
        edits.mounts.push(Mount::read_only(&self.settings.cnmon, "/usr/bin/cnmon"));
        let Some(part) = parts.first() else { return Ok(edits) };
        if part.slice.memory < part.device.memory {
            edits.env.insert("CAMBRICON_SPLIT_ENABLE".into(), "1".into());
            edits.env.insert("CAMBRICON_SPLIT_VISIBLE_DEVICES".into(), cards.join(","));
            edits.env.insert("CAMBRICON_SPLIT_MEMS".into(), (part.slice.memory.0 >> 30).to_string());
            if self.settings.on_host(SPLITTER.as_ref()).exists() {
                edits.mounts.push(Mount::read_only(SPLITTER, SPLITTER));
            }
        }
        Ok(edits)
    }

    fn usage(&self) -> Result<Vec<Usage>, Trouble> {
        let table = self.table()?;
        let usage = |row: &Row| Usage {
            device: row.id(),
            memory: row.used,
            busy: row.busy,
            periods: Vec::new(),
            processes: table
                .processes
                .iter()
                .filter(|(card, ..)| *card == row.card)
                .map(|(_, pid, memory)| Process { pid: *pid, memory: *memory })
                .collect(),
        };
        Ok(table.rows.iter().map(usage).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = include_str!("../../tests/fixtures/cnmon-mlu370-x4.txt");

    #[test]
    fn recorded_output_gives_both_cards() {
        let table = parse(RECORDED).unwrap();
        assert_eq!(table.driver, "5.10.10");
        let devices: Vec<Device> = table.rows.iter().map(Row::device).collect();
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[1].id.as_str(), "MLU-0000:36:00.0");
        assert_eq!((devices[1].model.as_str(), devices[1].memory), ("MLU370-X4", Bytes::mib(23308)));
        assert!(table.processes.is_empty());
    }

    #[test]
    fn the_older_table_without_bus_numbers_is_read_too() {
        let old = "| CNMON v4.20.11                                                               |\n\
            | Card  VF  Name       Firmware | Inited        Driver | Util        Ecc-Error |\n\
            | 2     /   MLU270-S4    v1.1.6 | On          v4.20.11 | 7%          N/A       |\n\
            |  0%   32C         30 W/ 150 W |   512 MiB/ 16384 MiB | 10240 MiB/1048576 MiB |\n";
        let table = parse(old).unwrap();
        assert_eq!(table.rows[0].id().as_str(), "MLU-2");
        assert_eq!((table.rows[0].used, table.rows[0].busy), (Bytes::mib(512), 70));
    }

    #[test]
    fn half_a_table_is_an_error_and_not_half_a_node() {
        let cut: String = RECORDED.lines().take(11).collect::<Vec<_>>().join("\n");
        assert!(parse(&cut).unwrap_err().contains("card 1"));
        assert_eq!(parse("segmentation fault").unwrap(), Table::default());
    }

    #[test]
    fn processes_are_read_with_their_card_and_memory() {
        assert_eq!(
            process("  1     /   4711    python train.py --epochs 3          1024 MiB "),
            Some((1, 4711, Bytes::mib(1024)))
        );
        assert_eq!(process("  Card  VF  PID    Command Line            MLU Memory Usage "), None);
    }

    #[test]
    fn fp_26_a_part_of_a_card_is_told_by_cambricons_own_variables() {
        let dev = tempfile::tempdir().unwrap();
        for node in ["cambricon_dev0", "cambricon_dev1", "cambricon_ctl"] {
            std::fs::write(dev.path().join(node), "").unwrap();
        }
        let settings = Settings { cambricon_dev: dev.path().to_owned(), ..crate::testing::settings() };
        let provider = Cambricon::new(settings);
        let device = parse(RECORDED).unwrap().rows[1].device();
        let slice = crate::testing::slice(&device.id, Bytes::mib(10240), 0);
        let edits = provider.edits(&[Part { device: &device, slice: &slice }]).unwrap();
        assert_eq!(edits.env["CAMBRICON_SPLIT_MEMS"], "10");
        assert_eq!(edits.env["CAMBRICON_SPLIT_VISIBLE_DEVICES"], "1");
        let nodes: Vec<String> = edits.devices.iter().map(|d| d.container.display().to_string()).collect();
        assert_eq!(nodes, ["/dev/cambricon_dev1", "/dev/cambricon_ctl"]);
    }
}
