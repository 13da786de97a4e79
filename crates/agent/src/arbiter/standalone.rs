//! `divvy-agent arbiter`: the arbiter alone, for bare metal, tests and the demo. It makes a folder per tenant, which a program is given
//! in `DIVVY_DIR`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use divvy_shm::{ContainerConfig, DeviceConfig, GateWriter, LedgerFile};

use super::audit::{self, Audit, Whose};
use super::registry::{Identified, Registry};
use super::{Arbiter, Container, Settings};
use crate::home::uuid;
use crate::nonsense::Nonsense;

/// What `divvy-agent arbiter` needs to know.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The folder for the tenants' folders, on a tmpfs
    #[arg(long)]
    pub dir: PathBuf,
    /// Tenants with their shares in thousandths, "a=300/1000 b=700/1000" (request/limit) or "a=whole", or @FILE with the same, read
    /// again whenever it changes
    #[arg(long)]
    pub tenants: String,
    /// The cards every tenant holds, by UUID (GPU-...), comma-separated
    #[arg(long, value_delimiter = ',', required = true)]
    pub device: Vec<String>,
    /// Memory per tenant and card, in bytes; the whole of it if absent
    #[arg(long)]
    pub memory: Option<u64>,
    /// What a context of the driver's takes of that memory, in bytes; contexts come on top of it if absent
    #[arg(long, default_value_t = 0)]
    pub context: u64,
    /// End, and the keeper with it, when standard input does: when whoever started this is gone, however it went
    #[arg(long)]
    pub until_stdin_ends: bool,
    /// Start a keeper, and again if it ends
    #[arg(long)]
    pub keeper: bool,
    /// Compare what the cards say with the tenants' books, and say who goes around the library
    #[arg(long)]
    pub audit: bool,
    /// What is done about a tenant's process that goes around the library
    #[arg(long, value_enum, default_value = "report")]
    pub bypass: audit::watch::Policy,
    /// The devices
    #[command(flatten)]
    pub devices: crate::device::Settings,
    /// Print what was booked as a line of JSON so often, in milliseconds
    #[arg(long)]
    pub report: Option<u64>,
    /// Append every look and decision that changed something to this file
    #[arg(long)]
    pub record: Option<PathBuf>,
}

/// What tenants may have of each card.
type Spec = BTreeMap<String, Part>;

/// What a tenant may have of each card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Thousandths of its time: guaranteed, and at most.
    Share(u32, u32),
    /// All of it: metered, and held by nothing.
    Whole,
}

