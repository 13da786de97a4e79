//! `divvy sim`: what would another policy have done?

mod files;

use std::path::PathBuf;
use std::sync::Mutex;

use anyhow::{Context, bail};
use clap::{Subcommand, ValueHint};
use divvy_core::policy::Placement;
use divvy_core::time::Time;
use divvy_core::{Policy, schedule};
use divvy_sim::churn::{Churn, refused};
use divvy_sim::compare::{self, Cell, Comparison};
use divvy_sim::journal::{self, Line, Recorder};
use divvy_sim::replay::{Contestant, replay};
use divvy_sim::workload::{Workload, workload};
use divvy_sim::{cluster, csv, plot, trace};
use indicatif::{ProgressBar, ProgressStyle};

use files::{Output, read};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replay one list of the public trace under one policy
    Run(One),
    /// All policies side by side, over lists and seeds
    Compare(Compare),
    /// Place the pods of a CSV file on the nodes of another, for a referee to judge
    Place(Place),
    /// Let pods come and go, and count what is refused
    Churn(ChurnArgs),
    /// Write down everything that happens in one replay, and every decision
    Record(One),
    /// Decide a recorded journal again, and say where a decision differs
    Replay(Replay),
    /// The plan for a recorded snapshot
    Plan(Plan),
}

#[derive(clap::Args)]
struct One {
    /// Which pod list of the trace
    #[arg(long, default_value = "default")]
    list: String,
    /// The policy
    #[arg(long, default_value = "frag")]
    policy: String,
    /// The seed of arrivals and ties
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write: placements as CSV, or the journal
    #[arg(long, value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,
    /// Where to draw how much was allocated as demand grew (SVG)
    #[arg(long, value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Compare {
    /// Which lists, by comma; all of them by default
    #[arg(long, value_delimiter = ',')]
    lists: Vec<String>,
    /// Which policies, by comma; all of them by default
    #[arg(long, value_delimiter = ',')]
    policies: Vec<String>,
    /// How many seeds
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// How many replays at once; as many as there are cores by default
    #[arg(long)]
    threads: Option<usize>,
    /// Where to write every single figure (CSV)
    #[arg(long, value_hint = ValueHint::FilePath)]
    csv: Option<PathBuf>,
    /// Where to draw the means (SVG)
    #[arg(long, value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
}

#[derive(clap::Args)]
struct Place {
    /// Nodes: sn,cpu_milli,memory_mib,gpu,model; ties go to the earlier line
    #[arg(long, value_hint = ValueHint::FilePath)]
    nodes: PathBuf,
    /// Pods as they come: name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec][,qos][,event]
    #[arg(long, value_hint = ValueHint::FilePath)]
    pods: PathBuf,
    /// The mix of requests to expect, in the format of --pods; without it the mix is learnt as pods come
    #[arg(long, value_hint = ValueHint::FilePath)]
    target: Option<PathBuf>,
    /// The policy
    #[arg(long, default_value = "frag")]
    policy: String,
    /// Where to write pod,node,gpus
    #[arg(long, value_hint = ValueHint::FilePath)]
    out: PathBuf,
}

#[derive(clap::Args)]
struct ChurnArgs {
    /// Which lists, by comma
    #[arg(long, value_delimiter = ',', default_value = "default")]
    lists: Vec<String>,
    /// The list that takes over after three mean lifetimes
    #[arg(long)]
    then: Option<String>,
    /// Which policies, by comma
    #[arg(long, value_delimiter = ',', default_value = "frag,fgd,best-fit")]
    policies: Vec<String>,
    /// Offered loads, by comma
    #[arg(long, value_delimiter = ',', default_value = "0.95,1.0,1.1")]
    loads: Vec<f64>,
    /// How many seeds
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first_seed: u64,
    /// How many runs at once
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(clap::Args)]
struct Replay {
    /// A journal that `divvy sim record` wrote
    #[arg(value_hint = ValueHint::FilePath)]
    journal: PathBuf,
}

