//! What happens when: people who submit work and give up, cards that break and are mended, programs that end.

use std::collections::BTreeMap;

use divvy_core::device::Health;
use divvy_core::id::{DeviceId, PodUid};
use divvy_core::keys;
use divvy_core::time::Time;
use serde_json::Value;

use super::{Played, Simulation};
use crate::store::{Refused, node_name};
use crate::teams::{Job, TEAMS, load, mistaken};

/// The fleet the teams' habits are given for.
const USUAL_FLEET: f64 = 24.0;
const HOUR: u64 = 3_600;
/// Seconds between two looks at what programs use.
const MEASURE: u64 = 60;
/// People stop waiting after so many seconds.
const PATIENCE: (u64, u64) = (2 * HOUR, 5 * HOUR);

/// Something that happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A team submits a job.
    Submit(usize),
    /// Somebody submits a manifest with mistakes.
    Mistake,
    /// A pod of a job is created again: its controller saw it go.
    Recreate { job: u64, template: usize, seconds: u64 },
    /// A kubelet has started a pod.
    Started(PodUid),
    /// A program has done its work.
    Ended(PodUid),
    /// A pod that was told to go is gone.
    Gone(PodUid),
    /// Its user waits no longer.
    GiveUp(PodUid),
    /// Some card breaks.
    Break,
    /// A card is mended.
    Mend(String, DeviceId),
    /// Time to see what programs use.
    Measure,
}

/// Events to come, in order.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    events: BTreeMap<(Time, u64), Event>,
    entered: u64,
}

impl Agenda {
    pub(super) fn at(&mut self, at: Time, event: Event) {
        self.entered += 1;
        self.events.insert((at, self.entered), event);
    }

    pub(super) fn next_until(&mut self, to: Time) -> Option<(Time, Event)> {
        let first = self.events.first_entry().filter(|first| first.key().0 <= to)?;
        let ((at, _), event) = first.remove_entry();
        Some((at, event))
    }
}

impl Simulation {
    pub(super) fn plan_the_day(&mut self) {
        for team in 0..TEAMS.len() {
            self.next_job(team);
        }
        let begin = self.options.begin;
        self.events.at(begin.plus_seconds(MEASURE), Event::Measure);
        self.events.at(begin.plus_seconds(3 * HOUR + 700), Event::Break);
        self.events.at(begin.plus_seconds(2 * HOUR + 1_900), Event::Mistake);
    }

