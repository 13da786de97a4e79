//! Asks in the words people use.

use divvy_core::ask::{Class, ContainerAsk, DeviceAsk, GpuAsk, MemoryAsk, ModelPattern, Topology};
use divvy_core::device::DeviceKind;
use divvy_core::units::Share;
use serde::Serialize;

/// The name a value has in JSON.
pub(crate) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}

/// `opportunistic`, or `guarantee`.
pub(crate) fn class(class: Class) -> &'static str {
    match class {
        Class::Guarantee => "guarantee",
        Class::Opportunistic => "opportunistic",
    }
}

/// What a pod asks for, in a few words.
pub(crate) fn ask(ask: &GpuAsk) -> String {
    ask.containers.iter().filter(|c| !c.wants.is_empty()).map(wants).collect::<Vec<_>>().join("; ")
}

/// What it asks for, container by container.
pub(crate) fn containers(ask: &GpuAsk) -> Vec<String> {
    ask.containers.iter().map(|c| format!("{}: {}", c.name, wants(c))).collect()
}

fn wants(container: &ContainerAsk) -> String {
    container.wants.iter().map(want).collect::<Vec<_>>().join(", ")
}

fn want(want: &DeviceAsk) -> String {
    let kind = match want.kind {
        DeviceKind::Gpu => "GPU".to_owned(),
        other => word(other).to_uppercase(),
    };
    let mut parts = vec![if want.count == 1 { kind } else { format!("{} × {kind}", want.count) }];
    if want.exclusive {
        parts.push("alone".into());
    }
    match want.memory {
        _ if want.exclusive => {}
        MemoryAsk::Bytes(bytes) if bytes.0 > 0 => parts.push(format!("{bytes}")),
        MemoryAsk::NodeUnits(units) => parts.push(format!("{units} of its memory units")),
        MemoryAsk::Part(part) if part.0 > 0 => parts.push(format!("{} of its memory", percent(part))),
        _ => {}
    }
    if want.share.0 > 0 && !want.exclusive {
        let limit = want.share_limit;
        let most = if limit > want.share { format!(" (up to {})", percent(limit)) } else { String::new() };
        parts.push(format!("{} of its time{most}", percent(want.share)));
    }
    parts.extend(want.partition.as_ref().map(|p| format!("partition {p}")));
    parts.join(", ")
}

/// A part in hundredths, with a decimal where it is needed.
fn percent(share: Share) -> String {
    match share.0 % 10 {
        0 => format!("{} %", share.0 / 10),
        rest => format!("{}.{rest} %", share.0 / 10),
    }
}

/// What else a pod asks for, by name.
pub(crate) fn wishes(ask: &GpuAsk) -> Vec<(String, String)> {
    let mut wishes = Vec::new();
    let model = |pattern: &ModelPattern| match pattern {
        ModelPattern::Exact(name) | ModelPattern::Part(name) => name.to_string(),
    };
    let models: Vec<String> = ask.models.only.iter().map(model).collect();
    if !models.is_empty() {
        wishes.push(("models".into(), models.join(", ")));
    }
    if let Some(gang) = &ask.gang {
        wishes.push(("gang".into(), format!("{}, {} of {} at once", gang.name, gang.min, gang.size)));
    }
    let topology = match ask.topology {
        Topology::Best => None,
        Topology::AtLeast(link) => Some(format!("every pair at least {}", word(link))),
        Topology::SameNuma => Some("one NUMA node".into()),
        Topology::SameDevice => Some("one device".into()),
        Topology::Spread => Some("far apart".into()),
    };
    wishes.extend(topology.map(|text| ("topology".into(), text)));
    if let Some(seconds) = ask.expected_duration {
        wishes.push(("expected to run".into(), format!("{} min", seconds / 60)));
    }
    wishes
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::ask::Dialect;
    use divvy_core::units::Bytes;

    #[test]
    fn asks_are_said_as_people_would() {
        let part = DeviceAsk {
            memory: MemoryAsk::Bytes(Bytes::gib(8)),
            share: Share(300),
            share_limit: Share(805),
            exclusive: false,
            ..DeviceAsk::whole(1)
        };
        let of = |want: DeviceAsk| {
            let container = ContainerAsk { name: "main".into(), role: Default::default(), wants: vec![want] };
            ask(&GpuAsk::of(Dialect::Native, vec![container]))
        };
        assert_eq!(of(part), "GPU, 8 GiB, 30 % of its time (up to 80.5 %)");
        assert_eq!(of(DeviceAsk::whole(4)), "4 × GPU, alone");
    }
}