#[derive(clap::Args)]
struct Plan {
    /// A recorded snapshot (JSON)
    #[arg(value_hint = ValueHint::FilePath)]
    snapshot: PathBuf,
    /// Place everything by this policy, whatever its dialect
    #[arg(long)]
    policy: Option<String>,
    /// The time at which it is decided, in milliseconds since the epoch
    #[arg(long, default_value_t = 0)]
    at: u64,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Run(args) => one(&args),
        Command::Compare(args) => compare(&args),
        Command::Place(args) => place(&args),
        Command::Churn(args) => churn(&args),
        Command::Record(args) => record(&args),
        Command::Replay(args) => again(&args),
        Command::Plan(args) => plan(&args),
    }
}

/// The contestant that an option names.
fn contestant(option: &str, name: &str) -> anyhow::Result<Contestant> {
    Contestant::named(name).map_err(|mistake| anyhow::anyhow!("{option}: {mistake}"))
}

/// The list that an option names.
fn list(option: &str, name: &str) -> anyhow::Result<Vec<divvy_sim::rows::Request>> {
    trace::list(name).map_err(|mistake| anyhow::anyhow!("{option}: {mistake}"))
}

fn placement(name: &str) -> anyhow::Result<Placement> {
    Placement::named(name).map_err(|mistake| anyhow::anyhow!("--policy: {mistake}"))
}

/// So many seeds, from the first.
fn seeds(first: u64, count: u64) -> anyhow::Result<Vec<u64>> {
    if count == 0 {
        bail!("--seeds: at least one seed is needed");
    }
    let Some(last) = first.checked_add(count - 1) else { bail!("--first-seed: there are no {count} seeds from there") };
    Ok((first..=last).collect())
}

/// A bar on a terminal; nothing where nobody looks.
fn bar(steps: usize, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar:.cyan/black.bright} {pos}/{len} {elapsed}, {eta} to go");
    let bar = ProgressBar::new(steps as u64).with_message(what.to_owned());
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn table(header: &[String], rows: &[Vec<String>]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(comfy_table::CellAlignment::Right);
    }
    table
}

fn one(args: &One) -> anyhow::Result<()> {
    let (who, target) = (contestant("--policy", &args.policy)?, list("--list", &args.list)?);
    let work = workload(&trace::nodes(), &target, args.seed);
    let bar = bar(work.pods.len(), &args.policy);
    let outcome = replay(&who, &work, &target, || bar.inc(1));
    bar.finish_and_clear();
    let placed = outcome.placed.iter().flatten().count();
    let header = ["list", "policy", "seed", "pods", "placed", "unallocated at 100 %", "at 130 %"].map(str::to_owned);
    let row = vec![
        args.list.clone(),
        args.policy.clone(),
        args.seed.to_string(),
        work.pods.len().to_string(),
        placed.to_string(),
        format!("{:.2} %", outcome.unallocated),
        format!("{:.2} %", outcome.unallocated_at_130),
    ];
    let mut output = Output::default();
    if let Some(path) = &args.out {
        output.add(path, csv::placements(&work.pods, &outcome.placed));
    }
    if let Some(path) = &args.plot {
        let (list, contestant, seed) = (args.list.clone(), args.policy.clone(), args.seed);
        let (at_100, at_130) = (outcome.unallocated, outcome.unallocated_at_130);
        output.add(path, plot::svg(&[Cell { list, contestant, seed, at_100, at_130, curve: outcome.curve }]));
    }
    output.write()?;
    println!("{}", table(&header, &[row]));
    Ok(())
}

fn names(given: &[String], all: impl Iterator<Item = String>) -> Vec<String> {
    if given.is_empty() { all.collect() } else { given.to_vec() }
}

fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

