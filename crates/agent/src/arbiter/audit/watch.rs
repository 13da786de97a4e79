//! The audit at work: looks again and again, and tells.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use divvy_limiter::{Ns, Period};
use divvy_service::Stop;
use divvy_shm::clock::monotonic_ns;
use rustix::process::{Pid, Signal, kill_process};

use super::{Audit, Finding, What, Whose};
use crate::arbiter::registry::{Identify, Talks};
use crate::device::{Provider, Usage};
use crate::events::Events;
use crate::hold::Hold;
use crate::node::Node;

/// Time between two looks. Something has to be seen twice, so it is told within two of them.
pub const LOOK: Duration = Duration::from_millis(700);
/// Between two searches for containers where nothing is known to have changed.
const SEARCH: Duration = Duration::from_secs(5);

/// What is done about a process that goes around the library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// It is told.
    #[default]
    Report,
    /// It is told, and the process killed.
    Kill,
}

impl Policy {
    /// Does what is to be done about a finding. What is left out of the log is done all the same.
    pub fn apply(self, finding: &Finding, log: bool) {
        if log {
            tracing::warn!(device = %finding.device, container = ?finding.container, "{}", finding.what);
        }
        let (What::Unmanaged { pid } | What::NotGranted { pid }) = finding.what else { return };
        let of_ours = finding.container.is_some();
        if self == Policy::Kill
            && of_ours
            && let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        {
            let killed = kill_process(pid, Signal::KILL);
            if log {
                tracing::warn!(pid = pid.as_raw_nonzero(), ?killed, "killed, as the policy says");
            }
        }
    }
}

/// What the cards of all vendors say. One that cannot answer is left out.
fn usage(providers: &[Box<dyn Provider>]) -> Vec<Usage> {
    let answers = providers.iter().map(|p| p.usage());
    let told = answers.map(|a| a.inspect_err(|trouble| tracing::debug!(%trouble, "cannot see who uses devices")));
    told.flat_map(Result::unwrap_or_default).collect()
}

/// Looks once: what is new, and what devices say about themselves that the arbiter may believe.
pub fn look(
    audit: &mut Audit,
    containers: &[PathBuf],
    providers: &[Box<dyn Provider>],
    whose: impl Fn(u32) -> Whose,
) -> (Vec<Finding>, BTreeMap<String, Vec<Period>>) {
    let mut said = Vec::new();
    let ask = || {
        said = usage(providers);
        said.clone()
    };
    let found = audit.look(containers, ask, whose);
    (found, periods(audit, &said))
}

/// What devices with nobody unknown on them say about themselves, in the arbiter's time.
fn periods(audit: &Audit, usage: &[Usage]) -> BTreeMap<String, Vec<Period>> {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let began = wall.saturating_sub(Duration::from_nanos(monotonic_ns()));
    let moment = |end: u64| {
        let since = Duration::from_micros(end).saturating_sub(began);
        Ns::try_from(since.as_nanos()).unwrap_or(0)
    };
    let known = usage.iter().filter(|card| audit.knows_all_on(&card.device));
    known
        .map(|card| {
            let periods = card.periods.windows(2).map(|pair| {
                let (begin, end) = (moment(pair[0].end), moment(pair[1].end));
                Period { begin, end, worked: end.saturating_sub(begin) / 1000 * u64::from(pair[1].busy.min(1000)) }
            });
            (card.device.to_string(), periods.collect())
        })
        .collect()
}

/// Audits a node's containers until told to stop; findings are events on their pods. What devices say about how busy they were goes to
/// the arbiter.
pub async fn run(
    node: Arc<Node>,
    hold: Arc<Hold>,
    identify: Identify,
    events: Events,
    policy: Policy,
    stop: Stop,
) -> anyhow::Result<()> {
    let (known, mut said) = (hold.identified(), Talks::default());
    let mut tools = (Audit::default(), identify, Vec::new());
    let mut changes = node.changes();
    let mut searched: Option<Instant> = None;
    loop {
        let search = searched.is_none_or(|at| at.elapsed() >= SEARCH) || changes.has_changed().unwrap_or(true);
        if search {
            changes.mark_unchanged();
            searched = Some(Instant::now());
        }
        let (looking, meters, identified) = (node.clone(), hold.clone(), known.clone());
        let (back, found) = tokio::task::spawn_blocking(move || {
            let (mut audit, identify, mut places) = tools;
            if search {
                places = looking.places();
            }
            let containers: Vec<PathBuf> = places.iter().map(|place| place.dir.clone()).collect();
            // Who is in no container of ours is counted where devices are looked at.
            let whose = |pid| {
                let container = identify(pid).or_else(|| identified.container(pid));
                container.map_or(Whose::Elsewhere, Whose::Container)
            };
            let (found, said) = look(&mut audit, &containers, &looking.providers, whose);
            meters.hear(&said);
            ((audit, identify, places), found)
        })
        .await?;
        tools = back;
        said.keep_containers(&tools.2.iter().map(|place| &place.dir).collect());
        for finding in &found {
            let container = finding.container.as_deref().unwrap_or(Path::new(""));
            let told = said.event(container, Instant::now());
            policy.apply(finding, told.is_some());
            let Some(left_out) = told else { continue };
            if left_out > 0 {
                tracing::warn!(container = %container.display(), left_out, "more findings than are told");
            }
            let place = tools.2.iter().find(|place| place.dir == container);
            if let Some(pod) = place.and_then(|place| node.pods.get(&place.pod)) {
                events.warn_pod(&pod, "GrantExceeded", &format!("{}: {}", finding.device, finding.what));
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.requested() => return Ok(()),
        }
    }
}
