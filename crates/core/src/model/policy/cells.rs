//! KubeShare's topology file: cells within cells, from groups of nodes down to single GPUs, and how far two GPUs are apart in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::device::Inventory;
use crate::model::id::{Model, NodeName, same_model};

/// The attribute of a device that names its cell, see [`CellFile::name_devices`].
pub const ATTRIBUTE: &str = "kubeshare-cell";

/// Most cells on one level of a root: a number with some zeros too many must not cost the scheduler its memory.
const MOST: usize = 65_536;

/// The file as KubeShare's users have it (`kubeshare-config.yaml`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CellFile {
    /// What kinds of cells there are.
    pub cell_types: BTreeMap<String, CellType>,
    /// The roots.
    pub cells: Vec<Cell>,
}

/// A kind of cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct CellType {
    /// What it is made of: another type, or (a name that is no type) a GPU model.
    pub child_cell_type: String,
    /// Of how many.
    pub child_cell_number: u32,
    /// The priority of the GPU model below it, 0..100.
    pub child_cell_priority: i32,
    /// Cells of this type are nodes.
    pub is_node_level: bool,
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Cell {
    /// Its type; may be left out below the root.
    pub cell_type: String,
    /// Its name; for nodes the node's. Absent: its place.
    pub cell_id: String,
    /// Its children; absent: as many as the type says.
    pub cell_children: Vec<Cell>,
}

/// A GPU's place in the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// `root/.../leaf`.
    pub id: String,
    /// The node it is in; absent where no cell above it is a node.
    pub node: Option<NodeName>,
    /// Its model.
    pub model: Model,
    /// Its model's priority.
    pub priority: i32,
}

/// One cell on the way down.
struct Open<'a> {
    id: String,
    kind: &'a str,
    node: Option<NodeName>,
    priority: i32,
    cell: Option<&'a Cell>,
}

