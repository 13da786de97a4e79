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

/// What follows the prefix of 2019 or of 2018; nothing for a name of another kind.
pub fn without_prefix(text: &str) -> Option<&str> {
    [keys::KUBEGPU_GROUP, keys::KUBEGPU_GROUP_2018]
        .into_iter()
        .find_map(|prefix| text.strip_prefix(prefix)?.strip_prefix('/'))
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
        self.quantity.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("enum"))
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
    fn what_is_no_name_is_not_read() {
        for text in ["", "/", "gpu//cards", "gpu/0", "gpu/0/cards/x"] {
            let name = Name::read(text);
            assert!(name.is_none() || text == "gpu/0/cards/x" && name.is_none(), "{text}: {name:?}");
        }
        assert_eq!(without_prefix("resource/groups/x"), None);
        assert!(Name::read("gpu/0/enumType").unwrap().is_enum());
    }
}
