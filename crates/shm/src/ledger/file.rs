//! The ledger as a file: made by the agent, mapped by both.

use std::ffi::CString;
use std::io;
use std::path::Path;

use super::{AREA, AREAS_AT, CHARGES_AT, Charges, Completions, DeviceArea, Ledger, Reaper, SIZE};
use crate::header::LEDGER_MAGIC;
use crate::map::{Access, Guarded, Mapped};
use crate::{MAX_DEVICES, clock, place};

/// The ledger file and how to map it.
#[derive(Debug)]
pub struct LedgerFile;

impl LedgerFile {
    /// Makes the ledger of `dir` for a container with `devices` devices, and maps it for the agent. It appears whole or not at all.
    pub fn create(dir: &Path, devices: usize) -> io::Result<Guarded<Ledger>> {
        let (unfinished, path) = (dir.join(".ledger.new"), dir.join(place::LEDGER));
        let _ = std::fs::remove_file(&unfinished);
        let devices = devices.min(MAX_DEVICES);
        let mut touched = Vec::with_capacity(1 + devices);
        touched.push(0..CHARGES_AT + devices * size_of::<Charges>());
        let used = core::mem::offset_of!(DeviceArea, completions) + size_of::<Completions>();
        touched.extend((0..devices).map(|d| AREAS_AT + d * AREA..AREAS_AT + d * AREA + used));
        // Whatever user the container runs as writes it.
        let ledger = Mapped::<Ledger>::create(&unfinished, 0o666, &touched)?;
        ledger.front.header.seal(LEDGER_MAGIC, SIZE as u32, clock::monotonic_ns());
        std::fs::rename(&unfinished, &path)?;
        Guarded::over(ledger)
    }

    /// Maps the ledger of `dir` for the agent: safe against a tenant who truncates it.
    pub fn open_guarded(dir: &Path) -> io::Result<Guarded<Ledger>> {
        let ledger = Guarded::<Ledger>::open(&dir.join(place::LEDGER))?;
        check(&ledger)?;
        Ok(ledger)
    }

    /// The right to give back slots of the ledger of `dir`, unless somebody has it.
    pub fn reaper(dir: &Path) -> Option<Reaper> {
        let path = CString::new(dir.join(place::LEDGER).into_os_string().into_encoded_bytes()).ok()?;
        Reaper::of(&path, 0)
    }

    /// Maps the ledger of `dir` for the library.
    pub fn open(dir: &Path) -> io::Result<Mapped<Ledger>> {
        let ledger = Mapped::<Ledger>::open(&dir.join(place::LEDGER), Access::Write)?;
        check(&ledger)?;
        Ok(ledger)
    }
}

fn check(ledger: &Ledger) -> io::Result<()> {
    ledger.front.header.check(LEDGER_MAGIC, SIZE as u64).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
