//! KubeGPU's hierarchical names: `resource/group/gpugrp1/A/gpugrp0/B/gpu/0/cards` is a quantity of a device in a group in a group.

use std::fmt;

use crate::keys;

/// A name without its prefix: kinds of group with a label each, then the quantity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name<'a> {
    /// `(kind, label)`, outermost first.
    pub groups: Vec<(&'a str, &'a str)>,
    /// `cards`, `memory`, or a bit set whose name begins with `enum`.
    pub quantity: &'a str,
}

/// The kind of group that is one device.
pub const DEVICE: &str = "gpu";

/// The kind of group of devices that share a switch or better.
pub(super) const INNER: &str = "gpugrp0";
/// The kind of group of devices with any known way to each other.
pub(super) const OUTER: &str = "gpugrp1";

/// What follows the prefix of 2019 or of 2018; nothing for a name of another kind.
pub fn without_prefix(text: &str) -> Option<&str> {
    [keys::KUBEGPU_GROUP, keys::KUBEGPU_GROUP_2018]
        .into_iter()
        .find_map(|prefix| text.strip_prefix(prefix)?.strip_prefix('/'))
}

/// Does the quantity's name say that it is a set of bits?
pub(super) fn is_bit_set(quantity: &str) -> bool {
    quantity.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("enum"))
}

impl<'a> Name<'a> {
    /// Kinds and labels in turn, and a quantity at the end.
    pub fn read(rest: &'a str) -> Option<Name<'a>> {
        let parts: Vec<&str> = rest.split('/').collect();
        let (quantity, pairs) = parts.split_last()?;
        if pairs.len() % 2 != 0 || parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        Some(Name { groups: pairs.chunks(2).map(|pair| (pair[0], pair[1])).collect(), quantity })
    }

    /// A bit set instead of an amount?
    pub fn is_enum(&self) -> bool {
        is_bit_set(self.quantity)
    }

    /// Does it name a device as nodes name theirs? Either kind of group may be left out, neither may be in the other's place.
    pub fn is_of_a_tree(&self) -> bool {
        let kinds: Vec<&str> = self.groups.iter().map(|(kind, _)| *kind).collect();
        matches!(kinds[..], [DEVICE] | [INNER | OUTER, DEVICE] | [OUTER, INNER, DEVICE])
    }

    /// The full name of the device this is a quantity of.
    pub fn device(&self) -> Option<String> {
        let (kind, _) = self.groups.last()?;
        let path: String = self.groups.iter().map(|(kind, label)| format!("/{kind}/{label}")).collect();
        (*kind == DEVICE).then(|| format!("{}{path}", keys::KUBEGPU_GROUP))
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(keys::KUBEGPU_GROUP)?;
        for (kind, label) in &self.groups {
            write!(f, "/{kind}/{label}")?;
        }
        write!(f, "/{}", self.quantity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_years_read_alike() {
        for prefix in [keys::KUBEGPU_GROUP, keys::KUBEGPU_GROUP_2018] {
            let text = format!("{prefix}/gpugrp1/A/gpugrp0/B/gpu/0/cards");
            let name = Name::read(without_prefix(&text).unwrap()).unwrap();
            assert_eq!(name.to_string(), format!("{}/gpugrp1/A/gpugrp0/B/gpu/0/cards", keys::KUBEGPU_GROUP));
            assert_eq!(name.device().unwrap(), format!("{}/gpugrp1/A/gpugrp0/B/gpu/0", keys::KUBEGPU_GROUP));
        }
    }

    #[test]
    fn a_device_is_named_in_groups_that_nodes_have() {
        let of_a_tree = |text: &str| Name::read(text).unwrap().is_of_a_tree();
        for text in ["gpu/0/cards", "gpugrp0/A/gpu/0/cards", "gpugrp1/A/gpu/0/cards", "gpugrp1/A/gpugrp0/B/gpu/0/cards"]
        {
            assert!(of_a_tree(text), "{text}");
        }
        for text in [
            "cards",
            "gpugrp0/A/memory",
            "gpugrpO/A/gpu/0/cards",
            "gpugrp2/A/gpu/0/cards",
            "gpugrp0/A/gpugrp1/B/gpu/0/cards",
            "gpu/0/gpu/1/cards",
        ] {
            assert!(!of_a_tree(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_not_read() {
        for text in ["", "/", "gpu//cards", "gpu/0", "gpu/0/cards/x"] {
            let name = Name::read(text);
            assert!(name.is_none() || text == "gpu/0/cards/x" && name.is_none(), "{text}: {name:?}");
        }
        assert_eq!(without_prefix("resource/groups/x"), None);
        assert!(Name::read("gpu/0/enumType").unwrap().is_enum());
    }
}
