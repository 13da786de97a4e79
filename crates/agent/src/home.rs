//! Where the agent keeps what must outlive it, on a tmpfs that outlives a restart and not a reboot:
//!
//! ```text
//! RUN/socket/agent.sock             the socket (and empty files `gate` and `ledger`, to mount over)
//! RUN/offers.json                   how much of the devices may be promised
//! RUN/aside/                        what could not be removed
//! RUN/containers/UID/pod.json       what the pod holds, and since when
//! RUN/containers/UID/NAME/gate      the container's page that it cannot write
//! RUN/containers/UID/NAME/bounded/  a small tmpfs for what it can write:
//! RUN/containers/UID/NAME/bounded/ledger   the other page
//! RUN/containers/UID/NAME/bounded/own/     folders that its dialect's system promised
//! RUN/containers/UID/NAME/library   the version of libdivvy.so it was given
//! RUN/containers/UID/NAME/slots     the ids under which its CDI specs were written
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use divvy_core::device::Device;
use divvy_core::grant::Slice;
use divvy_core::id::{ContainerName, PodUid};
use divvy_core::units::{Bytes, Share};
use divvy_shm::clock::monotonic_ns;
use divvy_shm::{ContainerConfig, DeviceConfig, GateWriter, LedgerFile, place};

use crate::edits::{Pages, is_intercepted};
use crate::ledger::Holder;
use crate::library::Shelf;
use crate::offer::Offers;

mod bounds;
mod removal;

use bounds::Bounds;
pub use bounds::ledger_of;

const OFFERS: &str = "offers.json";

/// The agent's folder.
#[derive(Clone, Debug)]
pub struct Home {
    run: PathBuf,
    bounds: Arc<Bounds>,
}

impl Home {
    /// Opens `run`, and makes what is missing in it. What was set aside is tried once more.
    pub fn open(run: &Path) -> io::Result<Home> {
        let home = Home { run: run.to_owned(), bounds: Arc::default() };
        fs::create_dir_all(home.containers())?;
        fs::create_dir_all(home.socket_dir())?;
        for folder in home.set_aside() {
            if let Err(error) = removal::remove(&folder, removal::MOST_STEPS) {
                tracing::warn!(folder = %folder.display(), %error, "still cannot be removed");
            }
        }
        for page in [place::GATE, place::LEDGER] {
            let empty = home.socket_dir().join(page);
            if !empty.exists() {
                fs::write(empty, "")?;
            }
        }
        Ok(home)
    }

    /// The folder that containers see as `/run/divvy`.
    pub fn socket_dir(&self) -> PathBuf {
        self.run.join("socket")
    }

    /// Folders that could not be removed.
    pub fn set_aside(&self) -> Vec<PathBuf> {
        fs::read_dir(self.aside()).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    fn aside(&self) -> PathBuf {
        self.run.join("aside")
    }

    /// The folder of all containers.
    pub fn containers(&self) -> PathBuf {
        self.run.join("containers")
    }

    /// What the keeper holds a lock on for as long as it lives.
    pub fn keeper_lock(&self) -> PathBuf {
        self.run.join("keeper.lock")
    }

    /// How much of the devices the agent before this one offered.
    pub fn offers(&self) -> Option<Offers> {
        serde_json::from_slice(&fs::read(self.run.join(OFFERS)).ok()?).ok()
    }

    /// Writes down how much of the devices is offered.
    pub fn remember_offers(&self, offers: &Offers) -> io::Result<()> {
        write(&self.run.join(OFFERS), &serde_json::to_vec(offers)?)
    }

    /// The folders of a pod's containers that have pages.
    pub fn containers_of(&self, uid: &PodUid) -> Vec<(ContainerName, PathBuf)> {
        let Ok(dir) = self.pod(uid) else { return Vec::new() };
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let with_pages = entries.filter(|e| e.path().join(place::GATE).exists());
        with_pages.map(|e| (e.file_name().to_string_lossy().into_owned().into(), e.path())).collect()
    }

    fn pod(&self, uid: &PodUid) -> io::Result<PathBuf> {
        Ok(self.containers().join(plain(uid.as_str())?))
    }

    /// The folder of one container.
    pub fn container(&self, uid: &PodUid, name: &ContainerName) -> io::Result<PathBuf> {
        Ok(self.pod(uid)?.join(plain(name.as_str())?))
    }

    /// Makes a container's pages, or brings those it has up to date: a restarted container keeps its own.
    pub fn prepare(
        &self,
        uid: &PodUid,
        name: &ContainerName,
        config: &ContainerConfig,
        shelf: Option<&Shelf>,
        slots: &[String],
    ) -> io::Result<Pages> {
        let dir = self.container(uid, name)?;
        fs::create_dir_all(&dir)?;
        write(&dir.join("slots"), slots.join("\n").as_bytes())?;
        let written = self.bounds.folder(&dir);
        let mut pages = Pages {
            socket_dir: self.socket_dir(),
            gate: dir.join(place::GATE),
            ledger: written.join(place::LEDGER),
            own: written.join(bounds::OWN),
            library: PathBuf::new(),
            preload: PathBuf::new(),
        };
        // A container whose devices the library does not keep needs no pages.
        let Some(shelf) = shelf else { return Ok(pages) };
        match GateWriter::open(&dir) {
            Ok(gate) => gate.set_config(config)?,
            Err(_) => drop(GateWriter::create(&dir, config)?),
        }
        if LedgerFile::open_guarded(&written).is_err() {
            drop(LedgerFile::create(&written, config.devices.len())?);
        }
        write(&dir.join("library"), shelf.current().as_bytes())?;
        pages.library = shelf.library(shelf.current());
        pages.preload = shelf.preload(shelf.current());
        Ok(pages)
    }

    /// The page that says what a container may use.
    pub fn gate(&self, uid: &PodUid, name: &ContainerName) -> io::Result<GateWriter> {
        GateWriter::open(&self.container(uid, name)?)
    }

    /// Was the container given its devices?
    pub fn is_prepared(&self, uid: &PodUid, name: &ContainerName) -> bool {
        self.container(uid, name).is_ok_and(|dir| dir.join("slots").exists())
    }

    /// Writes down what a pod holds.
    pub fn remember(&self, uid: &PodUid, holder: &Holder) -> io::Result<()> {
        let dir = self.pod(uid)?;
        fs::create_dir_all(&dir)?;
        write(&dir.join("pod.json"), &serde_json::to_vec(holder)?)
    }

    /// What was written down before a restart. Files nobody can read are left where they are and named.
    pub fn remembered(&self) -> io::Result<Vec<(PodUid, Holder)>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(self.containers())? {
            let entry = entry?;
            let file = entry.path().join("pod.json");
            let Ok(text) = fs::read(&file) else { continue };
            match serde_json::from_slice(&text) {
                Ok(holder) => all.push((entry.file_name().to_string_lossy().into_owned().into(), holder)),
                Err(error) => tracing::error!(file = %file.display(), %error, "cannot read what a pod held"),
            }
        }
        Ok(all)
    }

