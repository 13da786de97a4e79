//! `cargo xtask cluster`: a real Kubernetes on this machine, for tests and for trying things out.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use divvy_e2e::programs::{self, Programs};
use divvy_e2e::{Cluster, NodeOptions, Options, Release, Scheduler, folder};

#[derive(clap::Subcommand)]
pub(crate) enum Chore {
    /// Build the programs (once; they are kept under the user's cache directory)
    Build {
        /// Which Kubernetes: 1.36 or 1.34
        #[arg(long, default_value = "1.36")]
        kubernetes: Release,
        /// Build helm too
        #[arg(long)]
        helm: bool,
    },
    /// Start a cluster in the background
    Up(Up),
    /// End a cluster and remove all of it
    Down {
        /// Its name
        #[arg(default_value = "dev")]
        name: String,
    },
    /// Print the environment for a shell: eval "$(cargo xtask cluster env)"
    Env {
        /// The cluster's name
        #[arg(default_value = "dev")]
        name: String,
    },
    /// The clusters that run, those of tests included
    List,
    /// Start a cluster and keep it until this process is ended; what `up` does in the background
    #[command(hide = true)]
    Hold(Up),
}

#[derive(clap::Args)]
pub(crate) struct Up {
    /// A name of your choice
    #[arg(default_value = "dev")]
    name: String,
    /// How many real nodes (kubelet and containerd; needs root). 0: the control plane alone
    #[arg(long, default_value_t = 1)]
    nodes: usize,
    /// Which Kubernetes: 1.36 or 1.34
    #[arg(long, default_value = "1.36")]
    kubernetes: Release,
    /// A feature gate, as NAME=true
    #[arg(long = "feature-gate", value_name = "NAME=BOOL", value_parser = feature_gate)]
    feature_gates: Vec<(String, bool)>,
    /// A flag of the API server, as --api-server=--audit-log-path=...
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    api_server: Vec<String>,
    /// An admission plugin to switch off
    #[arg(long, value_name = "PLUGIN")]
    without_admission: Vec<String>,
    /// A KubeSchedulerConfiguration in JSON
    #[arg(long, value_name = "FILE", conflicts_with = "without_scheduler")]
    scheduler_config: Option<PathBuf>,
    /// Run no kube-scheduler
    #[arg(long)]
    without_scheduler: bool,
    /// Run no kube-controller-manager
    #[arg(long)]
    without_controller_manager: bool,
}

pub(crate) fn run(chore: &Chore) -> anyhow::Result<()> {
    match chore {
        Chore::Build { kubernetes, helm } => {
            Programs::all(*kubernetes)?;
            if *helm {
                println!("helm: {}", programs::helm()?.display());
            }
            println!("the cluster's programs are ready under {}", programs::cache()?.join("bin").display());
            Ok(())
        }
        Chore::Up(up) => up.in_background(),
        Chore::Hold(up) => up.hold(),
        Chore::Down { name } => down(name),
        Chore::Env { name } => env(name),
        Chore::List => {
            folder::names()?.iter().for_each(|name| println!("{name}"));
            Ok(())
        }
    }
}

impl Up {
    fn options(&self) -> anyhow::Result<Options> {
        let mut options =
            if self.nodes == 0 { Options::control_plane() } else { Options::with_node() }.named(&self.name);
        options.kubernetes = self.kubernetes;
        options.nodes = (0..self.nodes).map(|index| NodeOptions::new(&format!("node-{index}"))).collect();
        options.feature_gates.extend(self.feature_gates.iter().cloned());
        options.api_server.clone_from(&self.api_server);
        options.without_admission.extend(self.without_admission.iter().cloned());
        if let Some(file) = &self.scheduler_config {
            let text = fs::read(file).with_context(|| file.display().to_string())?;
            options.scheduler =
                Scheduler::Configured(serde_json::from_slice(&text).context("a KubeSchedulerConfiguration in JSON")?);
        } else if self.without_scheduler {
            options.scheduler = Scheduler::Absent;
        }
        if self.without_controller_manager {
            options.controller_manager = None;
        }
        Ok(options)
    }

    fn hold(&self) -> anyhow::Result<()> {
        let cluster = Cluster::start(self.options()?)?;
        fs::write(owner(cluster.folder()), std::process::id().to_string())?;
        println!("{READY}");
        loop {
            std::thread::park();
        }
    }

    fn in_background(&self) -> anyhow::Result<()> {
        // What takes minutes is done where it can be seen and interrupted.
        let options = self.options()?;
        Programs::ready(options.kubernetes, &options.programs())?;
        let start = Instant::now();
        let mut words: Vec<_> = std::env::args_os().skip(1).collect();
        let up = words.iter().position(|word| word == "up").context("started as another chore")?;
        words[up] = "hold".into();
        // Not this terminal's output: whoever reads that would wait for the cluster's end.
        let log = programs::cache()?.join(format!("{}.log", self.name));
        fs::create_dir_all(programs::cache()?)?;
        let mut holder = Command::new(std::env::current_exe()?)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            // Not of this terminal's foreground group: an interrupt here must not end it later.
            .process_group(0)
            .spawn()?;
        let said = holder.stdout.take().context("no standard output")?;
        let ready = BufReader::new(said).lines().map_while(Result::ok).any(|line| line == READY);
        ensure!(ready, "the cluster did not start: {}", fs::read_to_string(&log)?);
        fs::remove_file(&log)?;
        println!("cluster {} is ready after {:.1} s", self.name, start.elapsed().as_secs_f64());
        println!("use it:  eval \"$(cargo xtask cluster env {})\"", self.name);
        println!("end it:  cargo xtask cluster down {}", self.name);
        Ok(())
    }
}

/// What a holder says when its cluster can be used.
const READY: &str = "ready";

fn owner(cluster: &Path) -> PathBuf {
    cluster.join("owner.pid")
}

fn down(name: &str) -> anyhow::Result<()> {
    let cluster = running(name)?;
    let pid = fs::read_to_string(owner(&cluster)).with_context(|| format!("{name} belongs to a test that runs"))?;
    crate::run::run(Command::new("kill").arg(pid.trim()))?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while cluster.exists() {
        if Instant::now() > deadline {
            bail!("{name} has ended, but its folder is still there: {}", cluster.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn env(name: &str) -> anyhow::Result<()> {
    let cluster = running(name)?;
    println!("export KUBECONFIG={}", cluster.join("admin.kubeconfig").display());
    println!("export PATH={}:$PATH", cluster.join("bin").display());
    Ok(())
}

fn running(name: &str) -> anyhow::Result<PathBuf> {
    let names = folder::names()?;
    ensure!(
        names.iter().any(|running| running == name),
        "no cluster called {name} runs; {}",
        if names.is_empty() { "none does".into() } else { format!("these do: {}", names.join(", ")) }
    );
    folder::of(name)
}

fn feature_gate(text: &str) -> anyhow::Result<(String, bool)> {
    let (name, on) = text.split_once('=').context("a feature gate is NAME=true or NAME=false")?;
    Ok((name.into(), on.parse().context("a feature gate is NAME=true or NAME=false")?))
}