    /// The next job of a team comes when it comes, more often at busy hours and in larger fleets.
    fn next_job(&mut self, team: usize) {
        let hour = (self.now.0 / 3_600_000 % 24) as f64 + (self.now.0 % 3_600_000) as f64 / 3_600_000.0;
        let fleet = self.options.nodes as f64 / USUAL_FLEET;
        let per_hour = TEAMS[team].per_hour * load(hour) * fleet;
        let wait = self.random.wait(3_600_000.0 / per_hour.max(0.01));
        self.events.at(Time(self.now.0 + wait.max(1)), Event::Submit(team));
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Submit(team) => {
                let job = (TEAMS[team].job)(&mut self.random);
                self.start_job(job);
                self.next_job(team);
            }
            Event::Mistake => {
                let pod = mistaken(&mut self.random);
                let created = self.cluster.lock().create(pod);
                if let Err(refused) = created {
                    self.refuse(&refused);
                }
                let again = self.random.between(HOUR, 3 * HOUR);
                self.events.at(self.now.plus_seconds(again), Event::Mistake);
            }
            Event::Recreate { job, template, seconds } => drop(self.create(job, template, seconds)),
            Event::Started(uid) => self.started(&uid),
            Event::Ended(uid) => self.ended(&uid),
            Event::Gone(uid) => self.gone(&uid),
            Event::GiveUp(uid) => self.give_up(&uid),
            Event::Break => {
                if let Some((node, index)) = self.some_busy_card() {
                    self.break_card(&node, index);
                }
                let again = self.random.between(2 * HOUR, 6 * HOUR);
                self.events.at(self.now.plus_seconds(again), Event::Break);
            }
            Event::Mend(node, device) => {
                let mut store = self.cluster.lock();
                store.change_inventory(&node, |inventory| {
                    let found = inventory.devices.iter_mut().find(|d| d.id == device);
                    found.into_iter().for_each(|d| d.health = Health::Healthy);
                });
                store.tell(node, "DeviceHealthy", format!("{device} is back"), false);
            }
            Event::Measure => {
                self.measure();
                self.tick();
                self.events.at(self.now.plus_seconds(MEASURE), Event::Measure);
            }
        }
    }

    pub(super) fn add_job(&mut self, job: Job) -> u64 {
        let number = self.jobs.last_key_value().map_or(0, |(last, _)| last + 1);
        self.jobs.insert(number, job);
        number
    }

    fn start_job(&mut self, job: Job) {
        let (members, seconds) = (job.pods.len(), job.seconds);
        let number = self.add_job(job);
        for template in 0..members {
            // Members of a gang end together; others when they are done.
            let spread = self.random.between(0, seconds / 10);
            let _ = self.create(number, template, seconds + spread);
        }
    }

    /// A controller creates a pod of a job.
    pub(super) fn create(
        &mut self,
        job: u64,
        template: usize,
        seconds: u64,
    ) -> Result<divvy_cluster::effect::Target, Refused> {
        let pod = self.jobs.get(&job).and_then(|job| job.pods.get(template)).cloned().unwrap_or(Value::Null);
        let created = self.cluster.lock().create(pod);
        match &created {
            Err(refused) => self.refuse(refused),
            Ok(target) => {
                let dialect = self.dialect(&target.uid);
                *self.summary.admitted.entry(dialect).or_default() += 1;
                let played = Played { job, template, seconds, running: false, leaving: false };
                self.pods.insert(target.uid.clone(), played);
                let patience = self.random.between(PATIENCE.0, PATIENCE.1);
                self.events.at(self.now.plus_seconds(patience), Event::GiveUp(target.uid.clone()));
            }
        }
        created
    }

    fn refuse(&mut self, refused: &Refused) {
        self.summary.refused += 1;
        self.summary.last_refusal = Some(format!("{}: {}", refused.pod, refused.message));
        let message = refused.message.clone();
        self.cluster.lock().tell(refused.pod.clone(), "Refused", message, true);
    }

    /// The dialect the webhook read a pod in.
    fn dialect(&self, uid: &PodUid) -> String {
        let store = self.cluster.lock();
        let ask = store.pod(uid).and_then(|pod| pod["metadata"]["annotations"][keys::ASK].as_str());
        let ask = ask.and_then(|ask| serde_json::from_str::<Value>(ask).ok());
        ask.and_then(|ask| ask["dialect"].as_str().map(str::to_owned)).unwrap_or_else(|| "none".into())
    }

    /// A card that somebody uses: those that work hard are those that break.
    fn some_busy_card(&mut self) -> Option<(String, usize)> {
        let snapshot = self.control.world().snapshot();
        let mut busy = Vec::new();
        for (_, state) in snapshot.nodes() {
            for (index, (device, book)) in state.node().inventory.devices.iter().zip(state.books()).enumerate() {
                if device.health == Health::Healthy && book.pods > 0 {
                    busy.push((state.node().name.to_string(), index));
                }
            }
        }
        if busy.is_empty() { None } else { Some(self.random.pick(&busy).clone()) }
    }

    pub(super) fn break_card(&mut self, node: &str, index: usize) -> Option<DeviceId> {
        let reason = "XID 79: the GPU has fallen off the bus";
        let snapshot = self.control.world().snapshot();
        let state = snapshot.node(&node_name(node))?;
        let device = state.node().inventory.devices.get(index).filter(|d| d.health == Health::Healthy)?.id.clone();
        let victims: Vec<PodUid> = state
            .pods()
            .iter()
            .filter_map(|ix| snapshot.pod_at(*ix))
            .filter(|pod| pod.charges().iter().any(|(on, _)| *on as usize == index))
            .map(|pod| pod.pod().uid.clone())
            .collect();
        {
            let mut store = self.cluster.lock();
            store.change_inventory(node, |inventory| {
                inventory.devices[index].health = Health::Unhealthy { reason: reason.to_owned() };
            });
            store.tell(node.to_owned(), "DeviceUnhealthy", format!("{device}: {reason}"), true);
        }
        self.summary.failed_cards += 1;
        for uid in victims {
            self.crash(&uid);
        }
        let mended = self.random.between(HOUR, 2 * HOUR);
        self.events.at(self.now.plus_seconds(mended), Event::Mend(node.to_owned(), device.clone()));
        Some(device)
    }
}
