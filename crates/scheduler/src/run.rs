//! The loop around [`World`]: changes in, effects out, many at once.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use divvy_api::convert::PodSeen;
use divvy_api::extender::MAX_SCORE;
use divvy_api::reader::PodReader;
use divvy_cluster::effect::Target;
use divvy_cluster::lease::Standing;
use divvy_cluster::{Change, Effect, Effects, Failure, Kind};
use divvy_core::id::{NodeName, PodKey, PodUid};
use divvy_core::pod::Pod;
use divvy_core::time::Time;
use divvy_service::health::{Condition, Pulse};
use divvy_service::{Health, Stop};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::extender::{Question, Wanted};
use crate::memory::{Memory, Recalled};
use crate::metrics::Metrics;
use crate::world::{Advice, World};

/// What the scheduler is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name: pods that name it are its to place.
    pub name: String,
    /// Binds and evictions under way at once.
    pub at_once: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { name: divvy_core::keys::SCHEDULER.into(), at_once: 64 }
    }
}

/// How often the clock is looked at. Everything urgent comes as an event.
const TICK: Duration = Duration::from_millis(500);
/// Metrics that need a walk over all nodes.
const SHOW: Duration = Duration::from_secs(5);
/// Changes taken in before anything is decided.
const GULP: usize = 1024;
/// Events waiting to be written; more are dropped, oldest first.
const TALES: usize = 5_000;
/// Events and conditions being written at once: fewer while binds are under way.
const TELLING: usize = 8;
const TELLING_BESIDE: usize = 2;

/// Pods decided before the loop looks at changes again: as many as take about this long.
const ROUND: Duration = Duration::from_millis(20);
const FEWEST: usize = 8;
const MOST: usize = 1024;

/// How long a question waits for the pod that it is about: the API server may show a pod to its scheduler a moment before it shows it to us.
/// A question about a pod that there is not holds one of the port's places as long, and kube-scheduler gives up after 5 s by default.
const PATIENCE: Duration = Duration::from_secs(1);
/// Questions that wait so: as many as a port answers at once. A scheduler asks about one pod after another, and binds a few at once.
const PATIENT: usize = 64;

/// What is answered before everything was told.
const EARLY: &str = "this replica does not know the cluster well enough yet; try again";

/// What the loop works with.
pub struct Scheduler<E> {
    /// What it is told.
    pub options: Options,
    /// Who carries effects out.
    pub effects: E,
    /// What changes.
    pub changes: mpsc::Receiver<Change>,
    /// Raised to have pods and nodes listed anew.
    pub relist: watch::Sender<u64>,
    /// How pods are read.
    pub reader: PodReader,
    /// Questions of other schedulers.
    pub questions: mpsc::Receiver<Question>,
    /// Whether this replica decides.
    pub standing: watch::Receiver<Standing>,
    /// What namespaces have used, kept for whoever leads next.
    pub memory: Memory,
    /// What is told to Prometheus.
    pub metrics: Metrics,
    /// What is told to Kubernetes' probes.
    pub health: Health,
}

enum Done {
    Effect { effect: Effect, outcome: Result<(), Failure>, seconds: f64 },
    Look { target: Target, found: Result<Option<Box<PodSeen>>, Failure> },
}

struct Loop<E> {
    world: World,
    parts: Scheduler<E>,
    work: JoinSet<Done>,
    /// Binds and evictions under way, and those that wait for a turn.
    flying: usize,
    urgent: VecDeque<Effect>,
    /// Seconds one decision took, lately.
    pace: f64,
    /// Events and conditions under way, and those that wait for a turn.
    telling: usize,
    tales: VecDeque<Effect>,
    leading: bool,
    /// Questions about pods that we were not told of yet, by the moment up to which they wait.
    early: VecDeque<(Instant, Question)>,
    /// Who asked for a bind that is under way.
    binders: HashMap<PodUid, oneshot::Sender<Result<(), String>>>,
    /// The list of pods that must be told before anything is decided: what the leader before us bound last is in it.
    barrier: Option<u64>,
    /// What is being read anew because the policy changed how it is read: until then it is known as the old policy had it.
    rereading: BTreeSet<Kind>,
    lists: u64,
    filled: Condition,
    pulse: Pulse,
}

/// The time now.
pub fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