    /// The slots a pod's containers were given.
    pub fn slots(&self, uid: &PodUid) -> Vec<String> {
        let Ok(dir) = self.pod(uid) else { return Vec::new() };
        let mut slots = Vec::new();
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path().join("slots")).unwrap_or_default();
            slots.extend(text.lines().map(str::to_owned));
        }
        slots
    }

    /// Forgets a pod. Returns the slots its containers had. Of its folder, what cannot be removed is set aside.
    pub fn forget(&self, uid: &PodUid) -> io::Result<Vec<String>> {
        self.forget_within(uid, removal::MOST_STEPS)
    }

    fn forget_within(&self, uid: &PodUid, steps: u64) -> io::Result<Vec<String>> {
        let (dir, slots) = (self.pod(uid)?, self.slots(uid));
        for container in fs::read_dir(&dir).into_iter().flatten().flatten() {
            bounds::unbind(&container.path());
        }
        match removal::remove(&dir, steps) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                fs::create_dir_all(self.aside())?;
                let place = self.aside().join(format!("{uid}-{}", monotonic_ns()));
                fs::rename(&dir, &place)?;
                tracing::warn!(%uid, %error, folder = %place.display(), "cannot remove what a pod left, which is set aside");
            }
            Ok(()) => {}
        }
        Ok(slots)
    }

    /// Tells when there is little room for what pods that start need.
    pub fn tell_of_room(&self) {
        self.bounds.tell_of_room(&self.run);
    }

    /// Folders of pods, whether they still hold something or not.
    pub fn pods(&self) -> io::Result<Vec<PodUid>> {
        fs::read_dir(self.containers())?.map(|e| Ok(e?.file_name().to_string_lossy().into_owned().into())).collect()
    }

    /// The versions of the library that containers were given.
    pub fn libraries(&self) -> io::Result<BTreeSet<String>> {
        let mut used = BTreeSet::new();
        for pod in fs::read_dir(self.containers())? {
            for container in fs::read_dir(pod?.path()).into_iter().flatten().flatten() {
                used.extend(fs::read_to_string(container.path().join("library")));
            }
        }
        Ok(used)
    }
}

/// A name that stays in its folder. The API server only lets such names through; we do not rely on it.
fn plain(name: &str) -> io::Result<&str> {
    let fits = !name.is_empty() && name.len() <= 253 && !name.contains(['/', '\0']) && !name.starts_with('.');
    if fits { Ok(name) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is no name"))) }
}

/// Writes a file whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let half = path.with_extension("part");
    fs::write(&half, bytes)?;
    fs::rename(half, path)
}

