//! Which devices are fit for work, judged by what is seen on them. Pure: signs come in, changes come out.
//!
//! An error is ignored (the program's fault), passes when the device answers probes again, or stays until the device was reset. Which
//! is which is configuration; the defaults follow NVIDIA's public catalogue of XIDs.

use std::collections::{BTreeMap, BTreeSet};

use divvy_core::id::DeviceId;
use serde::{Deserialize, Serialize};

use crate::device::{Seen, Sign};

/// What errors mean, and what is done about a failed device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    /// Errors that say nothing about the device: a program's own faults.
    pub ignore: BTreeSet<u32>,
    /// Errors after which only a reset helps.
    pub fatal: BTreeSet<u32>,
    /// Answers in a row after which any other trouble is over.
    pub probes: u32,
    /// Are pods on a failed device evicted?
    pub evict: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            ignore: [13, 31, 43, 45, 68, 109].into(),
            fatal: [48, 62, 64, 74, 79, 95, 119, 120, 140, 143, 154].into(),
            probes: 3,
            evict: false,
        }
    }
}

impl Policy {
    /// Reads the file, naming it in every mistake.
    pub fn read(path: &std::path::Path) -> anyhow::Result<Policy> {
        use anyhow::Context;
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let policy: Policy = serde_saphyr::from_str(&text).with_context(|| format!("{} is wrong", path.display()))?;
        let both: Vec<&u32> = policy.ignore.intersection(&policy.fatal).collect();
        anyhow::ensure!(both.is_empty(), "{}: {both:?} are both ignored and fatal", path.display());
        Ok(policy)
    }
}

/// A device that is not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sick {
    reason: String,
    fatal: bool,
    answers: u32,
    /// It was silent since: what made it sick may be gone.
    silent: bool,
}

/// A device's turn for the better or the worse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The device.
    pub device: DeviceId,
    /// Why it is not fit now; `None` says it is.
    pub reason: Option<String>,
}

/// What is known about the devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Health {
    sick: BTreeMap<DeviceId, Sick>,
}

impl Health {
    /// Devices that are not fit, and why.
    pub fn unhealthy(&self) -> BTreeMap<DeviceId, String> {
        self.sick.iter().map(|(id, sick)| (id.clone(), sick.reason.clone())).collect()
    }

    /// Takes in what was seen, in order. Returns the devices whose state changed.
    pub fn see(&mut self, signs: &[Sign], policy: &Policy) -> Vec<Turn> {
        let before = self.unhealthy();
        for sign in signs {
            self.see_one(sign, policy);
        }
        let after = self.unhealthy();
        let devices: BTreeSet<&DeviceId> = before.keys().chain(after.keys()).collect();
        let changed = devices.into_iter().filter(|id| before.get(*id) != after.get(*id));
        changed.map(|id| Turn { device: id.clone(), reason: after.get(id).cloned() }).collect()
    }

    fn see_one(&mut self, sign: &Sign, policy: &Policy) {
        match &sign.seen {
            Seen::Error(code) if policy.ignore.contains(code) => {}
            Seen::Error(code) => {
                let fatal = policy.fatal.contains(code);
                // A device that needs a reset needs it whatever is seen after.
                if self.sick.get(&sign.device).is_some_and(|s| s.fatal && !fatal) {
                    return;
                }
                let sick = Sick { reason: explain(*code), fatal, answers: 0, silent: false };
                self.sick.insert(sign.device.clone(), sick);
            }
            Seen::Silence(why) => {
                let sick = self.sick.entry(sign.device.clone()).or_insert_with(|| Sick {
                    reason: format!("does not answer: {why}"),
                    fatal: false,
                    answers: 0,
                    silent: true,
                });
                // A reset makes a device fall silent for a while; what it comes back from is over.
                (sick.answers, sick.silent) = (0, true);
            }
            Seen::Answer => {
                let Some(sick) = self.sick.get_mut(&sign.device) else { return };
                sick.answers += 1;
                if sick.answers >= policy.probes.max(1) && (!sick.fatal || sick.silent) {
                    self.sick.remove(&sign.device);
                }
            }
        }
    }
}

