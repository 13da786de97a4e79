//! Members of gangs that have done their work. They hold nothing any more, and count as there: where one member fails after others
//! have ended well, its successor need not wait for company that will not come again.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::id::{GangKey, Namespace, PodUid};
use crate::model::pod::Pod;

/// The finished members of a gang, and the controller of each.
type Members = BTreeMap<PodUid, Option<Arc<str>>>;

/// Members of gangs that ended well, as long as their pods are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Finished(BTreeMap<Namespace, BTreeMap<Arc<str>, Members>>);

impl Finished {
    /// Nobody has.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A pod ended well. False when it belongs to no gang, or that was known.
    pub fn put(&mut self, pod: &Pod) -> bool {
        let Some(gang) = pod.gang() else { return false };
        let members = self.0.entry(gang.namespace).or_default().entry(gang.name).or_default();
        members.insert(pod.uid.clone(), pod.controller.clone()).is_none()
    }

    /// A pod that ended well is no longer kept.
    pub fn remove(&mut self, pod: &PodUid) {
        self.0.retain(|_, gangs| {
            gangs.retain(|_, members| {
                members.remove(pod);
                !members.is_empty()
            });
            !gangs.is_empty()
        });
    }

    /// How many of a gang of this size have ended well that belong with these members of it: one controller makes them all, or none
    /// does. A Job that runs once more under the same gang's name starts together again, and one that has more completions than its
    /// gang has members does not do without the gang.
    pub fn beside<'a>(&self, gang: &GangKey, size: u32, members: impl Iterator<Item = &'a Pod> + Clone) -> u32 {
        let Some(finished) = self.0.get(&gang.namespace).and_then(|gangs| gangs.get(&gang.name)) else { return 0 };
        let belongs = |controller: &&Option<Arc<str>>| members.clone().any(|pod| pod.controller == **controller);
        let absent = size.saturating_sub(members.clone().count() as u32);
        (finished.values().filter(belongs).count() as u32).min(absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::cluster;

    #[test]
    fn who_ended_well_counts_beside_those_of_the_same_controller_as_long_as_it_is_kept() {
        let snapshot = cluster(
            "wait a share=1 gang=g:3:3
             wait b share=1 gang=g:3:3
             wait c share=1 gang=h:3:3
             wait d share=1",
        );
        let pod = |name: &str, controller: Option<&str>| {
            let (_, state) = snapshot.pods().find(|(_, state)| &*state.pod().key.name == name).unwrap();
            Pod { controller: controller.map(Into::into), ..state.pod().clone() }
        };
        let gang = pod("a", None).gang().unwrap();
        let mut finished = Finished::default();
        let job = pod("a", Some("job"));
        assert!(finished.put(&job) && !finished.put(&job), "told twice is known once");
        assert!(finished.put(&pod("c", Some("job"))), "of another gang");
        assert!(!finished.put(&pod("d", None)), "of none");
        let beside = |finished: &Finished, fellow: &Pod| finished.beside(&gang, 3, std::iter::once(fellow));
        assert_eq!(beside(&finished, &pod("b", Some("job"))), 1);
        assert_eq!(beside(&finished, &pod("b", Some("job, once more"))), 0);
        assert_eq!(beside(&finished, &pod("b", None)), 0);
        let fellows = [pod("a", Some("job")), pod("b", Some("job")), pod("c", Some("job"))];
        assert_eq!(finished.beside(&gang, 3, fellows.iter()), 0, "nobody is missing");
        finished.remove(&job.uid);
        assert_eq!(beside(&finished, &pod("b", Some("job"))), 0);
        assert!(!finished.is_empty(), "the other gang's is kept");
        let text = serde_json::to_string(&finished).unwrap();
        assert_eq!(serde_json::from_str::<Finished>(&text).unwrap(), finished);
    }
}