fn compare(args: &Compare) -> anyhow::Result<()> {
    let lists = names(&args.lists, trace::LISTS.iter().map(|name| (*name).to_owned()));
    let policies = names(&args.policies, Contestant::all().iter().map(ToString::to_string));
    let comparison = Comparison {
        nodes: trace::nodes(),
        lists: lists.iter().map(|name| Ok((name.clone(), list("--lists", name)?))).collect::<anyhow::Result<_>>()?,
        contestants: policies.iter().map(|name| contestant("--policies", name)).collect::<anyhow::Result<_>>()?,
        seeds: seeds(args.first_seed, args.seeds)?,
    };
    let bar = bar(comparison.replays(), "replays");
    let cells = comparison.run(threads(args.threads), |_| bar.inc(1));
    bar.finish_and_clear();
    let mut output = Output::default();
    if let Some(path) = &args.csv {
        output.add(path, compare::csv(&cells));
    }
    if let Some(path) = &args.plot {
        output.add(path, plot::svg(&cells));
    }
    output.write()?;
    let means = compare::means(&cells);
    if args.markdown {
        print!("{}", means.markdown());
    } else {
        let header: Vec<String> = [String::from("list")].into_iter().chain(means.contestants.iter().cloned()).collect();
        let row = |(list, row): &(String, Vec<f64>)| {
            [list.clone()].into_iter().chain(row.iter().map(|x| format!("{x:.2}"))).collect()
        };
        println!("{}", table(&header, &means.rows.iter().map(row).collect::<Vec<Vec<String>>>()));
    }
    println!("GPU capacity not allocated when demand reaches capacity, in percent, mean of {} seeds", args.seeds);
    for ours in ["frag", "frag-told"].iter().filter(|who| policies.iter().any(|p| p == *who)) {
        for rival in policies.iter().filter(|p| !p.starts_with("frag")) {
            let not = compare::not_better(&cells, ours, rival);
            if !not.is_empty() {
                let where_: Vec<String> = not.iter().map(|(list, seed)| format!("{list}/{seed}")).collect();
                println!("{ours} is not better than {rival} on {}", where_.join(", "));
            }
        }
    }
    Ok(())
}

fn place(args: &Place) -> anyhow::Result<()> {
    let who = contestant("--policy", &args.policy)?;
    let nodes = files::parse(&args.nodes, csv::nodes)?;
    let pods = files::parse(&args.pods, csv::pods)?;
    let target = args.target.as_ref().map(|path| files::parse(path, csv::pods)).transpose()?.unwrap_or_default();
    let target: Vec<_> = target.into_iter().filter(|pod| !pod.leaves).map(|pod| pod.request).collect();
    // A list without pods tells nothing: then the mix is learnt.
    let who = match who {
        Contestant::Ours(Placement::Frag) if !target.is_empty() => Contestant::Told,
        Contestant::Told if target.is_empty() => {
            bail!("--policy: frag-told is told a mix; name pods to expect with --target")
        }
        who => who,
    };
    let work = Workload { nodes, pods };
    let bar = bar(work.pods.len(), "pods");
    let outcome = replay(&who, &work, &target, || bar.inc(1));
    bar.finish_and_clear();
    let mut output = Output::default();
    output.add(&args.out, csv::placements(&work.pods, &outcome.placed));
    output.write()
}

