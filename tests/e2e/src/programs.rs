//! The programs a cluster is made of: built once from pinned Go modules, kept under the user's cache by the hash of what they are
//! built from.
//!
//! `KUBEBUILDER_ASSETS` goes first, as people who know envtest expect: a program found there is used as it is.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::image::digest;

/// A Kubernetes release that the tests can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// The one every test uses unless it says otherwise.
    #[default]
    V1_36,
    /// The oldest supported one.
    V1_34,
}

impl std::str::FromStr for Release {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        match text {
            "1.36" => Ok(Self::V1_36),
            "1.34" => Ok(Self::V1_34),
            _ => bail!("no Kubernetes {text} here: 1.36 and 1.34 are"),
        }
    }
}

/// One Go module under `tests/cluster/go` and the programs built from it.
struct Source {
    /// Folder with go.mod and go.sum.
    folder: &'static str,
    /// The module whose required version is the programs' version.
    module: &'static str,
    /// Name and Go package of each program.
    programs: &'static [(&'static str, &'static str)],
    /// Build tags.
    tags: &'static str,
}

const KUBERNETES: &[(&str, &str)] = &[
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
];

const KUBERNETES_1_36: Source =
    Source { folder: "kubernetes", module: "k8s.io/kubernetes", programs: KUBERNETES, tags: "" };
const KUBERNETES_1_34: Source = Source { folder: "kubernetes-1.34", ..KUBERNETES_1_36 };
const ETCD: Source =
    Source { folder: "etcd", module: "go.etcd.io/etcd/server/v3", programs: &[("etcd", ".")], tags: "" };
const CONTAINERD: Source = Source {
    folder: "containerd",
    module: "github.com/containerd/containerd/v2",
    programs: &[
        ("containerd", "github.com/containerd/containerd/v2/cmd/containerd"),
        ("containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"),
        ("ctr", "github.com/containerd/containerd/v2/cmd/ctr"),
    ],
    tags: "no_btrfs,no_zfs,no_devmapper",
};
const HELM: Source =
    Source { folder: "helm", module: "helm.sh/helm/v4", programs: &[("helm", "helm.sh/helm/v4/cmd/helm")], tags: "" };

/// Where each program is.
#[derive(Debug, Clone)]
pub struct Programs {
    paths: BTreeMap<&'static str, PathBuf>,
}

impl Programs {
    /// These programs of this release, built where they are not there yet.
    pub fn ready(release: Release, wanted: &[&str]) -> anyhow::Result<Self> {
        let mut paths = BTreeMap::new();
        for source in sources_of(release) {
            paths.extend(source.ready(|name| wanted.contains(&name))?);
        }
        Ok(Self { paths })
    }

    /// All programs of this release, built where they are not there yet.
    pub fn all(release: Release) -> anyhow::Result<Self> {
        let names: Vec<&str> =
            sources_of(release).iter().flat_map(|source| source.programs).map(|(name, _)| *name).collect();
        Self::ready(release, &names)
    }

    /// A program's path.
    pub fn path(&self, name: &str) -> anyhow::Result<&Path> {
        self.paths.get(name).map(PathBuf::as_path).with_context(|| format!("{name} is not a program of the cluster"))
    }

    /// The folder that holds a program, for a `PATH`.
    pub fn folder_of(&self, name: &str) -> anyhow::Result<&Path> {
        self.path(name)?.parent().with_context(|| format!("{name} has no folder"))
    }
}

/// The helm program, built where it is not there yet.
pub fn helm() -> anyhow::Result<PathBuf> {
    HELM.ready(|_| true)?.remove("helm").context("helm was not built")
}

/// Where this project keeps what is costly to make, outside the repository.
pub fn cache() -> anyhow::Result<PathBuf> {
    let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
        (Some(cache), _) if !cache.is_empty() => PathBuf::from(cache),
        (_, Some(home)) => PathBuf::from(home).join(".cache"),
        _ => bail!("neither XDG_CACHE_HOME nor HOME is set: there is no place to keep the cluster's programs"),
    };
    Ok(base.join("divvy"))
}

/// `tests/cluster` of the repository.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("cluster")
}

/// Where the programs of a cluster of this release come from.
fn sources_of(release: Release) -> [&'static Source; 3] {
    let kubernetes = match release {
        Release::V1_36 => &KUBERNETES_1_36,
        Release::V1_34 => &KUBERNETES_1_34,
    };
    [kubernetes, &ETCD, &CONTAINERD]
}