/// What the library and the arbiter are told about a container: its slices of GPUs that the library keeps. `context` is what a context of
/// a process takes of a part of a card, and is counted within the part; a whole card has room for it anyway.
pub fn config(name: String, slices: &[Slice], devices: &[Device], context: Bytes) -> ContainerConfig {
    let kept = slices.iter().filter(|s| is_intercepted(s));
    let devices = kept.map(|slice| {
        let device = devices.iter().find(|d| d.id == slice.device);
        DeviceConfig {
            id: slice.device.to_string(),
            uuid: uuid(slice.device.as_str()),
            node_index: device.map_or(0, |d| d.index),
            memory_request: slice.memory.0,
            memory_limit: slice.memory_limit.0,
            share_request: slice.share.0,
            share_limit: slice.share_limit.0.min(Share::WHOLE.0),
            gated: !slice.exclusive,
            whole_card: slice.exclusive,
            context_bytes: if slice.exclusive { 0 } else { context.0 },
            ..DeviceConfig::default()
        }
    });
    ContainerConfig { name, gate_writable: false, devices: devices.collect() }
}

/// The sixteen bytes of `GPU-0f3b1c7e-1111-...`; zeros for an identity that is not one.
pub(crate) fn uuid(id: &str) -> [u8; 16] {
    let digits: Vec<u8> = id.bytes().skip_while(|b| *b != b'-').filter(u8::is_ascii_hexdigit).collect();
    let mut bytes = [0; 16];
    if digits.len() != 32 {
        return bytes;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        let digit = |d: u8| char::from(d).to_digit(16).unwrap_or(0) as u8;
        *byte = digit(pair[0]) << 4 | digit(pair[1]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use divvy_core::id::PodKey;
    use divvy_core::units::Bytes;
    use divvy_shm::GateReader;

    use super::*;
    use crate::testing;

    fn shelf(root: &Path) -> Shelf {
        let library = root.join("l.so");
        fs::write(&library, "library").unwrap();
        Shelf::stock(&root.join("lib"), &library).unwrap()
    }

    #[test]
    fn a_containers_pages_outlive_a_restart_and_take_a_new_grant() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::open(&root.path().join("run")).unwrap();
        let shelf = shelf(root.path());
        let (uid, name) = ("u".into(), "main".into());
        let device = Device::gpu("GPU-00000000-0000-4000-8000-00000000000a", 3, "T4", Bytes::gib(16));
        let config = |gib| {
            config(
                "ns/p/main".into(),
                &[testing::slice(&device.id, Bytes::gib(gib), 300)],
                std::slice::from_ref(&device),
                Bytes::mib(520),
            )
        };
        let pages = home.prepare(&uid, &name, &config(4), Some(&shelf), &["s000".into()]).unwrap();
        let reader = GateReader::open(pages.gate.parent().unwrap()).unwrap();
        assert_eq!(reader.config().1.devices[0].memory_limit, 4 << 30);
        assert_eq!(reader.config().1.devices[0].uuid[15], 0x0a);
        assert_eq!(reader.config().1.devices[0].context_bytes, 520 << 20);
        let again = Home::open(&root.path().join("run")).unwrap();
        again.prepare(&uid, &name, &config(6), Some(&shelf), &["s000".into()]).unwrap();
        assert_eq!(reader.config().1.devices[0].memory_limit, 6 << 30);
        assert_eq!(again.libraries().unwrap(), BTreeSet::from([shelf.current().to_owned()]));
        assert_eq!(again.forget(&uid).unwrap(), ["s000"]);
        assert!(again.pods().unwrap().is_empty());
    }

    #[test]
    fn what_a_pod_holds_is_read_back_and_garbage_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::open(root.path()).unwrap();
        let grant = testing::grant(vec![]);
        let holder = Holder { pod: PodKey::new("ns", "p"), grant, order: 7, left_behind: None };
        home.remember(&"u1".into(), &holder).unwrap();
        fs::create_dir_all(home.containers().join("u2")).unwrap();
        fs::write(home.containers().join("u2/pod.json"), "{").unwrap();
        assert_eq!(home.remembered().unwrap(), [("u1".into(), holder)]);
    }

    #[test]
    fn a_folder_that_cannot_be_removed_is_set_aside_and_tried_again_at_the_next_start() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::open(root.path()).unwrap();
        let (uid, name) = ("u".into(), "main".into());
        let dir = home.container(&uid, &name).unwrap();
        fs::create_dir_all(dir.join("own/a/b/c/d/e/f")).unwrap();
        fs::write(dir.join("slots"), "s000").unwrap();
        assert_eq!(home.forget_within(&uid, 3).unwrap(), ["s000"]);
        assert!(home.pods().unwrap().is_empty(), "nobody looks at it again");
        assert_eq!(home.set_aside().len(), 1);
        assert_eq!(Home::open(root.path()).unwrap().set_aside(), Vec::<PathBuf>::new());
        assert_eq!(home.forget(&uid).unwrap(), Vec::<String>::new(), "a pod that was forgotten may be again");
    }

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let home = Home::open(root.path()).unwrap();
        for bad in ["..", "a/b", "", "../../etc"] {
            assert!(home.container(&bad.into(), &"c".into()).is_err(), "{bad}");
        }
    }
}