fn churn(args: &ChurnArgs) -> anyhow::Result<()> {
    let nodes = trace::nodes();
    let then = args.then.as_deref().map(|name| list("--then", name)).transpose()?;
    let seeds = seeds(args.first_seed, args.seeds)?;
    let lists: Vec<_> =
        args.lists.iter().map(|name| Ok((name, list("--lists", name)?))).collect::<anyhow::Result<_>>()?;
    let who: Vec<Contestant> =
        args.policies.iter().map(|name| contestant("--policies", name)).collect::<anyhow::Result<_>>()?;
    if let Some(load) = args.loads.iter().find(|load| !(0.01..=10.0).contains(*load)) {
        bail!("--loads: {load} is no offered load; 1.0 offers as much as there is");
    }
    let mut runs = Vec::new();
    for (name, list) in &lists {
        for load in &args.loads {
            who.iter().for_each(|who| seeds.iter().for_each(|seed| runs.push((*name, list, *load, who, *seed))));
        }
    }
    let bar = bar(runs.len(), "runs");
    let next = std::sync::atomic::AtomicUsize::new(0);
    let found = Mutex::new(vec![0.0; runs.len()]);
    let work = || {
        while let Some((_, list, load, who, seed)) = runs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            let at = runs.iter().position(|r| std::ptr::eq(r.1, *list) && r.2 == *load && r.3 == *who && r.4 == *seed);
            let percent = refused(who, &Churn { nodes: &nodes, list, then: then.as_deref(), load: *load, seed: *seed });
            if let (Ok(mut found), Some(at)) = (found.lock(), at) {
                found[at] = percent;
            }
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| (0..threads(args.threads)).for_each(|_| drop(scope.spawn(work))));
    bar.finish_and_clear();
    let found = found.into_inner().unwrap_or_default();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let per_row = who.len() * seeds.len();
    for (chunk, runs) in found.chunks(per_row).zip(runs.chunks(per_row)) {
        let mut row = vec![runs[0].0.clone(), runs[0].2.to_string()];
        row.extend(chunk.chunks(seeds.len()).map(|seeds| {
            let each: Vec<String> = seeds.iter().map(|x| format!("{x:.2}")).collect();
            format!("{:.2} ({})", seeds.iter().sum::<f64>() / seeds.len() as f64, each.join(" "))
        }));
        rows.push(row);
    }
    let header: Vec<String> =
        ["list".to_owned(), "load".to_owned()].into_iter().chain(args.policies.iter().cloned()).collect();
    println!("{}", table(&header, &rows));
    println!("GPU demand refused, in percent: mean (each seed)");
    Ok(())
}

fn record(args: &One) -> anyhow::Result<()> {
    let Some(out) = &args.out else { bail!("--out: say where the journal is to be written") };
    let (placement, target) = (placement(&args.policy)?, list("--list", &args.list)?);
    let work = workload(&trace::nodes(), &target, args.seed);
    let mut pods = cluster::Pods::on(&work.nodes);
    let mut recorder = Recorder::new(cluster::snapshot(&work.nodes), Policy::only(placement));
    let bar = bar(work.pods.len(), "pods");
    for (i, pod) in work.pods.iter().enumerate() {
        recorder.tell(Line::Pod(Box::new(pods.pod(&pod.name, &pod.request))))?;
        let plan = recorder.decide(Time::seconds(i as u64));
        // A pod that fits nowhere is lost, as in the trace's rules.
        plan.waits.into_iter().try_for_each(|wait| recorder.tell(Line::PodGone(wait.pod)))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let mut output = Output::default();
    output.add(out, recorder.finish());
    output.write()
}

fn again(args: &Replay) -> anyhow::Result<()> {
    let found = journal::replay(&read(&args.journal)?)
        .map_err(|error| anyhow::anyhow!("{}: {error}", args.journal.display()))?;
    println!("{} decisions made again, {} pods bound: all as recorded", found.decisions, found.binds);
    Ok(())
}

fn plan(args: &Plan) -> anyhow::Result<()> {
    let policy = match &args.policy {
        Some(name) => Policy::only(placement(name)?),
        None => Policy::default(),
    };
    let record: divvy_core::snapshot::Record =
        serde_json::from_str(&read(&args.snapshot)?).with_context(|| args.snapshot.display().to_string())?;
    let snapshot = record.restore().with_context(|| format!("{} is damaged", args.snapshot.display()))?;
    let plan = schedule(&snapshot, &policy, Time(args.at));
    println!("{}", serde_json::to_string_pretty(&plan)?);
    Ok(())
}
