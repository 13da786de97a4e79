//! For each dialect the complete environment, mounts and devices of its example container, compared with `tests/golden`. With `UPDATE`
//! set the files are written anew.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use divvy_core::ask::{DeviceAsk, GpuAsk, MemoryAsk};
use divvy_core::device::{Device, DeviceKind, Inventory, Isolation, MemoryUnit};
use divvy_core::grant::{ContainerGrant, Grant, Slice};
use divvy_core::units::{Bytes, Share};
use divvy_dialects::{DialectConfig, NvidiaFlavour, PodManifest, Reading, parse};
use serde_json::{Value, json};

use super::{ContainerEdits, Mount, Pages, edits};
use crate::device::nvidia::files::Files;
use crate::device::{Part, Provider, cambricon};
use crate::pods::PodView;
use crate::promise::{self, Ground};
use crate::testing;

fn inventory() -> Inventory {
    let gpu = |i: u32| Device {
        isolation: vec![Isolation::Intercept],
        pci: Some(format!("00000000:{i:02x}:00.0")),
        ..Device::gpu(
            format!("GPU-0000000{i}-0000-4000-8000-000000000000"),
            i,
            "NVIDIA-GeForce-GTX-1080",
            Bytes::gib(16),
        )
    };
    let mlu = Device {
        kind: DeviceKind::Mlu,
        isolation: vec![Isolation::Driver],
        attributes: [("card".to_owned(), "0".to_owned())].into(),
        ..Device::gpu("MLU-0000:1b:00.0", 0, "MLU370-X4", Bytes::mib(23308))
    };
    Inventory {
        v: 1,
        devices: vec![gpu(0), gpu(1), mlu],
        memory_unit: MemoryUnit::GiB,
        driver: "580.159.04".into(),
        ..Inventory::default()
    }
}

/// The pod of an example, by document: itself, or its template.
fn example(path: &str, document: usize) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = std::fs::read_to_string(root.join(path)).unwrap();
    let document = text.split("\n---\n").nth(document).unwrap();
    let document: Value = serde_saphyr::from_str(document).unwrap();
    let mut pod = match document.pointer("/spec/template") {
        Some(template) => template.clone(),
        None => document.clone(),
    };
    pod["kind"] = json!("Pod");
    if pod["metadata"]["name"].is_null() {
        pod["metadata"]["name"] = document["metadata"]["name"].clone();
    }
    pod["metadata"]["namespace"] = json!("default");
    pod["metadata"]["uid"] = json!("0f3b1c7e-1111-4222-8333-444455556666");
    pod
}

fn read(pod: &Value, flavour: NvidiaFlavour) -> GpuAsk {
    let config = DialectConfig { nvidia: flavour, ..DialectConfig::default() };
    match parse(&PodManifest::new(pod), &config) {
        Reading::Ask(ask, _) => *ask,
        other => panic!("{other:?}"),
    }
}

/// The ask on the first devices that there are: placing is somebody else's business.
fn granted(ask: &GpuAsk, inventory: &Inventory) -> Grant {
    let slices = |want: &DeviceAsk| -> Vec<Slice> {
        let devices = inventory.devices.iter().filter(|d| d.kind == want.kind).take(want.count as usize);
        let amount = |memory: &MemoryAsk, device: &Device| match memory {
            MemoryAsk::Nothing => device.memory,
            MemoryAsk::Bytes(bytes) => *bytes,
            MemoryAsk::Part(part) => device.memory.thousandths(*part),
            MemoryAsk::NodeUnits(n) => inventory.memory_unit.of(*n),
        };
        let slice = |device: &Device| Slice {
            device: device.id.clone(),
            kind: device.kind,
            memory: amount(&want.memory, device),
            memory_limit: amount(want.memory_limit.as_ref().unwrap_or(&want.memory), device),
            share: want.share,
            share_limit: want.share_limit.max(Share(1)),
            exclusive: want.exclusive,
            isolation: device.isolation[0],
            partition: None,
        };
        devices.map(slice).collect()
    };
    let container = |c: &divvy_core::ask::ContainerAsk| ContainerGrant {
        name: c.name.clone(),
        role: c.role,
        slices: c.wants.iter().flat_map(slices).collect(),
    };
    Grant { at: 1_700_000_000_000, ..testing::grant(ask.containers.iter().map(container).collect()) }
}

