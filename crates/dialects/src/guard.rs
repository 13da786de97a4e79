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