impl<E: Effects> Scheduler<E> {
    /// Runs until `stop`.
    pub async fn run(self, stop: Stop) -> anyhow::Result<()> {
        let filled = self.health.condition("caches filled");
        let pulse = self.health.pulse("scheduling", Duration::from_secs(60));
        let world = World::new(&self.options.name);
        let work = JoinSet::new();
        let mut this = Loop {
            world,
            parts: self,
            work,
            flying: 0,
            urgent: VecDeque::new(),
            pace: 0.001,
            telling: 0,
            tales: VecDeque::new(),
            leading: false,
            early: VecDeque::new(),
            binders: HashMap::new(),
            barrier: None,
            rereading: BTreeSet::new(),
            lists: 0,
            filled,
            pulse,
        };
        this.run(stop).await
    }
}

impl<E: Effects> Loop<E> {
    async fn run(&mut self, stop: Stop) -> anyhow::Result<()> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut shown = Instant::now();
        let mut gulp = Vec::with_capacity(GULP);
        let mut standing = self.parts.standing.clone();
        self.stand(&standing.borrow_and_update().clone());
        loop {
            let more = self.may_decide() && self.world.has_awake();
            tokio::select! {
                () = stop.requested() => break,
                Ok(()) = standing.changed() => self.stand(&standing.borrow_and_update().clone()),
                Some(done) = self.work.join_next(), if !self.work.is_empty() => self.done(done?),
                n = self.parts.changes.recv_many(&mut gulp, GULP) => {
                    // Those who watch are asked to stop at the same time as we are.
                    if n == 0 && stop.is_requested() {
                        break;
                    }
                    anyhow::ensure!(n > 0, "nobody watches the cluster any more");
                    self.take_in(&mut gulp);
                }
                Some(question) = self.parts.questions.recv() => self.hear(question),
                Some(recalled) = self.parts.memory.recalled.recv() => self.recall(recalled),
                _ = tick.tick() => {
                    self.world.tick(now());
                    if shown.elapsed() > SHOW {
                        shown = Instant::now();
                        self.parts.metrics.show(&self.world, now());
                        self.parts.memory.kept.send_replace(self.world.used(now()));
                    }
                }
                () = std::future::ready(()), if more => {}
            }
            while let Some(done) = self.work.try_join_next() {
                self.done(done?);
            }
            self.answer_early();
            self.pulse.beat();
            self.decide();
            self.dispatch();
        }
        self.drain().await;
        Ok(())
    }

    /// Lets what is under way come to its end: an answer that nobody hears is a pod that somebody has to look at.
    async fn drain(&mut self) {
        self.tales.clear();
        self.urgent.clear();
        while let Some(Ok(done)) = self.work.join_next().await {
            self.done(done);
        }
    }

    /// Do we lead, and know everything as it is?
    fn may_place(&self) -> bool {
        self.leading && self.barrier.is_none() && self.rereading.is_empty() && self.world.is_complete()
    }

    fn may_decide(&self) -> bool {
        // With a few turns' worth of binds waiting, more decisions would only be older when they are carried out.
        let ahead = self.urgent.len() < 2 * self.parts.options.at_once;
        self.may_place() && ahead
    }

    fn stand(&mut self, standing: &Standing) {
        let leads = *standing == Standing::Leading;
        if leads && !self.leading {
            self.lists += 1;
            self.barrier = Some(self.lists);
            let _ = self.parts.relist.send(self.lists);
        }
        if !leads && self.leading {
            // Decided, not yet sent: whoever leads now decides anew.
            for effect in std::mem::take(&mut self.urgent) {
                let lost = Err(Failure::Blocked { message: "the lead was lost".into() });
                self.tell_binder(&effect, &lost);
                self.world.done(&effect, lost, now());
            }
            self.world.follow();
            self.tales.clear();
        }
        self.leading = leads;
        self.parts.metrics.leads(leads);
    }

    fn take_in(&mut self, changes: &mut Vec<Change>) {
        let at = now();
        for change in changes.drain(..) {
            match &change {
                Change::Policy(_, Ok(policy)) => self.parts.reader.set(policy.dialects.clone()),
                Change::Complete(Kind::Pods, number) if self.barrier.is_some_and(|barrier| *number >= barrier) => {
                    self.barrier = None;
                    self.world.take_lead(at);
                }
                _ => {}
            }
            if let Change::Complete(kind, number) = &change
                && *number >= self.lists
            {
                self.rereading.remove(kind);
            }
            self.world.apply(change, at);
        }
        if self.world.take_relist() {
            self.lists += 1;
            self.rereading = BTreeSet::from([Kind::Pods, Kind::Nodes]);
            let _ = self.parts.relist.send(self.lists);
        }
        self.filled.set(self.world.is_complete());
    }

    /// Takes in what the leader before us remembered.
    fn recall(&mut self, recalled: Recalled) {
        let at = now();
        self.world.recall(recalled.used, at);
        self.parts.memory.kept.send_replace(self.world.used(at));
        let _ = recalled.taken.send(());
    }

    /// Answers a question, or lets it wait for the pod that it is about.
    fn hear(&mut self, question: Question) {
        if self.is_early(&question) && self.early.len() < PATIENT {
            self.early.push_back((Instant::now() + PATIENCE, question));
        } else {
            self.answer(question);
        }
    }

    fn is_early(&self, question: &Question) -> bool {
        self.world.is_complete() && question.about().is_some_and(|uid| !self.world.knows(uid))
    }

    /// Answers questions whose pods have come since, or that have waited long enough.
    fn answer_early(&mut self) {
        for _ in 0..self.early.len() {
            let Some((until, question)) = self.early.pop_front() else { return };
            if self.is_early(&question) && Instant::now() < until {
                self.early.push_back((until, question));
            } else {
                self.answer(question);
            }
        }
    }

    fn answer(&mut self, question: Question) {
        let (at, began) = (now(), Instant::now());
        // Whoever asked may have hung up: an answer nobody hears is no failure.
        let step = match question {
            Question::Filter { reply, .. } if !self.world.is_complete() => {
                let _ = reply.send(Err(EARLY.to_owned()));
                "filter"
            }
            Question::Filter { pod, nodes, wanted, reply } => {
                let _ = reply.send(self.filter(&pod.pod, nodes, wanted, at));
                "filter"
            }
            Question::Strangers { nodes, reply } => {
                let _ = reply.send(self.world.strangers(nodes));
                "filter"
            }
            Question::Imagine { reply, .. } if !self.world.is_complete() => {
                let _ = reply.send(Err(EARLY.to_owned()));
                "filter"
            }
            Question::Imagine { pod, nodes, templates, reply } => {
                let _ = reply.send(Ok(self.world.imagine(*pod, nodes, templates, at)));
                "filter"
            }
            Question::Prioritize { pod, nodes, reply } => {
                let uid = &pod.pod.uid;
                if !self.world.has_advice(uid) {
                    // Another replica answered the filter.
                    self.world.filter(uid, nodes.clone(), Wanted::Each, at);
                }
                let _ = reply.send(self.world.prioritize(uid, &nodes, MAX_SCORE));
                "prioritize"
            }
            Question::Preempt { pod, nodes, reply } => {
                let _ = reply.send(self.world.preempt(&pod.pod.uid, nodes, at));
                "preempt"
            }
            Question::Bind { uid, key, node, reply } => {
                self.bind_for(uid, &key, &node, reply, at);
                "decide bind"
            }
            Question::Inspect { only, reply } => {
                let _ = reply.send(self.world.inspect(only.as_deref()));
                "inspect"
            }
        };
        self.parts.metrics.took(step, began.elapsed().as_secs_f64());
        self.parts.metrics.add(&std::mem::take(&mut self.world.counts));
    }

    fn filter(&mut self, pod: &Pod, nodes: Vec<String>, wanted: Wanted, at: Time) -> Result<Advice, String> {
        let uid = &pod.uid;
        if pod.ask.is_none() {
            return Ok(Advice::of_no_device(pod, nodes));
        }
        if !self.world.knows(uid) {
            return Err(format!(
                "the API server has not told this replica of pod {} with uid {uid}; try again",
                pod.key
            ));
        }
        let mut advice = self.world.filter(uid, nodes, wanted, at);
        if wanted == Wanted::One
            && let Some(best) = self.world.best(uid)
        {
            let best = best.to_string();
            advice.only(&best, &format!("pod {uid} has already been matched to another node"));
        }
        Ok(advice)
    }

    fn bind_for(
        &mut self,
        uid: PodUid,
        key: &PodKey,
        node: &str,
        reply: oneshot::Sender<Result<(), String>>,
        at: Time,
    ) {
        let ready = self.may_place();
        let begun = if ready {
            let uid = if uid.as_str().is_empty() { self.world.find(key).unwrap_or(uid) } else { uid };
            self.world.bind_for(&uid, &NodeName::from(node), at).map(|()| uid)
        } else {
            Err(EARLY.to_owned())
        };
        match begun {
            Ok(uid) => {
                self.binders.insert(uid, reply);
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn decide(&mut self) {
        if !self.may_decide() {
            return;
        }
        let began = Instant::now();
        let most = (ROUND.as_secs_f64() / self.pace) as usize;
        self.world.decide(now(), most.clamp(FEWEST, MOST));
        let (took, counts) = (began.elapsed().as_secs_f64(), std::mem::take(&mut self.world.counts));
        if counts.attempts > 0 {
            self.pace = (0.7 * self.pace + 0.3 * took / counts.attempts as f64).max(1e-6);
            self.parts.metrics.took("decide", took);
        }
        self.parts.metrics.add(&counts);
    }

    fn dispatch(&mut self) {
        let effects = self.world.take_effects();
        let looks = self.world.take_looks();
        if !self.leading {
            return;
        }
        for effect in effects {
            match effect {
                Effect::Tell(_) | Effect::Explain(_) | Effect::Condition(_) | Effect::AcknowledgePolicy { .. } => {
                    if self.tales.len() >= TALES {
                        self.tales.pop_front();
                        self.parts.metrics.lost_event();
                    }
                    self.tales.push_back(effect);
                }
                // Room that others wait for comes before places that are kept already.
                Effect::Evict(_) => self.urgent.push_front(effect),
                _ => self.urgent.push_back(effect),
            }
        }
        while self.flying < self.parts.options.at_once {
            let Some(urgent) = self.urgent.pop_front() else { break };
            self.flying += 1;
            self.start(urgent);
        }
        for target in looks {
            let (effects, reader) = (self.parts.effects.clone(), self.parts.reader.clone());
            self.work.spawn(async move {
                let found = effects.look(&target).await.map(|pod| pod.map(|pod| Box::new(reader.read(pod))));
                Done::Look { target, found }
            });
        }
        let limit = if self.flying > 0 { TELLING_BESIDE } else { TELLING };
        while self.telling < limit {
            let Some(tale) = self.tales.pop_front() else { break };
            self.telling += 1;
            self.start(tale);
        }
    }

    fn start(&mut self, effect: Effect) {
        let effects = self.parts.effects.clone();
        self.work.spawn(async move {
            let began = Instant::now();
            let outcome = effects.carry_out(&effect).await;
            Done::Effect { effect, outcome, seconds: began.elapsed().as_secs_f64() }
        });
    }

    /// Answers the request for a bind with what came of it.
    fn tell_binder(&mut self, effect: &Effect, outcome: &Result<(), Failure>) {
        if let Effect::Bind(bind) = effect
            && let Some(reply) = self.binders.remove(&bind.target.uid)
        {
            let _ = reply.send(outcome.clone().map_err(|failure| failure.to_string()));
        }
    }

    fn done(&mut self, done: Done) {
        let at = now();
        match done {
            Done::Effect { effect, outcome, seconds } => {
                let step = match &effect {
                    Effect::Bind(_) => "bind",
                    Effect::Evict(_) => "evict",
                    Effect::Tell(_) => "event",
                    Effect::Explain(_) => "explain",
                    Effect::Annotate(_) => "annotate",
                    Effect::Condition(_) => "condition",
                    Effect::LiftGate(_) => "lift gate",
                    Effect::AcknowledgePolicy { .. } => "policy",
                };
                self.parts.metrics.took(step, seconds);
                match &effect {
                    Effect::Tell(_) | Effect::Explain(_) | Effect::Condition(_) | Effect::AcknowledgePolicy { .. } => {
                        self.telling = self.telling.saturating_sub(1);
                    }
                    _ => self.flying = self.flying.saturating_sub(1),
                }
                self.tell_binder(&effect, &outcome);
                self.world.done(&effect, outcome, at);
            }
            Done::Look { target, found } => self.world.looked_at(&target, found, at),
        }
    }
}

/// Shared by whoever runs a scheduler without an election: it leads from the start.
pub fn always_leading() -> watch::Receiver<Standing> {
    watch::Sender::new(Standing::Leading).subscribe()
}

/// What a caller of [`Scheduler::run`] needs to have watched: the channel's two ends and the request for lists.
pub fn channel() -> (mpsc::Sender<Change>, mpsc::Receiver<Change>, watch::Sender<u64>) {
    let (to, from) = mpsc::channel(16 * GULP);
    (to, from, watch::Sender::new(0))
}