/// What the first container of the example gets on a node with a real driver.
fn first_container(path: &str, document: usize, flavour: NvidiaFlavour) -> ContainerEdits {
    let (manifest, inventory) = (example(path, document), inventory());
    let ask = read(&manifest, flavour);
    let grant = granted(&ask, &inventory);
    let container = grant.containers[0].clone();
    let dir = Path::new("/run/divvy/containers/0f3b1c7e-1111-4222-8333-444455556666").join(container.name.as_str());
    let shelf = Path::new("/var/lib/divvy/lib/HASH");
    let pages = Pages {
        socket_dir: "/run/divvy/socket".into(),
        gate: dir.join("gate"),
        ledger: dir.join("ledger"),
        own: dir.join("own"),
        library: shelf.join("libdivvy.so"),
        preload: shelf.join("ld.so.preload"),
    };
    let of = |slice: &Slice| inventory.devices.iter().find(|d| d.id == slice.device).unwrap();
    let parts: Vec<Part<'_>> = container.slices.iter().map(|slice| Part { device: of(slice), slice }).collect();
    let vendor = vendor(&parts);
    let driver = vendor.mounts.clone();
    let pod = PodView { manifest: Arc::new(manifest), ask: Some(ask), ..testing::pod() };
    let emulation = promise::of(&pod, &grant, "node-0", &inventory, &BTreeSet::new());
    let promised = promise::for_container(&emulation, &container.name);
    let ground = Ground { own: &pages.own, library: &pages.library, driver: &driver };
    let (promised, _) = promise::plan(&promised, &ground, |path| path.starts_with("/usr/bin"));
    edits(&container.slices, [vendor], promised, &pages)
}

fn vendor(parts: &[Part<'_>]) -> ContainerEdits {
    if parts[0].device.kind == DeviceKind::Mlu {
        let dev = tempfile::tempdir().unwrap();
        for node in ["cambricon_dev0", "cambricon_ctl"] {
            std::fs::write(dev.path().join(node), "").unwrap();
        }
        let settings = crate::device::Settings {
            cambricon_dev: dev.path().to_owned(),
            cnmon: "/usr/bin/cnmon".into(),
            ..testing::settings()
        };
        let mut edits = cambricon::Cambricon::new(settings).edits(parts).unwrap();
        for node in &mut edits.devices {
            node.host = Path::new("/dev").join(node.host.file_name().unwrap());
        }
        return edits;
    }
    let library = "/usr/lib/x86_64-linux-gnu/libcuda.so";
    let version = "580.159.04";
    let files = Files::Real {
        mounts: vec![
            Mount::read_only(format!("{library}.{version}"), format!("{library}.{version}")),
            Mount::read_only(format!("{library}.{version}"), format!("{library}.1")),
        ],
        shared: ["nvidiactl", "nvidia-uvm"].map(|n| Path::new("/dev").join(n)).to_vec(),
    };
    let minors: HashMap<String, u32> = parts.iter().map(|p| (p.device.id.to_string(), p.device.index)).collect();
    files.edits(parts, &minors).unwrap()
}

fn check(dialect: &str, path: &str) {
    check_as(dialect, path, 0, NvidiaFlavour::default());
}

fn check_as(dialect: &str, path: &str, document: usize, flavour: NvidiaFlavour) {
    let made = serde_json::to_string_pretty(&first_container(path, document, flavour)).unwrap() + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{dialect}.json"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(golden == made, "{dialect}: {} differs; UPDATE=1 writes it anew. Now:\n{made}", file.display());
}

#[test]
fn native() {
    check("native", "native/fraction.yaml");
}

#[test]
fn ks_01_kubeshare() {
    check("kubeshare", "kubeshare/pod.yaml");
}

#[test]
fn ks_09_kubeshare_with_two_whole_cards() {
    check("kubeshare-two-gpus", "kubeshare/two-gpus.yaml");
}

#[test]
fn kg_27_kubegpu() {
    check_as("kubegpu", "kubegpu/two-gpus.yaml", 1, NvidiaFlavour::default());
}

#[test]
fn gpu_manager() {
    check("gpu-manager", "gpu-manager/mnist.yaml");
}

#[test]
fn gpushare() {
    check("gpushare", "gpushare/binpack.yaml");
}

#[test]
fn vgpu() {
    check_as("vgpu", "vgpu/pod.yaml", 0, NvidiaFlavour::Vgpu);
}

#[test]
fn hami() {
    check("hami", "hami/whole-card.yaml");
}

#[test]
fn fp_26_mlu() {
    check_as("mlu", "vgpu/mlu.yaml", 0, NvidiaFlavour::Vgpu);
}