impl Source {
    fn ready(&self, wanted: impl Fn(&str) -> bool) -> anyhow::Result<BTreeMap<&'static str, PathBuf>> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let mut paths = BTreeMap::new();
        let mut missing = Vec::new();
        let kept = cache()?.join("bin").join(self.key()?);
        for (name, package) in self.programs.iter().filter(|(name, _)| wanted(name)) {
            let given = assets.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
            let path = given.unwrap_or_else(|| kept.join(name));
            if !path.is_file() {
                missing.push((*name, *package));
            }
            paths.insert(*name, path);
        }
        if !missing.is_empty() {
            self.build(&kept, &missing)?;
        }
        Ok(paths)
    }

    /// Folder, version and the hash of everything that decides what comes out.
    fn key(&self) -> anyhow::Result<String> {
        let mut all = format!("{} {} {:?}", std::env::consts::ARCH, self.tags, self.programs).into_bytes();
        let mut files: Vec<PathBuf> = fs::read_dir(self.path())
            .with_context(|| self.path().display().to_string())?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        files.sort();
        for file in files {
            all.extend(fs::read(&file)?);
        }
        let hash = digest(&all);
        Ok(format!("{}-{}-{}", self.folder, self.version()?, &hash["sha256:".len()..][..12]))
    }

    fn path(&self) -> PathBuf {
        sources().join("go").join(self.folder)
    }

    fn version(&self) -> anyhow::Result<String> {
        let module = fs::read_to_string(self.path().join("go.mod"))?;
        module
            .lines()
            .map(|line| line.trim().trim_start_matches("require "))
            .find_map(|line| line.strip_prefix(self.module)?.split_whitespace().next())
            .map(String::from)
            .with_context(|| format!("{}/go.mod does not require {}", self.folder, self.module))
    }

    fn build(&self, into: &Path, missing: &[(&str, &str)]) -> anyhow::Result<()> {
        let go = Command::new("go").arg("version").output();
        ensure!(
            go.is_ok_and(|go| go.status.success()),
            "the test cluster's programs are built from source and that needs Go 1.26 or later on the PATH (https://go.dev/dl), \
             or KUBEBUILDER_ASSETS set to a folder with {}",
            missing.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
        );
        fs::create_dir_all(into)?;
        // Two test runs that start on a fresh machine at once: the second waits for the first.
        let lock = File::create(into.join("lock"))?;
        lock.lock()?;
        for (name, package) in missing {
            let done = into.join(name);
            if done.is_file() {
                continue;
            }
            eprintln!("building {name} {} (once; kept in {})", self.version()?, into.display());
            let start = Instant::now();
            let unfinished = into.join(format!("{name}.unfinished"));
            let status = Command::new("go")
                .args(["build", "-trimpath", "-mod=readonly", "-tags", self.tags, "-ldflags", &self.ldflags()?, "-o"])
                .arg(&unfinished)
                .arg(package)
                .current_dir(self.path())
                .env("CGO_ENABLED", "0")
                .status()?;
            ensure!(status.success(), "go build of {name} failed ({status}) in {}", self.path().display());
            fs::rename(&unfinished, &done)?;
            eprintln!("built {name} in {:.0} s", start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    /// Programs built outside their own repository do not know their version; clients and kubelets check it.
    fn ldflags(&self) -> anyhow::Result<String> {
        let version = self.version()?;
        let mut flags = vec!["-s".to_owned(), "-w".to_owned()];
        let mut set = |name: &str, value: &str| flags.extend(["-X".to_owned(), format!("{name}={value}")]);
        if self.module == KUBERNETES_1_36.module {
            let package = "k8s.io/component-base/version";
            let mut parts = version.trim_start_matches('v').split('.');
            set(&format!("{package}.gitVersion"), &version);
            set(&format!("{package}.gitMajor"), parts.next().unwrap_or_default());
            set(&format!("{package}.gitMinor"), parts.next().unwrap_or_default());
            set(&format!("{package}.gitCommit"), "release");
            set(&format!("{package}.gitTreeState"), "clean");
        } else if self.module == CONTAINERD.module {
            set(&format!("{}/version.Version", self.module), &version);
        }
        Ok(flags.join(" "))
    }
}
