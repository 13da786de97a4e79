//! Charges: one sheet per namespace and hour, written when something on it changed and when its hour is over.

use std::collections::{BTreeMap, BTreeSet};

use divvy_api::budget::charges::{ChargeLine, ChargedDevice, GpuChargesSpec, Unaccounted};
use divvy_core::ask::Class;
use divvy_core::budget::trail::Line;
use divvy_core::budget::{AccountKey, Accounting, Amount, Hold, Record};
use divvy_core::id::{Namespace, NodeName, PodUid};
use divvy_core::time::Time;

use super::{HOUR, Treasury};
use crate::calendar::{exact, stamp};
use crate::facts::class_name;
use crate::store::StoredHold;
use crate::write::Write;

/// Most pods on one object: well below what the API server stores in one.
const PODS_PER_OBJECT: usize = 300;

/// A namespace's hour.
pub(super) type SheetKey = (Namespace, Time);

/// The hour a moment lies in, by its beginning.
pub fn hour_of(at: Time) -> Time {
    Time(at.0 / HOUR * HOUR)
}

/// All sheets that may still change.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheets {
    sheets: BTreeMap<SheetKey, Sheet>,
    changes: u64,
    /// The hour whose end was last seen.
    hour: Option<Time>,
}

#[derive(Clone, Debug, Default)]
struct Sheet {
    /// When it last changed, counted.
    changed: u64,
    /// Up to which change it is stored.
    stored: u64,
    /// Its objects' names and versions.
    objects: BTreeMap<String, String>,
    /// Of those, how far each is written of the change that is being written.
    written: BTreeMap<String, u64>,
    unaccounted: Vec<Unaccounted>,
}

impl Sheets {
    pub(super) fn forget_all(&mut self) {
        *self = Sheets::default();
    }

    /// This is stored already.
    pub(super) fn known(
        &mut self,
        namespace: &Namespace,
        hour: Time,
        name: String,
        version: String,
        lines: Vec<Unaccounted>,
    ) {
        let sheet = self.sheets.entry((namespace.clone(), hour)).or_default();
        sheet.objects.insert(name, version);
        sheet.unaccounted.extend(lines);
    }

    /// Something about a namespace's pods is different from `since` on.
    pub(super) fn touch(&mut self, namespace: &Namespace, since: Time, now: Time) -> Vec<(SheetKey, u64)> {
        self.changes += 1;
        let (mut hour, last) = (hour_of(since.min(now)), hour_of(now));
        let mut touched = Vec::new();
        while hour <= last {
            let key = (namespace.clone(), hour);
            self.sheets.entry(key.clone()).or_default().changed = self.changes;
            touched.push((key, self.changes));
            hour = Time(hour.0 + HOUR);
        }
        touched
    }

    /// Is a sheet stored up to this change?
    pub(super) fn is_stored(&self, key: &SheetKey, change: u64) -> bool {
        self.sheets.get(key).is_none_or(|sheet| sheet.stored >= change)
    }

    /// Nobody knows what was held for a while.
    pub(super) fn unaccounted(&mut self, namespace: &Namespace, at: Time, line: Unaccounted) {
        let sheet = self.sheets.entry((namespace.clone(), hour_of(at))).or_default();
        if !sheet.unaccounted.iter().any(|known| known.uid.is_some() && known.uid == line.uid) {
            sheet.unaccounted.push(line);
        }
    }

    /// A node tells of a pod that the API server never showed on it: nobody is charged, and the first such pod of an hour is listed in the
    /// namespace that Divvy is installed in, so that a node that lies does not fill the books. True where it is news.
    pub(super) fn tells_of_strangers(&mut self, home: &str, node: &NodeName, record: &Record, now: Time) -> bool {
        const BECAUSE: &str =
            "the node's journal tells of this pod, and perhaps of more, which the API server did not show on it";
        let sheet = self.sheets.entry((Namespace::from(home), hour_of(now))).or_default();
        if sheet.unaccounted.iter().any(|line| line.node == node.as_str() && line.because == BECAUSE) {
            return false;
        }
        sheet.unaccounted.push(Unaccounted {
            pod: Some(record.pod.to_string()),
            uid: Some(record.uid.to_string()),
            node: node.to_string(),
            from: exact(record.granted.min(now)),
            to: exact(record.until.unwrap_or(record.at).min(now)),
            because: BECAUSE.to_owned(),
        });
        true
    }

