//! Container images made by hand: files in, layer and manifest out. No builder, no daemon.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::packages;

/// What an image will contain. Paths are absolute; the folders above a file are made.
#[derive(Debug, Clone, Default)]
pub struct Image {
    entries: BTreeMap<String, Entry>,
    env: Vec<String>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    user: String,
}

#[derive(Debug, Clone)]
enum Entry {
    Folder { mode: u32 },
    Host { path: PathBuf },
    Bytes { bytes: Vec<u8>, mode: u32 },
    Link { to: String },
}

/// An image as a registry serves it.
#[derive(Debug, Clone)]
pub struct Packed {
    /// The manifest, which names the two blobs by digest.
    pub manifest: Vec<u8>,
    /// The configuration.
    pub config: Vec<u8>,
    /// The one layer, an uncompressed tar.
    pub layer: Vec<u8>,
}

/// The media type of [`Packed::manifest`].
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

impl Image {
    /// An image with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Debian's static busybox with all its names in `/bin`; runs a shell that sleeps.
    pub fn busybox() -> anyhow::Result<Self> {
        packages::install_missing(&[packages::BUSYBOX])?;
        let busybox = Path::new(packages::BUSYBOX.0);
        let names = Command::new(busybox).arg("--list").output().context("could not list busybox's programs")?;
        let mut image = Self::new().file("/bin/busybox", busybox).folder("/tmp", 0o1777).folder("/etc", 0o755);
        for name in String::from_utf8_lossy(&names.stdout).lines().filter(|name| *name != "busybox") {
            image = image.link(&format!("/bin/{name}"), "busybox");
        }
        Ok(image.env("PATH", "/bin").command(["/bin/sh", "-c", "sleep 3600"]))
    }

    /// A file of this machine, with its permissions.
    pub fn file(mut self, at: &str, from: impl Into<PathBuf>) -> Self {
        self.entries.insert(at.into(), Entry::Host { path: from.into() });
        self
    }

    /// A file with these bytes.
    pub fn bytes(mut self, at: &str, bytes: impl Into<Vec<u8>>, mode: u32) -> Self {
        self.entries.insert(at.into(), Entry::Bytes { bytes: bytes.into(), mode });
        self
    }

    /// A symbolic link.
    pub fn link(mut self, at: &str, to: &str) -> Self {
        self.entries.insert(at.into(), Entry::Link { to: to.into() });
        self
    }

    /// A folder.
    pub fn folder(mut self, at: &str, mode: u32) -> Self {
        self.entries.insert(at.into(), Entry::Folder { mode });
        self
    }

    /// Everything below a folder of this machine, at `at`.
    pub fn tree(mut self, at: &str, from: &Path) -> anyhow::Result<Self> {
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let at = format!("{}/{}", at.trim_end_matches('/'), entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            self = if kind.is_dir() {
                let mode = entry.metadata()?.permissions().mode();
                self.folder(&at, mode & 0o7777).tree(&at, &entry.path())?
            } else if kind.is_symlink() {
                let to = fs::read_link(entry.path())?;
                self.link(&at, &to.to_string_lossy())
            } else {
                self.file(&at, entry.path())
            };
        }
        Ok(self)
    }

    /// A program of this machine with the shared libraries that it and its loader need, each at the path it has here.
    pub fn program(mut self, at: &str, from: &Path) -> anyhow::Result<Self> {
        for library in shared_libraries(from)? {
            self = self.file(&library.to_string_lossy(), &library);
        }
        Ok(self.file(at, from))
    }

