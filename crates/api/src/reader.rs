//! Reading pods: what they ask for, and what is wrong with those that came past the webhook.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use divvy_core::keys;
use divvy_dialects::{DialectConfig, PodManifest, Reading, parse, sentence};

use crate::convert::{self, PodSeen};
use crate::{managed, wire};

/// How pods are read, shared between whoever follows the policy and the watch of pods.
#[derive(Clone, Debug)]
pub struct PodReader(Arc<RwLock<Arc<Words>>>);

/// What a reader knows: the dialects, and the names of resources that stand for devices in them.
#[derive(Debug)]
struct Words {
    dialects: DialectConfig,
    names: BTreeSet<String>,
}

impl Words {
    fn of(dialects: DialectConfig) -> Arc<Words> {
        Arc::new(Words { names: managed::names(&dialects), dialects })
    }
}

impl Default for PodReader {
    fn default() -> PodReader {
        PodReader(Arc::new(RwLock::new(Words::of(DialectConfig::default()))))
    }
}

impl PodReader {
    /// Reads pods by these dialects from now on.
    pub fn set(&self, dialects: DialectConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Words::of(dialects);
    }

    /// A pod as the core sees it.
    pub fn read(&self, wire: wire::Pod) -> PodSeen {
        let words = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        let unread = !wire.metadata.annotations.contains_key(keys::ASK);
        let mistakes =
            if unread && wire.spec.node_name.is_empty() { mistakes(&wire, &words.dialects) } else { Vec::new() };
        let mut seen = convert::pod(wire, |resource| managed::is_managed(&words.names, resource));
        seen.pod.mistakes = mistakes;
        if let Some(problem) = &seen.bad_ask {
            seen.pod.mistakes.push(format!("its ask cannot be read ({problem}); create the pod again").into());
        }
        seen
    }
}

/// What is wrong with a pod that came past the webhook: the same text the webhook would have refused it with. One that is well
/// written cannot run either, because it lacks what the webhook adds.
fn mistakes(wire: &wire::Pod, dialects: &DialectConfig) -> Vec<Arc<str>> {
    let manifest = convert::manifest(wire);
    match parse(&PodManifest::new(&manifest), dialects) {
        Reading::NotOurs => Vec::new(),
        Reading::Refused(mistakes) => vec![sentence(&mistakes).into()],
        Reading::Ask(..) => {
            vec![
                "it was created past Divvy's webhook, and so has no normalized ask; delete it and create it again"
                    .into(),
            ]
        }
    }
}