    /// What was not known of a pod is known now.
    pub(super) fn found(&mut self, namespace: &Namespace, uid: &PodUid) {
        self.changes += 1;
        let first = (namespace.clone(), Time(0));
        let of_namespace = self.sheets.range_mut(first..).take_while(|((name, _), _)| name == namespace);
        for (_, sheet) in of_namespace {
            let before = sheet.unaccounted.len();
            sheet.unaccounted.retain(|line| line.uid.as_deref() != Some(uid.as_str()));
            if sheet.unaccounted.len() != before {
                sheet.changed = self.changes;
            }
        }
    }

    /// Is a node's loss told already?
    pub(super) fn tells_of_node(&self, node: &NodeName) -> bool {
        let told = |line: &Unaccounted| line.pod.is_none() && line.node == node.as_str();
        self.sheets.values().any(|sheet| sheet.unaccounted.iter().any(told))
    }

    /// Stretches nobody knows about, by namespace.
    pub(super) fn count_unaccounted(&self) -> BTreeMap<Namespace, u32> {
        let mut counts: BTreeMap<Namespace, u32> = BTreeMap::new();
        for ((namespace, _), sheet) in self.sheets.iter().filter(|(_, sheet)| !sheet.unaccounted.is_empty()) {
            *counts.entry(namespace.clone()).or_default() += u32::try_from(sheet.unaccounted.len()).unwrap_or(u32::MAX);
        }
        counts
    }

    /// Stretches nobody knows about in a namespace.
    pub(super) fn unaccounted_of(&self, namespace: &Namespace) -> Vec<Unaccounted> {
        let first = (namespace.clone(), Time(0));
        let of_namespace = self.sheets.range(first..).take_while(|((name, _), _)| name == namespace);
        of_namespace.flat_map(|(_, sheet)| sheet.unaccounted.clone()).collect()
    }

    /// The oldest hour of which something is not stored.
    pub(super) fn oldest_unstored(&self) -> Option<Time> {
        self.sheets.iter().filter(|(_, s)| s.stored < s.changed).map(|((_, hour), _)| *hour).min()
    }

    /// An object was written.
    pub(super) fn written(&mut self, namespace: &Namespace, hour: Time, name: &str, version: String, change: u64) {
        let Some(sheet) = self.sheets.get_mut(&(namespace.clone(), hour)) else { return };
        sheet.objects.insert(name.to_owned(), version);
        sheet.written.insert(name.to_owned(), change);
        // Stored when every one of its objects is.
        if let Some(least) = sheet.written.values().min().copied() {
            sheet.stored = sheet.stored.max(least);
        }
    }

    /// An object's version is another than we thought.
    pub(super) fn correct(&mut self, namespace: &Namespace, hour: Time, name: &str, version: Option<String>) {
        let Some(sheet) = self.sheets.get_mut(&(namespace.clone(), hour)) else { return };
        match version {
            Some(version) => {
                sheet.objects.insert(name.to_owned(), version);
            }
            None => {
                sheet.objects.remove(name);
            }
        }
    }

    /// Sheets older than this need not be kept in mind.
    pub(super) fn drop_before(&mut self, hour: Time) {
        self.sheets.retain(|(_, at), sheet| *at >= hour || sheet.stored < sheet.changed);
    }
}

/// The name of an object: day first, so that lists are in order of time.
fn object_name(namespace: &Namespace, hour: Time, part: usize) -> String {
    let stamp = stamp(hour);
    let (day, rest) = stamp.split_once('T').unwrap_or((&stamp, "00"));
    let name = format!("{day}-{}.{namespace}", &rest[..2]);
    if part == 0 { name } else { format!("{name}.{part}") }
}

impl Treasury {
    /// Something about all pods of a namespace is different.
    pub(super) fn touch_namespace(&mut self, namespace: &Namespace, since: Time) {
        let Some(accounting) = &self.accounting else { return };
        if accounting.holds().any(|hold| hold.pod.namespace == *namespace && hold.ended().is_none_or(|end| end > since))
        {
            let now = accounting.at().max(since);
            self.sheets.touch(namespace, since, now);
        }
    }