    /// An environment variable baked into the image.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|set| !set.starts_with(&format!("{name}=")));
        self.env.push(format!("{name}={value}"));
        self
    }

    /// The entry point. As in a Dockerfile it forgets the command there was; give one afterwards for arguments.
    pub fn entrypoint<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.entrypoint = words.map(String::from).to_vec();
        self.command.clear();
        self
    }

    /// The command, or the entry point's arguments.
    pub fn command<const N: usize>(mut self, words: [&str; N]) -> Self {
        self.command = words.map(String::from).to_vec();
        self
    }

    /// The user it runs as.
    pub fn user(mut self, user: &str) -> Self {
        self.user = user.into();
        self
    }

    /// Reads the files and makes the blobs.
    pub fn pack(&self) -> anyhow::Result<Packed> {
        let layer = self.layer()?;
        let config = serde_json::to_vec(&json!({
            "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
            "os": "linux",
            "config": {"Env": self.env, "Entrypoint": words(&self.entrypoint), "Cmd": words(&self.command), "User": self.user},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": blob("application/vnd.oci.image.config.v1+json", &config),
            "layers": [blob("application/vnd.oci.image.layer.v1.tar", &layer)],
        }))?;
        Ok(Packed { manifest, config, layer })
    }

    fn layer(&self) -> anyhow::Result<Vec<u8>> {
        let mut tar = Builder::new(Vec::new());
        let mut made = std::collections::BTreeSet::new();
        for (at, entry) in &self.entries {
            ensure!(at.starts_with('/') && !at.contains("/../"), "{at}: a path in an image is absolute");
            let at = at.trim_matches('/');
            for (end, _) in at.match_indices('/') {
                let parent = format!("/{}", &at[..end]);
                if !self.entries.contains_key(&parent) && made.insert(parent.clone()) {
                    append(&mut tar, &parent[1..], EntryType::Directory, 0o755, &[])?;
                }
            }
            match entry {
                Entry::Folder { mode } => append(&mut tar, at, EntryType::Directory, *mode, &[])?,
                Entry::Bytes { bytes, mode } => append(&mut tar, at, EntryType::Regular, *mode, bytes)?,
                Entry::Host { path } => {
                    let bytes = fs::read(path).with_context(|| format!("{} for /{at}", path.display()))?;
                    append(
                        &mut tar,
                        at,
                        EntryType::Regular,
                        fs::metadata(path)?.permissions().mode() & 0o7777,
                        &bytes,
                    )?;
                }
                Entry::Link { to } => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    tar.append_link(&mut header, at, to)?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }
}

impl Packed {
    /// The image as one file in the OCI layout, which container engines import (`ctr images import`, `podman load`, `skopeo copy`).
    pub fn archive(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let mut index = blob(MANIFEST_TYPE, &self.manifest);
        index["annotations"] = json!({
            "org.opencontainers.image.ref.name": name.rsplit_once(':').map_or("latest", |(_, tag)| tag),
            "io.containerd.image.name": name,
        });
        let index =
            json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [index]});
        let mut tar = Builder::new(Vec::new());
        append(&mut tar, "oci-layout", EntryType::Regular, 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        append(&mut tar, "index.json", EntryType::Regular, 0o644, &serde_json::to_vec(&index)?)?;
        for bytes in [&self.manifest, &self.config, &self.layer] {
            let at = format!("blobs/{}", digest(bytes).replace(':', "/"));
            append(&mut tar, &at, EntryType::Regular, 0o644, bytes)?;
        }
        Ok(tar.into_inner()?)
    }
}

/// How a manifest or an index names some bytes.
fn blob(kind: &str, bytes: &[u8]) -> Value {
    json!({"mediaType": kind, "digest": digest(bytes), "size": bytes.len()})
}

/// `sha256:...` of some bytes.
pub fn digest(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn words(words: &[String]) -> Value {
    if words.is_empty() { Value::Null } else { json!(words) }
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn append(tar: &mut Builder<Vec<u8>>, at: &str, kind: EntryType, mode: u32, bytes: &[u8]) -> anyhow::Result<()> {
    Ok(tar.append_data(&mut header(kind, mode, bytes.len()), at, bytes)?)
}

/// What the loader would map for `program`, the loader itself included; nothing for a static one.
fn shared_libraries(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let said = Command::new("ldd").arg(program).output().context("could not run ldd")?;
    let text = String::from_utf8_lossy(&said.stdout);
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        if text.contains("not a dynamic") || why.contains("not a dynamic") {
            return Ok(Vec::new());
        }
        bail!("ldd {}: {why}", program.display());
    }
    if let Some(line) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}: a library is missing: {}", program.display(), line.trim());
    }
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}
