//! The annotations in which the emulated systems' tools look for a node's devices: written beside the inventory, taken away when they are
//! shown no longer, and left alone where an older system on the node keeps them. Pure.
//!
//! Two things tell whose an annotation is. The API server notes who wrote it last, so that a restarted agent knows its own again and takes
//! away nobody else's. And the kubelet lists device plugins: while one offers a kind of card, the registers of that kind are its own, and
//! when it is gone, what it left behind is replaced. KubeGPU wrote without a plugin; what it wrote stays until a person removes it.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::keys;
use k8s_openapi::api::core::v1::Node as NodeObject;

/// Under which name the API server notes what we wrote.
pub(super) const WRITER: &str = "divvy-agent";

/// All of them, each with the resource that an older system's device plugin offers beside it.
const KEYS: [(&str, &str); 4] = [
    (keys::KUBEGPU_DEVICE_INFO, keys::VGPU_COUNT),
    (keys::VGPU_NODE_REGISTER, keys::VGPU_COUNT),
    (keys::HAMI_NODE_REGISTER, keys::VGPU_COUNT),
    (keys::VGPU_NODE_MLU_REGISTER, keys::MLU_COUNT),
];

/// One of them as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// What it says.
    pub text: String,
    /// We wrote it, and nobody changed it since.
    pub ours: bool,
}

/// Those that stand on the node.
pub(super) fn standing(node: &NodeObject) -> BTreeMap<&'static str, Shown> {
    let annotations = node.metadata.annotations.as_ref();
    let one = |(key, _): (&'static str, _)| {
        let text = annotations?.get(key)?.clone();
        Some((key, Shown { text, ours: is_ours(node, key) }))
    };
    KEYS.into_iter().filter_map(one).collect()
}

fn is_ours(node: &NodeObject, key: &str) -> bool {
    let mut notes = node.metadata.managed_fields.iter().flatten();
    notes.any(|note| {
        let fields = note.fields_v1.as_ref().map(|fields| &fields.0["f:metadata"]["f:annotations"]);
        note.manager.as_deref() == Some(WRITER) && fields.is_some_and(|f| f.get(format!("f:{key}")).is_some())
    })
}

/// What is to change: a text to write, or nothing where ours is to go. `taken` are the resources that other device plugins offer here.
pub(super) fn changes(
    wanted: &BTreeMap<String, String>,
    stands: &BTreeMap<&'static str, Shown>,
    taken: &BTreeSet<String>,
) -> BTreeMap<&'static str, Option<String>> {
    let one = |(key, offered): (&'static str, &str)| {
        let wanted = wanted.get(key).filter(|_| !taken.contains(offered));
        let change = match (wanted, stands.get(key)) {
            (Some(text), None) => Some(text.clone()),
            (Some(text), Some(found)) if found.text != *text && (found.ours || key != keys::KUBEGPU_DEVICE_INFO) => {
                Some(text.clone())
            }
            (None, Some(found)) if found.ours => None,
            _ => return None,
        };
        Some((key, change))
    };
    KEYS.into_iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use divvy_core::device::{Device, DeviceKind, Inventory};
    use divvy_core::units::Bytes;
    use divvy_dialects::node::emulate_node;
    use serde_json::json;

    use super::*;

    const REGISTER: &str = keys::HAMI_NODE_REGISTER;

    fn wanted(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    /// What is done about a register that should say `new`, or nothing.
    fn done(
        key: &'static str,
        new: Option<&str>,
        found: Option<(&str, bool)>,
        taken: &[&str],
    ) -> Option<Option<String>> {
        let stands = found.map(|(text, ours)| (key, Shown { text: text.to_owned(), ours })).into_iter().collect();
        let new = wanted(new.map(|text| (key, text)).as_slice());
        changes(&new, &stands, &taken.iter().map(|name| (*name).to_owned()).collect()).remove(key)
    }

    #[test]
    fn registers_are_written_where_they_differ_and_taken_away_when_they_are_shown_no_longer() {
        let write = |text: &str| Some(Some(text.to_owned()));
        for (new, found, expected) in [
            (Some("a"), None, write("a")),
            (Some("a"), Some(("a", true)), None),
            (Some("b"), Some(("a", true)), write("b")),
            (None, Some(("a", true)), Some(None)),
            (None, None, None),
        ] {
            assert_eq!(done(REGISTER, new, found, &[]), expected, "{new:?} where {found:?}");
        }
    }

    #[test]
    fn what_an_older_system_on_the_node_writes_is_left_alone() {
        let theirs = Some(("old", false));
        // Its device plugin runs.
        assert_eq!(done(REGISTER, Some("new"), theirs, &[keys::VGPU_COUNT]), None);
        assert_eq!(done(REGISTER, Some("new"), None, &[keys::VGPU_COUNT]), None);
        // Its cards are not ours to show either.
        assert_eq!(done(REGISTER, Some("new"), Some(("new", true)), &[keys::VGPU_COUNT]), Some(None));
        assert_eq!(done(REGISTER, None, theirs, &[]), None);
        // It is gone and has left its register behind.
        assert_eq!(done(REGISTER, Some("new"), theirs, &[keys::MLU_COUNT]), Some(Some("new".into())));
        assert_eq!(done(keys::VGPU_NODE_MLU_REGISTER, Some("new"), theirs, &[keys::MLU_COUNT]), None);
        // Whether KubeGPU is gone nobody can tell.
        assert_eq!(done(keys::KUBEGPU_DEVICE_INFO, Some("new"), theirs, &[]), None);
    }

    #[test]
    fn an_annotation_is_ours_while_the_api_server_names_us_as_its_writer() {
        let note = |manager: &str, key: &str| {
            json!({"manager": manager, "operation": "Update", "fieldsType": "FieldsV1",
                   "fieldsV1": {"f:metadata": {"f:annotations": {format!("f:{key}"): {}}}}})
        };
        let node: NodeObject = serde_json::from_value(json!({"metadata": {
            "annotations": {REGISTER: "[]", keys::VGPU_NODE_REGISTER: "G", keys::KUBEGPU_DEVICE_INFO: "{}", "other": "x"},
            "managedFields": [note(WRITER, REGISTER), note("nvidia-device-plugin", keys::VGPU_NODE_REGISTER)],
        }}))
        .unwrap();
        let ours = standing(&node).into_iter().map(|(key, shown)| (key, shown.ours)).collect::<Vec<_>>();
        let expected =
            [(keys::VGPU_NODE_REGISTER, false), (keys::KUBEGPU_DEVICE_INFO, false), (keys::HAMI_NODE_REGISTER, true)];
        assert_eq!(ours, expected);
    }

    #[test]
    fn everything_that_the_dialects_show_on_a_node_is_written() {
        let mut mlu = Device::gpu("M0", 0, "MLU370-X8", Bytes::gib(24));
        mlu.kind = DeviceKind::Mlu;
        let devices = vec![Device::gpu("G0", 0, "T4", Bytes::gib(16)), mlu];
        let shown = emulate_node("n", &Inventory { devices, ..Inventory::default() }).annotations;
        let written = changes(&shown, &BTreeMap::new(), &BTreeSet::new());
        assert_eq!(
            written.keys().collect::<BTreeSet<_>>(),
            shown.keys().map(String::as_str).collect::<BTreeSet<_>>().iter().collect()
        );
    }
}