/// Runs until told to stop by SIGTERM, SIGINT, or, where asked for, the end of standard input.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
            match terminate {
                Ok(mut terminate) => {
                    tokio::select! { _ = terminate.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
                }
                Err(_) => drop(tokio::signal::ctrl_c().await),
            }
        });
        asked.store(true, Ordering::Relaxed);
    });
    if args.until_stdin_ends {
        let ended = stop.clone();
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            ended.store(true, Ordering::Relaxed);
        });
    }
    let mut spec = read(&args.tenants)?;
    let containers = spec
        .keys()
        .map(|name| Container { name: name.clone(), dir: args.dir.join(name), is_init: false })
        .collect::<Vec<_>>();
    for container in &containers {
        prepare(container, spec[&container.name], args)?;
    }
    let arbiter = Arbiter::new(Settings { record: args.record.clone(), ..Settings::default() });
    arbiter.set_containers(&containers);
    let registry =
        Registry::start(containers.iter().map(|c| (c.dir.clone(), c.dir.clone())).collect(), Nonsense::default())?;
    let mut keeper = Keeper::new(args);
    let accounts = arbiter.accounts();
    let mut auditor = Auditor::new(args, &containers, registry.identified())?;
    let (began, mut reported) = (Instant::now(), Instant::now());
    println!("ready");
    while !stop.load(Ordering::Relaxed) {
        keeper.see_to(&args.dir);
        if let Ok(changed) = read(&args.tenants) {
            apply(&mut spec, changed, args)?;
        }
        auditor.see_to(&arbiter)?;
        let due = args.report.map(Duration::from_millis);
        if due.is_some_and(|due| reported.elapsed() >= due) {
            reported += due.unwrap_or_default();
            report(began, &accounts)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(registry);
    drop(keeper);
    // Whoever would read it may be gone.
    let _ = report(began, &accounts);
    Ok(())
}

fn report(began: Instant, accounts: &super::Accounts) -> anyhow::Result<()> {
    let all = accounts.all();
    let tenants: BTreeMap<String, _> =
        all.into_iter().map(|((name, device), a)| (format!("{name} {device}"), a)).collect();
    let line = serde_json::json!({ "ms": began.elapsed().as_millis() as u64, "accounts": tenants });
    writeln!(std::io::stdout(), "{line}")?;
    Ok(())
}

/// The audit, where one is asked for. Everybody on the cards is a tenant here, or should not be there.
struct Auditor {
    audit: Audit,
    containers: Vec<PathBuf>,
    providers: Vec<Box<dyn crate::device::Provider>>,
    identified: Identified,
    policy: audit::watch::Policy,
    looked: Option<Instant>,
}

impl Auditor {
    fn new(args: &Args, containers: &[Container], identified: Identified) -> anyhow::Result<Auditor> {
        let providers = if args.audit { crate::device::open(&args.devices).0 } else { Vec::new() };
        if args.audit && providers.is_empty() {
            bail!("nothing to audit: no card answers (is the driver's management library there? --nvml names it)");
        }
        Ok(Auditor {
            audit: Audit::default(),
            containers: containers.iter().map(|c| c.dir.clone()).collect(),
            providers,
            identified,
            policy: args.bypass,
            looked: None,
        })
    }

    fn see_to(&mut self, arbiter: &Arbiter) -> io::Result<()> {
        if self.providers.is_empty() || self.looked.is_some_and(|at| at.elapsed() < audit::watch::LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let whose = |pid| self.identified.container(pid).map_or(Whose::Stranger, Whose::Container);
        let (found, said) = audit::watch::look(&mut self.audit, &self.containers, &self.providers, whose);
        arbiter.hear(&said);
        for finding in found {
            self.policy.apply(&finding, true);
            writeln!(io::stdout(), "{}", serde_json::json!({ "finding": finding, "says": finding.what.to_string() }))?;
        }
        Ok(())
    }
}

/// A keeper of our own, where one is asked for.
struct Keeper {
    wanted: bool,
    child: Option<Child>,
}

impl Keeper {
    fn new(args: &Args) -> Keeper {
        Keeper { wanted: args.keeper, child: None }
    }

    fn see_to(&mut self, dir: &Path) {
        let alive = self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !self.wanted || alive {
            return;
        }
        let program = std::env::current_exe().unwrap_or_else(|_| "divvy-agent".into());
        match Command::new(program).arg("keeper").arg("--dir").arg(dir).spawn() {
            Ok(child) => self.child = Some(child),
            Err(error) => tracing::error!(%error, "no keeper: if this process is stopped, gates may stay closed"),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read(text: &str) -> anyhow::Result<Spec> {
    let text = match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
        None => text.to_owned(),
    };
    parse(&text)
}

fn parse(text: &str) -> anyhow::Result<Spec> {
    let (mut spec, mut faults) = (Spec::new(), Vec::new());
    for word in text.split_whitespace() {
        let part = word.split_once('=').filter(|(name, _)| !name.is_empty()).and_then(|(name, shares)| {
            let (request, limit) = shares.split_once('/').unwrap_or((shares, "1000"));
            let share = || Some(Part::Share(request.parse().ok()?, limit.parse().ok()?));
            Some((name, if shares == "whole" { Part::Whole } else { share()? }))
        });
        match part.filter(|(_, part)| part.is_sound()) {
            Some((name, part)) => {
                if spec.insert(name.to_owned(), part).is_some() {
                    faults.push(format!("{name} is named twice"));
                }
            }
            None => {
                faults.push(format!("{word:?} is not name=request/limit with request <= limit <= 1000, nor name=whole"))
            }
        }
    }
    if spec.is_empty() && faults.is_empty() {
        faults.push("no tenant is named".into());
    }
    if faults.is_empty() { Ok(spec) } else { bail!("{}", faults.join("; ")) }
}

impl Part {
    fn is_sound(&self) -> bool {
        !matches!(self, Part::Share(request, limit) if request > limit || *limit > 1000)
    }
}

fn config(name: &str, part: Part, args: &Args) -> ContainerConfig {
    let (request, limit) = match part {
        Part::Share(request, limit) => (request, limit),
        Part::Whole => (1000, 1000),
    };
    let device = |(i, id): (usize, &String)| DeviceConfig {
        id: id.clone(),
        uuid: uuid(id),
        node_index: i as u32,
        memory_request: args.memory.unwrap_or(0),
        memory_limit: args.memory.unwrap_or(u64::MAX),
        share_request: request,
        share_limit: limit,
        context_bytes: args.context,
        gated: part != Part::Whole,
        whole_card: part == Part::Whole,
        ..DeviceConfig::default()
    };
    let devices = args.device.iter().enumerate().map(device).collect();
    ContainerConfig { name: name.to_owned(), gate_writable: false, devices }
}

fn prepare(container: &Container, part: Part, args: &Args) -> anyhow::Result<()> {
    let dir = &container.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let config = config(&container.name, part, args);
    match GateWriter::open(dir) {
        Ok(gate) => gate.set_config(&config)?,
        Err(_) => drop(GateWriter::create(dir, &config)?),
    }
    if LedgerFile::open_guarded(dir).is_err() {
        drop(LedgerFile::create(dir, config.devices.len())?);
    }
    Ok(())
}

/// Shares that changed are written into the gate files, where the arbiter finds them.
fn apply(spec: &mut Spec, changed: Spec, args: &Args) -> anyhow::Result<()> {
    for (name, shares) in changed {
        if spec.get(&name).is_some_and(|old| *old != shares) {
            GateWriter::open(&args.dir.join(&name))?.set_config(&config(&name, shares, args))?;
            spec.insert(name, shares);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_are_read_and_all_mistakes_named() {
        let spec = parse("a=300/1000 b=700\n c=0/250 d=whole").unwrap();
        assert_eq!(spec["a"], Part::Share(300, 1000));
        assert_eq!(spec["b"], Part::Share(700, 1000));
        assert_eq!(spec["c"], Part::Share(0, 250));
        assert_eq!(spec["d"], Part::Whole);
        let said = parse("a=300/200 b a=1/1 a=2/2").unwrap_err().to_string();
        for part in ["\"a=300/200\" is not", "\"b\" is not", "a is named twice"] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(parse("").unwrap_err().to_string(), "no tenant is named");
    }
}