impl CellFile {
    /// All mistakes of the file.
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for (i, cell) in self.cells.iter().enumerate() {
            if !self.cell_types.contains_key(&cell.cell_type) {
                let known: Vec<&str> = self.cell_types.keys().map(String::as_str).collect();
                let (n, kind) = (i + 1, &cell.cell_type);
                mistakes.push(format!("cells[{n}].cellType `{kind}` is not among cellTypes ({})", known.join(", ")));
            } else if !self.reaches_nodes(&cell.cell_type) {
                mistakes.push(format!(
                    "cells[{}] of type `{}` has no node level in it: set isNodeLevel",
                    i + 1,
                    cell.cell_type
                ));
            }
        }
        let mut by_model: BTreeMap<&str, i32> = BTreeMap::new();
        for (name, kind) in &self.cell_types {
            if !(0..=100).contains(&kind.child_cell_priority) {
                mistakes
                    .push(format!("cellTypes.{name}.childCellPriority {} is not in 0..100", kind.child_cell_priority));
            }
            if kind.child_cell_number as usize > MOST {
                mistakes.push(format!("cellTypes.{name}.childCellNumber {} is above {MOST}", kind.child_cell_number));
            }
            if self.cycle(name) {
                mistakes.push(format!("cellTypes.{name} contains itself"));
            } else if !self.cell_types.contains_key(&kind.child_cell_type) {
                let known = by_model.entry(&kind.child_cell_type).or_insert(kind.child_cell_priority);
                if *known != kind.child_cell_priority {
                    let (model, a, b) = (&kind.child_cell_type, *known, kind.child_cell_priority);
                    mistakes.push(format!("model `{model}` has two priorities, {a} and {b}: give it one"));
                }
            }
        }
        mistakes
    }

    fn cycle(&self, start: &str) -> bool {
        let mut at = start;
        for _ in 0..=self.cell_types.len() {
            match self.cell_types.get(at) {
                Some(kind) => at = &kind.child_cell_type,
                None => return false,
            }
        }
        true
    }

    fn reaches_nodes(&self, start: &str) -> bool {
        let mut at = start;
        for _ in 0..=self.cell_types.len() {
            match self.cell_types.get(at) {
                Some(kind) if kind.is_node_level => return true,
                Some(kind) => at = &kind.child_cell_type,
                None => return false,
            }
        }
        false
    }

    /// The GPUs in the tree, level by level, numbered as KubeShare numbers them: cells without a name count across the whole level
    /// of their root.
    pub fn leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        for (i, root) in self.cells.iter().enumerate() {
            if !self.cell_types.contains_key(&root.cell_type) || self.cycle(&root.cell_type) {
                continue;
            }
            let id = if root.cell_id.is_empty() { (i + 1).to_string() } else { root.cell_id.clone() };
            let mut level = vec![Open { id, kind: &root.cell_type, node: None, priority: 0, cell: Some(root) }];
            while !level.is_empty() {
                level = self.next_level(level, &mut leaves);
            }
        }
        leaves
    }

    /// Writes on the devices of a node which cells they are.
    pub fn name_devices(&self, node: &NodeName, inventory: &mut Inventory) {
        let leaves = self.leaves();
        let own: Vec<&Leaf> = leaves.iter().filter(|leaf| leaf.node.as_ref() == Some(node)).collect();
        let names: Vec<Option<String>> = (0..inventory.devices.len())
            .map(|device| position(&own, inventory, device).map(|at| own[at].id.clone()))
            .collect();
        for (device, name) in inventory.devices.iter_mut().zip(names) {
            device.attributes.extend(name.map(|name| (ATTRIBUTE.to_owned(), name)));
        }
    }

    fn next_level<'a>(&'a self, level: Vec<Open<'a>>, leaves: &mut Vec<Leaf>) -> Vec<Open<'a>> {
        let mut next = Vec::new();
        let mut number = 0u32;
        for open in level {
            let Some(kind) = self.cell_types.get(open.kind) else {
                leaves.push(Leaf { id: open.id, node: open.node, model: open.kind.into(), priority: open.priority });
                continue;
            };
            let own_name = open.id.rsplit('/').next().unwrap_or(&open.id);
            let node = if kind.is_node_level { Some(NodeName::from(own_name)) } else { open.node };
            let named = open.cell.map_or(&[][..], |cell| &cell.cell_children);
            let count = if named.is_empty() { kind.child_cell_number as usize } else { named.len() };
            for i in 0..count.min(MOST - next.len().min(MOST)) {
                number += 1;
                let cell = named.get(i);
                let name = cell.map(|c| c.cell_id.as_str()).filter(|id| !id.is_empty());
                let name = name.map_or_else(|| number.to_string(), str::to_owned);
                next.push(Open {
                    id: format!("{}/{name}", open.id),
                    kind: &kind.child_cell_type,
                    node: node.clone(),
                    priority: kind.child_cell_priority,
                    cell,
                });
            }
        }
        next
    }
}

/// Which of its node's leaves a device stands on. KubeShare fills those of a model from the end: the first GPU is the last leaf.
pub(crate) fn position(own: &[&Leaf], inventory: &Inventory, device: usize) -> Option<usize> {
    let model = inventory.devices.get(device)?.model.as_str();
    let rank = inventory.devices[..device].iter().filter(|other| other.model.as_str() == model).count();
    let alike = own.iter().enumerate().filter(|(_, leaf)| same_model(leaf.model.as_str(), model));
    alike.map(|(at, _)| at).rev().nth(rank)
}

