//! What nodes and programs do with pods: start them, end them, lose them.

use divvy_cluster::change::Change;
use divvy_core::id::PodUid;

use super::Simulation;
use super::events::Event;

impl Simulation {
    /// A kubelet, or a controller, sees a change.
    pub(super) fn react(&mut self, change: &Change) {
        match change {
            Change::Pod(seen) => {
                let uid = &seen.pod.uid;
                let Some(played) = self.pods.get_mut(uid) else { return };
                if seen.deleting && !played.leaving {
                    played.leaving = true;
                    let grace = self.random.between(3, 15);
                    self.events.at(self.now.plus_seconds(grace), Event::Gone(uid.clone()));
                } else if seen.pod.bound().is_some() && !played.running {
                    played.running = true;
                    if let Some(gang) = seen.pod.gang()
                        && self.gangs.insert(gang.clone())
                    {
                        let size = seen.pod.ask.as_ref().and_then(|ask| ask.gang.as_ref()).map_or(0, |gang| gang.size);
                        let text = format!("all {size} members of gang {} have their places", gang.name);
                        self.cluster.lock().tell(seen.pod.key.to_string(), "GangPlaced", text, false);
                    }
                    // Images are pulled, programs load.
                    let start = self.random.between(2, 20);
                    self.events.at(self.now.plus_seconds(start), Event::Started(uid.clone()));
                }
            }
            Change::PodGone(uid) => {
                self.usage.forget(uid);
            }
            _ => {}
        }
    }

    pub(super) fn started(&mut self, uid: &PodUid) {
        let Some(played) = self.pods.get(uid).filter(|played| !played.leaving) else { return };
        let seconds = played.seconds;
        self.cluster.lock().start(uid);
        if let Some(job) = self.jobs.get(&played.job) {
            let (appetite, fill) =
                (self.random.between(u64::from(job.appetite) * 8 / 10, u64::from(job.appetite)), job.fill);
            self.usage.begin(uid, appetite as u32, fill);
        }
        self.events.at(self.now.plus_seconds(seconds), Event::Ended(uid.clone()));
    }

    pub(super) fn ended(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|played| !played.leaving) {
            self.pods.remove(uid);
            self.cluster.lock().remove(uid);
            self.summary.finished += 1;
        }
    }

    /// A pod that was evicted, or deleted, has left; its controller makes another.
    pub(super) fn gone(&mut self, uid: &PodUid) {
        let Some(played) = self.pods.remove(uid) else { return };
        self.cluster.lock().remove(uid);
        self.recreate(played);
    }

    /// A program died with its card.
    pub(super) fn crash(&mut self, uid: &PodUid) {
        let Some(played) = self.pods.remove(uid) else { return };
        self.summary.lost += 1;
        self.cluster.lock().remove(uid);
        self.recreate(played);
    }

    fn recreate(&mut self, played: super::Played) {
        let again = self.now.plus_seconds(self.random.between(1, 5));
        let super::Played { job, template, seconds, .. } = played;
        self.events.at(again, Event::Recreate { job, template, seconds });
    }

    pub(super) fn give_up(&mut self, uid: &PodUid) {
        if self.pods.get(uid).is_some_and(|played| !played.running) {
            self.pods.remove(uid);
            self.cluster.lock().remove(uid);
            self.summary.given_up += 1;
        }
    }
}
