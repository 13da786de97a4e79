//! etcd, API server, controller manager and scheduler.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::network::Network;
use crate::options::{Options, Scheduler};
use crate::pki::Authority;
use crate::process::Program;
use crate::programs::Programs;

/// The running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    /// etcd.
    pub etcd: Program,
    /// kube-apiserver.
    pub api_server: Program,
    /// kube-controller-manager, if one was wanted.
    pub controller_manager: Option<Program>,
    /// kube-scheduler, if one was wanted.
    pub scheduler: Option<Program>,
    address: (IpAddr, u16),
}

/// Where to start it and with what.
pub(crate) struct Ground<'a> {
    pub(crate) folder: &'a Path,
    pub(crate) programs: &'a Programs,
    pub(crate) authority: &'a Authority,
    pub(crate) network: Option<&'a Network>,
}

impl ControlPlane {
    /// Starts etcd and the API server, which waits for etcd by itself.
    pub(crate) fn start(ground: &Ground<'_>, options: &Options) -> anyhow::Result<Self> {
        let layout = Layout::of(ground.network)?;
        let server = format!("https://{}:{}", layout.host, layout.api_server);
        let (public, private) = ground.authority.token_key()?;
        let mut plane = Self {
            etcd: layout.etcd(ground)?,
            api_server: layout.api_server(ground, options, [&public, &private])?,
            controller_manager: None,
            scheduler: None,
            address: (layout.host, layout.api_server),
        };
        write_kubeconfig(ground, &server, "admin", "admin", Some("system:masters"))?;
        if let Some(flags) = &options.controller_manager {
            plane.controller_manager = Some(controller_manager(ground, &server, &private, options, flags)?);
        }
        plane.scheduler = scheduler(ground, &server, options)?;
        plane.etcd.start()?;
        plane.api_server.start()?;
        Ok(plane)
    }

    /// Starts what needs an API server that is ready: sooner, it is refused and waits for seconds before it asks again.
    pub(crate) fn start_clients(&self) -> anyhow::Result<()> {
        [&self.controller_manager, &self.scheduler].into_iter().flatten().try_for_each(Program::start)
    }

