//! docs/reference/asks.md, row by row: what it says about an ask is what the ask is.

use divvy_core::ask::MemoryAsk;
use divvy_core::keys;
use divvy_core::units::Share;
use divvy_dialects::{DialectConfig, NvidiaFlavour, Reading, VcudaFlavour, sentence};

use crate::support::{Pod, only_want, pod};

const DOC: &str = include_str!("../../../../docs/reference/asks.md");

/// A row and the configuration its table speaks of.
struct Row<'a> {
    written: Vec<(&'a str, &'a str)>,
    cells: Vec<&'a str>,
    config: DialectConfig,
    line: usize,
}

fn rows() -> Vec<Row<'static>> {
    let mut config = DialectConfig::default();
    let mut rows = Vec::new();
    for (n, line) in DOC.lines().enumerate() {
        if line.starts_with("## ") {
            let nvidia = if line.contains("4paradigm") { NvidiaFlavour::Vgpu } else { NvidiaFlavour::Hami };
            config = DialectConfig { nvidia, ..DialectConfig::default() };
        }
        if line.starts_with("With `vcuda: gpu-manager`") {
            config.vcuda = VcudaFlavour::GpuManager;
        }
        if !line.starts_with("| `") {
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let written = cells[0].split('`').filter(|part| !part.trim().is_empty());
        let written =
            written.map(|pair| pair.split_once(": ").unwrap_or_else(|| panic!("line {}: {pair}", n + 1))).collect();
        rows.push(Row { written, cells: cells[1..].to_vec(), config: config.clone(), line: n + 1 });
    }
    rows
}

fn made_of(written: &[(&str, &str)]) -> Pod {
    let is_annotation = |key: &str| [keys::KUBEGPU_DEVICE_INFO, keys::VCUDA_CORE_LIMIT].contains(&key);
    let is_label = |key: &str| key.starts_with(keys::KUBESHARE_DOMAIN);
    let resources: Vec<(&str, &str)> =
        written.iter().copied().filter(|(key, _)| !is_annotation(key) && !is_label(key)).collect();
    written.iter().fold(pod(&resources), |pod, (key, value)| match key {
        key if is_annotation(key) => pod.annotation(key, value),
        key if is_label(key) => pod.label(key, value),
        _ => pod,
    })
}

fn memory(memory: MemoryAsk, nothing: &str) -> String {
    match memory {
        MemoryAsk::Nothing => nothing.into(),
        MemoryAsk::Bytes(bytes) => bytes.to_string(),
        MemoryAsk::Part(Share::WHOLE) => "all".into(),
        MemoryAsk::Part(part) => format!("{part} of it"),
        MemoryAsk::NodeUnits(units) => format!("{units} units"),
    }
}

#[test]
fn every_row_of_the_document_is_true() {
    let rows = rows();
    assert!(rows.len() > 60, "only {} rows were found", rows.len());
    for row in rows {
        let said: Vec<String> = match made_of(&row.written).read_with(&row.config) {
            Reading::NotOurs => vec!["nothing".into()],
            Reading::Refused(_) => vec!["refused".into()],
            Reading::Ask(ask, _) => {
                let want = only_want(&ask);
                vec![
                    want.count.to_string(),
                    memory(want.memory, "none"),
                    memory(want.memory_limit.unwrap_or(want.memory), "the rest"),
                    want.share.to_string(),
                    want.share_limit.to_string(),
                    (if want.exclusive { "yes" } else { "no" }).into(),
                ]
            }
        };
        let cells: Vec<&str> = row.cells.iter().copied().filter(|cell| !cell.is_empty()).collect();
        let reading = made_of(&row.written).read_with(&row.config);
        let why = if let Reading::Refused(mistakes) = &reading { sentence(mistakes) } else { String::new() };
        assert_eq!(said, cells, "docs/reference/asks.md line {}: {why}", row.line);
    }
}

#[test]
fn every_dialect_says_what_is_missing_memory_missing_share_and_both() {
    let sections = DOC.split("\n## ").filter(|section| section.contains("| written |"));
    for section in sections {
        let title = section.lines().next().unwrap_or_default();
        let rows = section.lines().filter(|line| line.starts_with("| `")).count();
        assert!(rows >= 5, "{title} has {rows} rows");
    }
}

#[test]
fn every_key_that_users_write_is_explained() {
    let keys = keys::USER_RESOURCES.into_iter().chain(keys::USER_ANNOTATIONS);
    let missing: Vec<&str> =
        keys.filter(|key| !DOC.contains(&format!("`{key}`")) && !DOC.contains(&format!("`{key}: "))).collect();
    assert!(missing.is_empty(), "docs/reference/asks.md does not explain {missing:?}");
}
