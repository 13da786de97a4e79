//! Errors the cards report by themselves (XIDs), collected on a thread that does nothing but wait for them.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;

use super::{Seen, Sign};

/// NVML's number for an error it has no number for.
const UNKNOWN: u32 = 999;
/// More than this between two looks means something reports without end; the first ones tell why.
const MOST: usize = 1024;

/// What was reported and not yet looked at.
#[derive(Clone, Default)]
pub(super) struct Listener {
    heard: Arc<Mutex<Vec<Sign>>>,
}

impl Listener {
    /// Listens from now on. A driver that cannot report is no trouble: probes still tell when a card does not answer.
    pub(super) fn start(nvml: &'static Nvml) -> Listener {
        let listener = Listener::default();
        let heard = listener.heard.clone();
        let spawned = thread::Builder::new().name("xid".into()).spawn(move || {
            if let Err(e) = listen(nvml, &heard) {
                tracing::info!(error = %e, "this driver does not report errors by event; only probes will tell");
            }
        });
        if let Err(e) = spawned {
            tracing::warn!(error = %e, "cannot start the thread that waits for card errors");
        }
        listener
    }

    /// What was reported since the last call.
    pub(super) fn take(&self) -> Vec<Sign> {
        self.heard.lock().map(|mut heard| std::mem::take(&mut *heard)).unwrap_or_default()
    }
}

fn listen(nvml: &'static Nvml, heard: &Mutex<Vec<Sign>>) -> Result<(), NvmlError> {
    let mut set = nvml.create_event_set()?;
    let mut registered = false;
    for index in 0..nvml.device_count()? {
        let Ok(card) = nvml.device_by_index(index) else { continue };
        if !card.supported_event_types().is_ok_and(|t| t.contains(EventTypes::CRITICAL_XID_ERROR)) {
            continue;
        }
        set = match card.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
            Ok(set) => {
                registered = true;
                set
            }
            // A failed registration takes the set with it; start over with those that work.
            Err(e) => return Err(e.error),
        };
    }
    if !registered {
        return Err(NvmlError::NotSupported);
    }
    loop {
        match set.wait(5_000) {
            Ok(event) => {
                let (Some(xid), Ok(uuid)) = (event.event_data, event.device.uuid()) else { continue };
                let number = match xid {
                    XidError::Value(number) => u32::try_from(number).unwrap_or(UNKNOWN),
                    XidError::Unknown => UNKNOWN,
                };
                if let Ok(mut heard) = heard.lock()
                    && heard.len() < MOST
                {
                    heard.push(Sign { device: uuid.into(), seen: Seen::Error(number) });
                }
            }
            Err(NvmlError::Timeout) => {}
            Err(e) => {
                tracing::warn!(error = %e, "waiting for card errors failed");
                thread::sleep(Duration::from_secs(5));
            }
        }
    }
}