    /// Every program of the control plane.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        [&self.etcd, &self.api_server].into_iter().chain(&self.controller_manager).chain(&self.scheduler)
    }

    /// Waits until the API server takes connections.
    pub(crate) fn wait_for_socket(&self, deadline: Instant) -> anyhow::Result<()> {
        while TcpStream::connect(self.address).is_err() {
            self.etcd.must_run()?;
            self.api_server.must_run()?;
            if Instant::now() > deadline {
                bail!(
                    "the API server does not listen; its last words:\n{}",
                    crate::process::tail(self.api_server.log(), 15)
                );
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Where each part listens: fixed ports on the cluster's own addresses, or free ports on the loopback.
struct Layout {
    host: IpAddr,
    api_server: u16,
    etcd_host: IpAddr,
    etcd_client: u16,
    etcd_peer: u16,
    services: String,
}

impl Layout {
    fn of(network: Option<&Network>) -> anyhow::Result<Self> {
        if let Some(network) = network {
            return Ok(Self {
                host: network.api_server().into(),
                api_server: 443,
                etcd_host: network.host().into(),
                etcd_client: 2379,
                etcd_peer: 2380,
                services: network.services(),
            });
        }
        let [api_server, etcd_client, etcd_peer] = free_ports()?;
        let host = Ipv4Addr::LOCALHOST.into();
        Ok(Self { host, api_server, etcd_host: host, etcd_client, etcd_peer, services: "10.0.0.0/24".into() })
    }

    fn etcd(&self, ground: &Ground<'_>) -> anyhow::Result<Program> {
        let client = format!("http://{}:{}", self.etcd_host, self.etcd_client);
        let peer = format!("http://{}:{}", self.etcd_host, self.etcd_peer);
        let argv = vec![
            path(ground.programs.path("etcd")?),
            format!("--data-dir={}", ground.folder.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // The tests crash programs, not the machine.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ];
        Ok(Program::new("etcd", ground.folder, argv))
    }

    fn api_server(&self, ground: &Ground<'_>, options: &Options, tokens: [&Path; 2]) -> anyhow::Result<Program> {
        let names = ["127.0.0.1", "10.0.0.1", "localhost", "kubernetes.default.svc", "kubernetes.default"];
        let mut names: Vec<String> = names.map(String::from).to_vec();
        names.push(self.host.to_string());
        let serving = ground.authority.sign("api-server", "kube-apiserver", None, &names)?;
        let kubelets = ground.authority.sign("api-server-client", "kube-apiserver", Some("system:masters"), &[])?;
        let [public, private] = tokens;
        let mut argv = vec![
            path(ground.programs.path("kube-apiserver")?),
            format!("--etcd-servers=http://{}:{}", self.etcd_host, self.etcd_client),
            format!("--bind-address={}", self.host),
            format!("--secure-port={}", self.api_server),
            format!("--service-cluster-ip-range={}", self.services),
            format!("--tls-cert-file={}", serving.certificate.display()),
            format!("--tls-private-key-file={}", serving.key.display()),
            format!("--client-ca-file={}", ground.authority.certificate().display()),
            format!("--service-account-key-file={}", public.display()),
            format!("--service-account-signing-key-file={}", private.display()),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--authorization-mode=Node,RBAC".into(),
            "--allow-privileged=true".into(),
            format!("--cert-dir={}", ground.folder.join("api-server").display()),
            format!("--kubelet-client-certificate={}", kubelets.certificate.display()),
            format!("--kubelet-client-key={}", kubelets.key.display()),
            "--kubelet-preferred-address-types=InternalIP".into(),
            // Webhooks that run as pods are called at their endpoints: there is no service proxy on this machine.
            "--enable-aggregator-routing=true".into(),
        ];
        let mut without = options.without_admission.clone();
        if options.controller_manager.is_none() {
            without.push("ServiceAccount".into());
        }
        if !without.is_empty() {
            argv.push(format!("--disable-admission-plugins={}", without.join(",")));
        }
        argv.extend(options.gates_flag());
        argv.extend(options.api_server.iter().cloned());
        Ok(Program::new("kube-apiserver", ground.folder, argv))
    }
}

fn controller_manager(
    ground: &Ground<'_>,
    server: &str,
    tokens: &Path,
    options: &Options,
    flags: &[String],
) -> anyhow::Result<Program> {
    let kubeconfig = write_kubeconfig(ground, server, "controller-manager", "system:kube-controller-manager", None)?;
    let mut argv = vec![
        path(ground.programs.path("kube-controller-manager")?),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--service-account-private-key-file={}", tokens.display()),
        format!("--root-ca-file={}", ground.authority.certificate().display()),
        "--use-service-account-credentials".into(),
        // Its first calls make an account for each of some forty controllers: seconds, at the default rate.
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
        "--leader-elect=false".into(),
        "--secure-port=0".into(),
    ];
    argv.extend(options.gates_flag());
    argv.extend(flags.iter().cloned());
    Ok(Program::new("kube-controller-manager", ground.folder, argv))
}

fn scheduler(ground: &Ground<'_>, server: &str, options: &Options) -> anyhow::Result<Option<Program>> {
    let given = match &options.scheduler {
        Scheduler::Absent => return Ok(None),
        Scheduler::Default => json!({}),
        Scheduler::Configured(config) => config.clone(),
    };
    let kubeconfig = write_kubeconfig(ground, server, "scheduler", "system:kube-scheduler", None)?;
    let mut config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "leaderElection": {"leaderElect": false},
    });
    merge(&mut config, &given);
    let file = ground.folder.join("scheduler.json");
    fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
    let mut argv = vec![
        path(ground.programs.path("kube-scheduler")?),
        format!("--config={}", file.display()),
        "--secure-port=0".into(),
    ];
    argv.extend(options.gates_flag());
    Ok(Some(Program::new("kube-scheduler", ground.folder, argv)))
}

/// Signs a client certificate and writes `FILE.kubeconfig`.
pub(crate) fn write_kubeconfig(
    ground: &Ground<'_>,
    server: &str,
    file: &str,
    user: &str,
    group: Option<&str>,
) -> anyhow::Result<PathBuf> {
    let pair = ground.authority.sign(file, user, group, &[])?;
    let at = ground.folder.join(format!("{file}.kubeconfig"));
    fs::write(&at, ground.authority.kubeconfig(server, &pair)?)?;
    Ok(at)
}

/// Lays `over` on `base`: objects are merged, anything else is replaced.
pub(crate) fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

/// Ports that nobody has at the moment. Another process may still take one before its user does; starting again then helps.
fn free_ports<const N: usize>() -> anyhow::Result<[u16; N]> {
    let held: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let ports: Vec<u16> = held.iter().map(|held| held.local_addr().map(|at| at.port())).collect::<Result<_, _>>()?;
    ports.try_into().ok().context("fewer ports than asked for")
}

pub(crate) fn path(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
