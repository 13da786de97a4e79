//! Ways around a grant that a pod may bring with it. A pod without an ask is none of our business here.

use divvy_core::ask::{Dialect, GpuAsk};

use crate::config::{DialectConfig, OnTrick};
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};
use crate::reading::EnvHint;

const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
const DISABLE_CONTROL: &str = "CUDA_DISABLE_CONTROL";

/// Values of it that show nothing.
const NO_DEVICES: [&str; 3] = ["", "void", "none"];

/// What about `pod`, which asks for `ask`, would let it have more than it is granted.
pub(crate) fn tricks(pod: &PodManifest<'_>, ask: &GpuAsk, config: &DialectConfig) -> Vec<Mistake> {
    let dialect = ask.dialect;
    let guard = &config.guard;
    let mut mistakes = Vec::new();
    if let (Some(node), OnTrick::Refuse) = (pod.node_name(), guard.node_name) {
        mistakes.push(Mistake::about(
            dialect,
            Field::Spec("spec.nodeName".into()),
            node,
            "pod has node assigned: it passes by the scheduler, and nothing is granted to it",
            "remove nodeName; to insist on a node use nodeSelector or node affinity",
        ));
    }
    if guard.privileged == OnTrick::Refuse {
        mistakes.extend(of_the_node(pod, dialect));
    }
    for container in pod.containers() {
        let name = container.name();
        if let (Some(value), OnTrick::Refuse) = (container.env(VISIBLE_DEVICES), guard.visible_devices)
            && !NO_DEVICES.contains(&&*value)
        {
            mistakes.push(Mistake::about(
                dialect,
                Field::env(&name, VISIBLE_DEVICES),
                &value,
                "chooses devices behind the scheduler's back",
                "remove it: the container is given the devices it was granted",
            ));
        }
        if !asks(ask, &name) {
            continue;
        }
        if container.is_privileged() && (guard.privileged == OnTrick::Refuse || dialect == Dialect::Hami) {
            mistakes.push(Mistake::about(
                dialect,
                Field::Spec(format!("container {name}: securityContext.privileged")),
                "true",
                format!(
                    "container {name} is privileged: it can open every device of its node, so no grant can hold it"
                ),
                "remove privileged, or ask for the capability the container really needs",
            ));
        }
        if let (Some(right), OnTrick::Refuse) = (container.right_to_mount(), guard.privileged) {
            mistakes.push(Mistake::about(
                dialect,
                Field::Spec(format!("container {name}: securityContext.capabilities.add")),
                right,
                format!("container {name} may mount: it can take off what keeps its limits from being written"),
                "remove the capability, or ask for the one that the container really needs",
            ));
        }
        if let (Some(value), OnTrick::Refuse) = (container.env(DISABLE_CONTROL), guard.off_switch)
            && switches_off(&value, dialect)
        {
            mistakes.push(Mistake::about(
                dialect,
                Field::env(&name, DISABLE_CONTROL),
                &value,
                "limits cannot be switched off by a tenant",
                "remove it, or ask for whole devices",
            ));
        }
    }
    mistakes
}

/// What of its node `pod` takes to itself that a grant rests on.
fn of_the_node(pod: &PodManifest<'_>, dialect: Dialect) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    if pod.has_host_pid() {
        mistakes.push(Mistake::about(
            dialect,
            Field::Spec("spec.hostPID".into()),
            "true",
            "sees the processes of its node: it can reach the limits of others through them",
            "remove hostPID",
        ));
    }
    for (name, path) in pod.host_paths() {
        if let Some(folder) = OURS.into_iter().find(|folder| meets(path, folder)) {
            mistakes.push(Mistake::about(
                dialect,
                Field::Spec(format!("volume {name}: hostPath.path")),
                path,
                format!("reaches {folder} of the node, where devices and limits of all pods are"),
                "mount the folder below it that is needed; devices come with the grant",
            ));
        }
    }
    mistakes
}

/// Folders of the node with devices, what says who has which, and limits.
const OURS: [&str; 4] = ["/dev", "/run/divvy", "/run/cdi", "/etc/cdi"];

/// Vendors' device files, which a grant hands out.
const DEVICES: [&str; 2] = ["nvidia", "cambricon"];

/// Is `folder`, or something of it that matters, found at or below `path`? Of `/dev` only the whole and the devices that are granted:
/// shared memory and what else is there is nobody's grant.
fn meets(path: &str, folder: &str) -> bool {
    // On nodes `/var/run` is another name for `/run`.
    let run = path.trim_start_matches('/').strip_prefix("var/run");
    let path = match run.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
        Some(rest) => format!("run{rest}"),
        None => path.to_owned(),
    };
    let parts = |text: &str| -> Vec<String> {
        text.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect()
    };
    let (path, folder) = (parts(&path), parts(folder));
    if folder.starts_with(&path) {
        return true;
    }
    let is_granted = |file: &String| DEVICES.iter().any(|device| file.starts_with(device));
    let below = path.strip_prefix(folder.as_slice());
    below.is_some_and(|below| folder != ["dev"] || below.first().is_some_and(is_granted))
}

/// For each container of `pod` that asks for nothing: the variable that hides every device, where nvidia is the default runtime or the
/// image says otherwise.
pub(crate) fn blindfolds(pod: &PodManifest<'_>, ask: &GpuAsk) -> Vec<EnvHint> {
    let open = pod
        .containers()
        .into_iter()
        .filter(|container| !asks(ask, &container.name()) && container.env(VISIBLE_DEVICES).is_none());
    open.map(|container| EnvHint {
        container: (*container.name()).into(),
        name: VISIBLE_DEVICES.into(),
        value: "void".into(),
    })
    .collect()
}

fn asks(ask: &GpuAsk, container: &str) -> bool {
    ask.containers.iter().any(|asking| asking.name.as_str() == container)
}

/// Would the emulated system have taken `CUDA_DISABLE_CONTROL` with this value for a wish to be without limits?
fn switches_off(value: &str, dialect: Dialect) -> bool {
    match dialect {
        Dialect::Vgpu => true, // that it is there is enough
        Dialect::Hami => go_bool(value) == Some(true),
        _ => go_bool(value) != Some(false),
    }
}

/// A boolean as Go's strconv reads it, which is what users of these systems learnt to write.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