/// An XID in words.
fn explain(code: u32) -> String {
    let words = match code {
        48 => "uncorrectable memory error",
        62 => "internal micro-controller halt",
        63 | 64 => "memory row or page could not be retired",
        74 => "NVLink error",
        79 => "fell off the bus",
        92 => "many single-bit memory errors",
        94 => "contained memory error",
        95 => "uncontained memory error",
        119 | 120 => "GSP firmware does not answer",
        140 => "unrecovered memory error",
        143 | 154 => "needs a reset",
        _ => return format!("XID {code}"),
    };
    format!("XID {code}: {words}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(list: &[Seen]) -> Vec<Sign> {
        list.iter().map(|seen| Sign { device: "G".into(), seen: seen.clone() }).collect()
    }

    fn reason(turns: &[Turn]) -> Option<Option<&str>> {
        turns.first().map(|t| t.reason.as_deref())
    }

    #[test]
    fn al_23_a_programs_fault_changes_nothing_and_a_memory_error_stays() {
        let (mut health, policy) = (Health::default(), Policy::default());
        assert!(health.see(&signs(&[Seen::Error(31), Seen::Error(43)]), &policy).is_empty());
        let turns = health.see(&signs(&[Seen::Error(48)]), &policy);
        assert_eq!(reason(&turns), Some(Some("XID 48: uncorrectable memory error")));
        assert!(health.see(&signs(&[Seen::Answer, Seen::Answer, Seen::Answer, Seen::Answer]), &policy).is_empty());
    }

    #[test]
    fn other_trouble_passes_after_as_many_answers_as_policy_wants() {
        let (mut health, policy) = (Health::default(), Policy::default());
        health.see(&signs(&[Seen::Error(94)]), &policy);
        assert!(health.see(&signs(&[Seen::Answer, Seen::Answer]), &policy).is_empty());
        assert_eq!(reason(&health.see(&signs(&[Seen::Answer]), &policy)), Some(None));
    }

    #[test]
    fn a_device_that_falls_silent_is_unfit_and_back_when_it_answers() {
        let (mut health, policy) = (Health::default(), Policy::default());
        let lost = Seen::Silence("GPU is lost".into());
        let turns = health.see(&signs(std::slice::from_ref(&lost)), &policy);
        assert_eq!(reason(&turns), Some(Some("does not answer: GPU is lost")));
        health.see(&signs(&[Seen::Answer, Seen::Answer, lost]), &policy);
        assert!(!health.unhealthy().is_empty(), "answers count in a row");
        health.see(&signs(&[Seen::Answer, Seen::Answer, Seen::Answer]), &policy);
        assert!(health.unhealthy().is_empty());
    }

    #[test]
    fn al_23_xid_48_makes_a_card_unfit_and_xid_31_says_nothing_about_it() {
        let (mut health, policy) = (Health::default(), Policy::default());
        assert!(health.see(&signs(&[Seen::Error(31)]), &policy).is_empty());
        let turns = health.see(&signs(&[Seen::Error(48), Seen::Answer, Seen::Answer, Seen::Answer]), &policy);
        assert_eq!(reason(&turns), Some(Some("XID 48: uncorrectable memory error")));
    }

    #[test]
    fn a_reset_ends_what_only_a_reset_ends() {
        let (mut health, policy) = (Health::default(), Policy::default());
        health.see(&signs(&[Seen::Error(79), Seen::Error(94)]), &policy);
        assert_eq!(health.unhealthy()["G"], "XID 79: fell off the bus");
        health.see(&signs(&[Seen::Silence("reset".into()), Seen::Answer, Seen::Answer, Seen::Answer]), &policy);
        assert!(health.unhealthy().is_empty());
    }

    #[test]
    fn the_policy_is_read_with_its_mistakes_named() {
        let read = |text: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            Policy::read(file.path()).map_err(|e| format!("{e:#}"))
        };
        assert_eq!(read("probes: 5\nevict: true").unwrap().probes, 5);
        assert!(read("ignore: [48]\nfatal: [48]").unwrap_err().contains("[48] are both ignored and fatal"));
        assert!(read("prboes: 5").unwrap_err().contains("prboes"));
    }
}
