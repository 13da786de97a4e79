//! Ways around a grant that a pod may bring with it. A pod without an ask is none of our business here.

use divvy_core::ask::{Dialect, GpuAsk};

use crate::config::{DialectConfig, OnTrick};
use crate::manifest::PodManifest;
use crate::mistake::{Field, Mistake};

const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
const DISABLE_CONTROL: &str = "CUDA_DISABLE_CONTROL";

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
        if !ask.containers.iter().any(|c| c.name.as_str() == name) {
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
        if let (Some(value), OnTrick::Refuse) = (container.env(VISIBLE_DEVICES), guard.visible_devices)
            && !matches!(&*value, "" | "void" | "none")
        {
            mistakes.push(Mistake::about(
                dialect,
                Field::env(&name, VISIBLE_DEVICES),
                &value,
                "chooses devices behind the scheduler's back",
                "remove it: the container is given the devices it was granted",
            ));
        }
        if let (Some(value), OnTrick::Refuse) = (container.env(DISABLE_CONTROL), guard.off_switch)
            && go_bool(&value) != Some(false)
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

/// A boolean as Go's strconv reads it, which is what users of these systems learnt to write.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}
