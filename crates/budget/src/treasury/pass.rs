//! One pass: everything up to now is accounted for, and what follows from it is to be written.

use divvy_api::wire::Meta;
use divvy_cluster::Failure;
use divvy_core::budget::Happened;
use divvy_core::time::Time;
use serde::Deserialize;

use super::charges::hour_of;
use super::status::Common;
use super::{HOUR, Treasury};
use crate::calendar;
use crate::write::Write;

/// What a pass found, and what is to be written.
#[derive(Clone, Debug, Default)]
pub struct Pass {
    /// What happened to balances.
    pub happened: Vec<Happened>,
    /// What is to be written, the most urgent first.
    pub writes: Vec<Write>,
}

/// An object as the API server returns it after a write.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Its metadata.
    pub metadata: Meta,
}

impl Treasury {
    /// Accounts for everything up to `now`. Nothing comes of it before the books are open.
    pub fn pass(&mut self, now: Time) -> Pass {
        let Some(accounting) = &mut self.accounting else { return Pass::default() };
        let now = now.max(accounting.at());
        let happened = accounting.advance(now, &self.calendars);
        // What is not stored yet must not be folded away.
        let horizon = hour_of(Time(now.0.saturating_sub(self.settings.late)));
        let through = self.sheets.oldest_unstored().map_or(horizon, |hour| hour.min(horizon));
        // And nothing is folded again before every balance was stored since.
        let drawn =
            |key| self.budgets.get(key).and_then(|budget| budget.status.books.as_ref()).map(|books| books.through);
        let stored =
            accounting.accounts().all(|(key, account)| drawn(key).is_none_or(|through| through >= account.through.0));
        if stored && accounting.accounts().any(|(_, account)| account.through < through) {
            accounting.fold(through);
            self.sheets.drop_before(Time(through.0.saturating_sub(HOUR)));
        }
        self.turn_hour(now);
        let mut writes = self.classes(now);
        let Some(accounting) = &self.accounting else { return Pass::default() };
        let common = Common::of(self, accounting);
        let (urgent, later) = self.statuses(&common, now);
        let mut paced: Vec<Write> = self.copies();
        paced.extend(self.quota_copies());
        paced.extend(urgent);
        paced.extend(self.template_writes(now));
        paced.extend(self.quota_writes(now));
        // Charges and numbers share what is left.
        let room = self.settings.writes.saturating_sub(paced.len());
        let charges = self.unstored(room);
        let share = if later.is_empty() { room } else { room.div_ceil(2).max(room.saturating_sub(later.len())) };
        paced.extend(charges.into_iter().take(share));
        paced.extend(later);
        paced.truncate(self.settings.writes);
        for (node, reading) in &mut self.journals {
            if let Some(cut) = reading.due(|key, change| self.sheets.is_stored(key, change)) {
                paced.push(Write::Acknowledge { node: node.clone(), cut });
            }
        }
        writes.extend(paced);
        Pass { happened, writes }
    }

    /// Something was written, or was not.
    pub fn done(&mut self, write: &Write, outcome: &Result<Written, Failure>, now: Time) {
        match (write, outcome) {
            (Write::Budget { key, status, .. }, Ok(written)) => {
                if let Some(budget) = self.budgets.get_mut(key) {
                    budget.version = written.metadata.resource_version.clone();
                    budget.status = (**status).clone();
                    budget.written = now;
                }
            }
            (Write::Template { name, status, .. }, Ok(written)) => {
                if let Some(budget) = self.templates.get_mut(name) {
                    budget.version = written.metadata.resource_version.clone();
                    budget.status = (**status).clone();
                }
            }
            (Write::Quota { namespace, name, status, .. }, Ok(written)) => {
                let key = (namespace.clone(), name.clone());
                self.quota_written(&key, written.metadata.resource_version.clone(), (**status).clone());
            }
            (Write::Charges { name, change, spec, .. }, outcome) => {
                let Some(hour) = calendar::read(&spec.hour) else { return };
                let namespace = spec.namespace.as_str().into();
                match outcome {
                    Ok(written) => {
                        let version = written.metadata.resource_version.clone();
                        self.sheets.written(&namespace, hour, name, version, *change);
                    }
                    Err(Failure::Gone) => self.sheets.correct(&namespace, hour, name, None),
                    Err(_) => {}
                }
            }
            (Write::Acknowledge { node, cut }, Ok(_)) => {
                if let Some(reading) = self.journals.get_mut(node) {
                    reading.acknowledged(*cut);
                }
            }
            (Write::Class { target, .. }, Err(_)) => {
                self.classing.remove(&target.uid);
            }
            _ => {}
        }
    }

    /// Somebody else wrote these charges: this is their version now.
    pub fn correct_charges(&mut self, write: &Write, version: Option<String>) {
        if let Write::Charges { name, spec, .. } = write
            && let Some(hour) = calendar::read(&spec.hour)
        {
            self.sheets.correct(&spec.namespace.as_str().into(), hour, name, version);
        }
    }

    /// Charges older than this are not kept.
    pub fn keeps_from(&self, now: Time) -> Time {
        hour_of(Time(now.0.saturating_sub(self.settings.retention.max(self.settings.late + HOUR))))
    }
}
