//! Equal parts of different pods kept once: 50,000 pods of a few hundred shapes need the memory of a few hundred.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use divvy_core::ask::GpuAsk;
use divvy_core::pod::{Pod, PodSpec};

/// Parts that are in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared {
    specs: HashMap<u64, Weak<PodSpec>>,
    asks: HashMap<u64, Weak<GpuAsk>>,
}

impl Shared {
    /// Replaces the pod's parts by equal ones that are in use already.
    pub(super) fn share(&mut self, pod: &mut Pod) {
        let spec = &pod.spec;
        pod.spec = kept(&mut self.specs, hash(&**spec), spec);
        if let Some(ask) = &pod.ask {
            let text = serde_json::to_string(&**ask).unwrap_or_default();
            pod.ask = Some(kept(&mut self.asks, hash(&text), ask));
        }
    }

    /// Forgets parts nobody uses any more.
    pub(super) fn sweep(&mut self) {
        self.specs.retain(|_, part| part.strong_count() > 0);
        self.asks.retain(|_, part| part.strong_count() > 0);
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn kept<T: PartialEq>(parts: &mut HashMap<u64, Weak<T>>, hash: u64, part: &Arc<T>) -> Arc<T> {
    match parts.get(&hash).and_then(Weak::upgrade) {
        Some(known) if known == *part => known,
        Some(_) => part.clone(),
        None => {
            parts.insert(hash, Arc::downgrade(part));
            part.clone()
        }
    }
}