/// How far two GPUs are apart: their names are laid side by side from the right; numbers differ by their difference, other names by
/// 100, and what one has more counts too.
pub fn distance(a: &str, b: &str) -> u64 {
    let (mut a, mut b) = (a.rsplit('/'), b.rsplit('/'));
    let number = |text: &str| text.parse::<u64>().ok();
    let mut sum = 0u64;
    loop {
        let step = match (a.next(), b.next()) {
            (None, None) => return sum,
            (Some(x), Some(y)) => match (number(x), number(y)) {
                (Some(x), Some(y)) => x.abs_diff(y),
                _ if x == y => 0,
                _ => 100,
            },
            (Some(x), None) | (None, Some(x)) => number(x).unwrap_or(100),
        };
        sum = sum.saturating_add(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(child: &str, number: u32, priority: i32, node: bool) -> CellType {
        CellType {
            child_cell_type: child.into(),
            child_cell_number: number,
            child_cell_priority: priority,
            is_node_level: node,
        }
    }

    fn cell(kind: &str, id: &str, children: Vec<Cell>) -> Cell {
        Cell { cell_type: kind.into(), cell_id: id.into(), cell_children: children }
    }

    fn fruit() -> CellFile {
        let child = |id| cell("", id, vec![]);
        CellFile {
            cell_types: BTreeMap::from([
                ("NODE".into(), kind("GTX", 2, 11, true)),
                ("3-NODE".into(), kind("NODE", 3, 0, false)),
            ]),
            cells: vec![
                cell("NODE", "apple", vec![]),
                cell("3-NODE", "", vec![child("lemon"), child("orange"), child("grape")]),
            ],
        }
    }

    #[test]
    fn ks_28_cells_without_a_name_are_numbered_across_their_level() {
        let ids: Vec<String> = fruit().leaves().into_iter().map(|leaf| leaf.id).collect();
        let expected =
            ["apple/1", "apple/2", "2/lemon/1", "2/lemon/2", "2/orange/3", "2/orange/4", "2/grape/5", "2/grape/6"];
        assert_eq!(ids, expected);
    }

    #[test]
    fn ks_26_every_node_of_a_root_has_its_leaves() {
        let leaves = fruit().leaves();
        for node in ["lemon", "orange", "grape"] {
            let own = leaves.iter().filter(|leaf| leaf.node == Some(node.into()));
            assert_eq!(own.map(|leaf| (leaf.model.as_str(), leaf.priority)).collect::<Vec<_>>(), [("GTX", 11); 2]);
        }
    }

    #[test]
    fn ks_28_devices_are_named_from_the_last_leaf_on() {
        let mut inventory = Inventory::default();
        for (index, model) in ["GTX", "RTX", "GTX", "GTX"].into_iter().enumerate() {
            let memory = crate::model::units::Bytes::gib(8);
            inventory.devices.push(crate::model::device::Device::gpu(format!("g{index}"), index as u32, model, memory));
        }
        fruit().name_devices(&"lemon".into(), &mut inventory);
        let names = inventory.devices.iter().map(|d| d.attributes.get(ATTRIBUTE).map(String::as_str));
        assert_eq!(names.collect::<Vec<_>>(), [Some("2/lemon/2"), None, Some("2/lemon/1"), None]);
    }

    #[test]
    fn a_number_with_zeros_too_many_is_a_mistake_and_costs_little() {
        let mut file = fruit();
        file.cell_types.insert("NODE".into(), kind("GTX", u32::MAX, 11, true));
        assert_eq!(file.mistakes(), ["cellTypes.NODE.childCellNumber 4294967295 is above 65536"]);
        assert_eq!(file.leaves().len(), 2 * MOST);
    }

    #[test]
    fn distance_counts_numbers_by_difference_and_names_by_a_hundred() {
        assert_eq!(distance("4/strawberry/1", "4/strawberry/1"), 0);
        assert_eq!(distance("4/strawberry/1", "4/strawberry/2"), 1);
        assert_eq!(distance("4/strawberry/1", "4/strawberry/5"), 4);
        assert_eq!(distance("2/lemon/1", "2/grape/6"), 105);
        assert_eq!(distance("apple/1", "2/apple/1"), 2);
    }

    #[test]
    fn a_file_answers_with_all_its_mistakes() {
        let mut file = fruit();
        file.cell_types.insert("LOOP".into(), kind("LOOP", 2, 101, false));
        file.cell_types.insert("OTHER".into(), kind("GTX", 2, 12, true));
        file.cells.push(cell("NONE", "x", vec![]));
        file.cells.push(cell("LOOP", "y", vec![]));
        assert_eq!(file.mistakes().len(), 5, "{:#?}", file.mistakes());
        assert_eq!(file.leaves().len(), 8);
    }
}
