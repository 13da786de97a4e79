//! Container edits as CDI specs: one file per slot id, written by `PreStartContainer` a moment before the runtime reads it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use divvy_core::keys;
use serde::Serialize;

use super::ContainerEdits;

/// The oldest version of the format that has everything we use.
const VERSION: &str = "0.6.0";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    cdi_version: &'a str,
    kind: &'a str,
    devices: [Device<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Device<'a> {
    name: &'a str,
    annotations: BTreeMap<&'a str, &'a str>,
    container_edits: Edits<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Node<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    path: &'a Path,
    host_path: &'a Path,
    permissions: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount<'a> {
    host_path: &'a Path,
    container_path: &'a Path,
    options: &'a [&'a str],
}

/// The full name by which `Allocate` refers to a slot.
pub fn name(slot: &str) -> String {
    format!("{}={slot}", keys::CDI_KIND)
}

/// The spec of one slot, as the runtime reads it.
pub fn spec(slot: &str, uid: &str, edits: &ContainerEdits) -> String {
    let spec = Spec {
        cdi_version: VERSION,
        kind: keys::CDI_KIND,
        devices: [Device {
            name: slot,
            annotations: BTreeMap::from([(keys::CDI_POD, uid)]),
            container_edits: Edits {
                env: edits.env.iter().map(|(name, value)| format!("{name}={value}")).collect(),
                device_nodes: edits
                    .devices
                    .iter()
                    .map(|d| Node { path: &d.container, host_path: &d.host, permissions: "rwm" })
                    .collect(),
                mounts: edits
                    .mounts
                    .iter()
                    .map(|m| Mount {
                        host_path: &m.host,
                        container_path: &m.container,
                        options: if m.read_only {
                            &["ro", "nosuid", "nodev", "rbind", "rprivate"]
                        } else {
                            &["rw", "nosuid", "nodev", "rbind", "rprivate"]
                        },
                    })
                    .collect(),
            },
        }],
    };
    serde_json::to_string_pretty(&spec).unwrap_or_else(|e| unreachable!("plain strings always serialise: {e}"))
}

/// Writes the specs of one container's slots. The first slot carries the edits; the others carry only a note that says so,
/// since the format forbids a device that edits nothing.
pub fn write(dir: &Path, uid: &str, slots: &[String], edits: &ContainerEdits) -> std::io::Result<()> {
    let Some((first, others)) = slots.split_first() else { return Ok(()) };
    for slot in others {
        let mut note = ContainerEdits::default();
        note.env.insert("DIVVY_SLOTS".into(), slots.join(","));
        put(dir, slot, uid, &note)?;
    }
    put(dir, first, uid, edits)
}

/// Takes back the spec of a slot, if it still is the one of the pod with this uid.
pub fn remove_of(dir: &Path, slot: &str, uid: &str) -> std::io::Result<()> {
    let path = file(dir, slot);
    match std::fs::read_to_string(&path) {
        Ok(text) if text.contains(uid) => std::fs::remove_file(path),
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

fn file(dir: &Path, slot: &str) -> PathBuf {
    dir.join(format!("divvy-{slot}.json"))
}

/// Replaces a file in one step, so that the runtime never reads half of one.
fn put(dir: &Path, slot: &str, uid: &str, edits: &ContainerEdits) -> std::io::Result<()> {
    let path = file(dir, slot);
    // The runtime reads every *.json and *.yaml of the folder: the half-written file must have another ending.
    let half = path.with_extension("part");
    let mut out = std::fs::File::create(&half)?;
    out.write_all(spec(slot, uid, edits).as_bytes())?;
    drop(out);
    std::fs::rename(half, path)
}
