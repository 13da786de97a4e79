//! Checks of the machine this runs on: what the API server cannot see.

use std::fs;
use std::path::Path;

use super::Finding;

/// What this machine's files say.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// containerd's configuration, with what it imports; absent where there is none.
    pub(super) containerd: Option<String>,
    /// NVIDIA's container runtime's configuration; absent where it is not installed.
    pub(super) nvidia: Option<String>,
    /// The kubelet's device-plugin folder is there.
    pub(super) plugins: bool,
    /// CDI specs of others for the same GPUs, by file name.
    pub(super) foreign_specs: Vec<String>,
    /// The driver's version, where one is loaded.
    pub(super) driver: Option<String>,
    /// GPUs on the PCI bus, whatever the driver says.
    pub(super) cards: usize,
}

impl Host {
    /// Reads the machine whose root file system is here.
    pub(super) fn read(root: &Path) -> Host {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok();
        let names = |path: &str| -> Vec<String> {
            let entries = fs::read_dir(root.join(path)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let containerd = text("etc/containerd/config.toml").map(|main| {
            let parts = names("etc/containerd/conf.d").into_iter().filter(|name| name.ends_with(".toml"));
            let parts = parts.filter_map(|name| text(&format!("etc/containerd/conf.d/{name}")));
            std::iter::once(main).chain(parts).collect::<Vec<_>>().join("\n")
        });
        let specs = ["etc/cdi", "var/run/cdi", "run/cdi"].into_iter().flat_map(names);
        let is_card = |name: &String| {
            let field = |file: &str| text(&format!("sys/bus/pci/devices/{name}/{file}")).unwrap_or_default();
            field("vendor").trim() == "0x10de" && field("class").trim().starts_with("0x03")
        };
        Host {
            containerd,
            nvidia: text("etc/nvidia-container-runtime/config.toml"),
            plugins: root.join("var/lib/kubelet/device-plugins").is_dir(),
            foreign_specs: specs.filter(|name| name.starts_with("nvidia")).collect(),
            driver: text("proc/driver/nvidia/version").map(|text| text.lines().next().unwrap_or_default().to_owned()),
            cards: names("sys/bus/pci/devices").iter().filter(|name| is_card(name)).count(),
        }
    }
}

/// All of them.
pub(super) fn check(host: &Host) -> Vec<Finding> {
    vec![runtime_default(host), cdi(host), visible_devices(host), plugin_folder(host), driver(host), specs(host)]
}

/// A setting of a TOML file, wherever it stands: enough to see what a person wrote, without taking the file apart.
fn setting<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let of_line = |line: &'a str| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == name).then(|| value.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\'']))
    };
    text.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(of_line).next_back()
}

fn runtime_default(host: &Host) -> Finding {
    let check = "runtime default";
    let Some(text) = &host.containerd else {
        return Finding::unknown(check, "no /etc/containerd/config.toml: containerd's defaults, or another runtime");
    };
    match setting(text, "default_runtime_name") {
        Some(name) if name.contains("nvidia") => Finding::warning(
            check,
            format!(
                "{name} is containerd's default runtime: images that bake NVIDIA_VISIBLE_DEVICES=all ask it for every GPU"
            ),
            "Divvy gives containers without a grant a void device list; better make runc the default and keep nvidia as a RuntimeClass",
        ),
        other => Finding::well(check, format!("{} is the default", other.unwrap_or("runc"))),
    }
}

fn cdi(host: &Host) -> Finding {
    let check = "CDI";
    let Some(text) = &host.containerd else { return Finding::unknown(check, "no /etc/containerd/config.toml") };
    if setting(text, "enable_cdi") == Some("false") {
        return Finding::wrong(
            check,
            "containerd does not read CDI specs (enable_cdi = false): GPU containers will not start",
            "set enable_cdi = true and restart containerd, or run the agent with --carrier=cri-shim",
        );
    }
    let dirs = text.lines().map(str::trim).find(|line| line.starts_with("cdi_spec_dirs"));
    if let Some(dirs) = dirs.filter(|dirs| !dirs.contains("/var/run/cdi") && !dirs.contains("/run/cdi")) {
        return Finding::wrong(
            check,
            format!("containerd does not look where the agent writes ({dirs})"),
            "add /var/run/cdi to cdi_spec_dirs, or start the agent with --cdi and one of these folders",
        );
    }
    Finding::well(check, "containerd reads CDI specs in /var/run/cdi")
}

fn visible_devices(host: &Host) -> Finding {
    let check = "visible devices";
    let Some(text) = &host.nvidia else { return Finding::well(check, "NVIDIA's container runtime is not installed") };
    let env = setting(text, "accept-nvidia-visible-devices-envvar-when-unprivileged");
    if env != Some("false") {
        return Finding::warning(
            check,
            "any container may choose its GPUs by NVIDIA_VISIBLE_DEVICES (accept-nvidia-visible-devices-envvar-when-unprivileged is not false)",
            "set it to false in /etc/nvidia-container-runtime/config.toml; Divvy's containers get their devices by CDI",
        );
    }
    Finding::well(check, "unprivileged containers cannot choose GPUs by a variable")
}

fn plugin_folder(host: &Host) -> Finding {
    let check = "kubelet";
    if host.plugins {
        return Finding::well(check, "its device-plugin folder is there");
    }
    Finding::wrong(
        check,
        "there is no /var/lib/kubelet/device-plugins",
        "is this a node? if its kubelet has another --root-dir, start the agent with --plugins and --pod-resources",
    )
}

fn driver(host: &Host) -> Finding {
    let check = "driver";
    match (&host.driver, host.cards) {
        (Some(version), _) => Finding::well(check, version.clone()),
        (None, 0) => Finding::warning(
            check,
            "no NVIDIA GPU is on the PCI bus, and no driver is loaded",
            "keep the agent off this node",
        ),
        (None, n) => Finding::wrong(
            check,
            format!("{n} NVIDIA GPUs are on the PCI bus, and no driver is loaded"),
            "install NVIDIA's driver; modprobe nvidia",
        ),
    }
}

fn specs(host: &Host) -> Finding {
    let check = "CDI specs";
    if host.foreign_specs.is_empty() {
        return Finding::well(check, "nobody else's describe the same GPUs");
    }
    Finding::warning(
        check,
        format!("{} can give a container the same GPUs past Divvy", host.foreign_specs.join(", ")),
        "remove them if nothing else on the node uses them (nvidia-ctk cdi list)",
    )
}