    /// When an hour is over, every sheet of it gets its final sums, and pods that go on get a sheet of the next.
    pub(super) fn turn_hour(&mut self, now: Time) {
        let Some(accounting) = &self.accounting else { return };
        let current = hour_of(now);
        let Some(last) = self.sheets.hour.replace(current) else { return };
        if last >= current {
            return;
        }
        let in_it =
            accounting.holds().filter(|hold| hold.from() < current && hold.ended().is_none_or(|end| end >= last));
        let namespaces: BTreeSet<Namespace> = in_it.map(|hold| hold.pod.namespace.clone()).collect();
        let since = last.max(Time(now.0.saturating_sub(self.settings.late)));
        namespaces.iter().for_each(|namespace| drop(self.sheets.touch(namespace, since, now)));
    }

    /// Sheets to be written, the oldest change first.
    pub(super) fn unstored(&self, most: usize) -> Vec<Write> {
        let Some(accounting) = &self.accounting else { return Vec::new() };
        let mut due: Vec<(&SheetKey, &Sheet)> =
            self.sheets.sheets.iter().filter(|(_, s)| s.stored < s.changed).collect();
        due.sort_by_key(|(key, sheet)| (sheet.changed, key.1));
        let mut writes = Vec::new();
        for ((namespace, hour), sheet) in due {
            if writes.len() >= most {
                break;
            }
            writes.extend(self.objects(accounting, namespace, *hour, sheet));
        }
        writes
    }

    /// The objects of a sheet that are not written yet.
    fn objects(&self, accounting: &Accounting, namespace: &Namespace, hour: Time, sheet: &Sheet) -> Vec<Write> {
        let end = Time(hour.0 + HOUR);
        let within = |hold: &&Hold| {
            hold.pod.namespace == *namespace && hold.from() < end && hold.ended().is_none_or(|at| at >= hour)
        };
        let holds: Vec<&Hold> = accounting.holds().filter(within).collect();
        let mut chunks: Vec<&[&Hold]> = holds.chunks(PODS_PER_OBJECT).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let mut writes = Vec::new();
        for (part, chunk) in chunks.iter().enumerate() {
            let name = object_name(namespace, hour, part);
            if sheet.written.get(&name) == Some(&sheet.changed) {
                continue;
            }
            let lines = chunk.iter().flat_map(|hold| accounting.lines_of(hold, hour, end.min(accounting.at())));
            let unaccounted = if part == 0 { sheet.unaccounted.clone() } else { Vec::new() };
            let spec = GpuChargesSpec {
                namespace: namespace.to_string(),
                hour: stamp(hour),
                pods: u32::try_from(chunk.len()).unwrap_or(u32::MAX),
                unaccounted_lines: u32::try_from(unaccounted.len()).unwrap_or(u32::MAX),
                lines: lines.map(|line| self.line(&line)).collect(),
                unaccounted,
                holds: chunk.iter().filter_map(|hold| serde_json::to_value(StoredHold::from(*hold)).ok()).collect(),
            };
            let version = sheet.objects.get(&name).cloned();
            writes.push(Write::Charges { name, version, change: sheet.changed, spec: Box::new(spec) });
        }
        writes
    }

    pub(super) fn line(&self, line: &Line) -> ChargeLine {
        let said = |(key, amount): &(AccountKey, Amount)| {
            let unit = self.budgets.get(key).and_then(|b| b.in_force.as_ref()).map(|terms| &terms.unit);
            // To the millionth: these are to be added up.
            let amount = match unit {
                Some(divvy_api::budget::Unit::Money(currency)) => format!("{amount} {currency}"),
                _ => format!("{amount}s"),
            };
            (key.to_string(), amount)
        };
        let class = if line.opportunistic { Class::Opportunistic } else { Class::Guarantee };
        let device = |held: &divvy_core::budget::HeldDevice| ChargedDevice {
            device: held.device.to_string(),
            model: held.model.to_string(),
            share: held.share.0,
            memory: held.memory.0,
            alone: held.alone,
        };
        ChargeLine {
            pod: line.pod.name.to_string(),
            uid: line.uid.to_string(),
            node: line.node.to_string(),
            devices: line.devices.iter().map(device).collect(),
            from: exact(line.from),
            to: exact(line.to),
            class: class_name(class).to_owned(),
            charged: line.charged.iter().map(said).collect(),
            refunded: line.refunded.iter().map(said).collect(),
        }
    }
}
