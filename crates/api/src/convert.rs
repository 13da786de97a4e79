//! From Kubernetes' objects to the core's.

mod node;
mod pod;
mod selector;
mod storage;

pub use node::{InventoryProblem, node, opted_in, volume_limits};
pub use pod::{PodSeen, manifest, pod};
pub use storage::{budget, capacity, claim, storage_class, volume};

use std::collections::BTreeMap;
use std::sync::Arc;

use divvy_core::labels::Labels;
use divvy_core::resources::Resources;
use divvy_core::units::Bytes;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::{thousandths, units};

fn labels(map: BTreeMap<String, String>) -> Labels {
    map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

fn texts(list: Option<Vec<String>>) -> Vec<Arc<str>> {
    list.unwrap_or_default().into_iter().map(Arc::from).collect()
}

/// Amounts by name; those of which `left_out` is true do not count.
fn resources(map: &BTreeMap<String, Quantity>, left_out: impl Fn(&str) -> bool) -> Resources {
    let mut amounts = Resources::default();
    for (name, Quantity(amount)) in map {
        match name.as_str() {
            "cpu" => amounts.cpu = thousandths(amount),
            "memory" => amounts.memory = Bytes(units(amount)),
            "ephemeral-storage" => amounts.storage = Bytes(units(amount)),
            "pods" => {}
            other if left_out(other) => {}
            other => {
                amounts.other.insert(other.into(), units(amount));
            }
        }
    }
    amounts
}
