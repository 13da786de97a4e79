//! How accounts and holds are stored: exactly, and so that they come back as they were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use divvy_api::budget::status::{BookBucket, BookEntry, Books, Interval};
use divvy_core::budget::cost::HeldDevice;
use divvy_core::budget::report::Counter;
use divvy_core::budget::timeline;
use divvy_core::budget::{
    Account, AccountKey, Amount, Basis, Bucket, End, Entry, EntryKind, Hold, Rate, Span, Tariff, Terms, Timeline,
};
use divvy_core::id::{ContainerName, DeviceId, Namespace, NodeName, PodKey, PodUid};
use divvy_core::time::Time;
use serde::{Deserialize, Serialize};

/// A balance's name as it is stored: `namespace/name`, or `name` where several namespaces share it.
pub fn account_key(text: &str) -> AccountKey {
    match text.split_once('/') {
        Some((namespace, name)) => AccountKey { namespace: Some(Namespace::from(namespace)), name: name.into() },
        None => AccountKey { namespace: None, name: text.into() },
    }
}

fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::TopUp => "topUp",
        EntryKind::Credit => "credit",
        EntryKind::Debit => "debit",
    }
}

/// A balance, to be stored.
pub fn books(account: &Account, at: Time) -> Books {
    let bucket = |b: &Bucket| BookBucket {
        start: b.start.0,
        end: b.end.0,
        granted: b.granted.exact(),
        folded: b.folded.0.exact(),
        folded_refunds: b.folded.1.exact(),
    };
    let entry = |(id, e): (&Arc<str>, &Entry)| {
        let kind = kind_name(e.kind).to_owned();
        (id.to_string(), BookEntry { kind, amount: e.amount.exact(), at: e.at.0 })
    };
    Books {
        at: at.max(account.decided).0,
        since: account.since.0,
        through: account.through.0,
        empty_since: account.empty_since.map(|t| t.0),
        out: account.timeline.intervals().iter().map(|i| Interval { from: i.from.0, to: i.to.map(|t| t.0) }).collect(),
        buckets: account.buckets.iter().map(bucket).collect(),
        entries: account.entries.iter().map(entry).collect(),
    }
}

/// A balance as it was stored, under the terms of now. None where it cannot be read.
pub fn account(books: &Books, terms: Terms, window: usize) -> Option<Account> {
    let bucket = |b: &BookBucket| {
        Some(Bucket {
            start: Time(b.start),
            end: Time(b.end),
            granted: Amount::from_exact(&b.granted)?,
            folded: (Amount::from_exact(&b.folded)?, Amount::from_exact(&b.folded_refunds)?),
            ..Bucket::default()
        })
    };
    let entry = |(id, e): (&String, &BookEntry)| {
        let kind = match e.kind.as_str() {
            "topUp" => EntryKind::TopUp,
            "credit" => EntryKind::Credit,
            "debit" => EntryKind::Debit,
            _ => return None,
        };
        Some((Arc::from(id.as_str()), Entry { kind, amount: Amount::from_exact(&e.amount)?, at: Time(e.at) }))
    };
    let interval = |i: &Interval| timeline::Interval { from: Time(i.from), to: i.to.map(Time) };
    Some(Account {
        terms,
        since: Time(books.since),
        window,
        buckets: books.buckets.iter().map(bucket).collect::<Option<VecDeque<_>>>()?,
        entries: books.entries.iter().map(entry).collect::<Option<BTreeMap<_, _>>>()?,
        timeline: Timeline::of(books.out.iter().map(interval)),
        empty_since: books.empty_since.map(Time),
        through: Time(books.through),
        decided: Time(0),
    })
}

/// A counter of busy time: what it said, and when.
type Moments = Vec<(Time, u64)>;

/// A hold as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredHold {
    uid: PodUid,
    namespace: Namespace,
    name: Arc<str>,
    node: NodeName,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    by_choice: bool,
    spans: Vec<StoredSpan>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<Time>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    evicted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    busy: Vec<(ContainerName, DeviceId, Moments)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredSpan {
    from: Time,
    devices: Vec<HeldDevice>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tariffs: Vec<StoredTariff>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredTariff {
    account: String,
    basis: Basis,
    /// Of a size JSON has no number for.
    rates: Vec<String>,
    opportunistic: u8,
}

impl From<&Hold> for StoredHold {
    fn from(hold: &Hold) -> StoredHold {
        let tariff = |(key, tariff): &(AccountKey, Tariff)| StoredTariff {
            account: key.to_string(),
            basis: tariff.basis,
            rates: tariff.rates.iter().map(|rate| rate.0.to_string()).collect(),
            opportunistic: tariff.opportunistic,
        };
        let span = |span: &Span| StoredSpan {
            from: span.from,
            devices: span.devices.to_vec(),
            tariffs: span.tariffs.iter().map(tariff).collect(),
        };
        let busy = hold.busy.iter().map(|((c, d), counter)| (c.clone(), d.clone(), counter.moments().collect()));
        StoredHold {
            uid: hold.uid.clone(),
            namespace: hold.pod.namespace.clone(),
            name: hold.pod.name.to_string().into(),
            node: hold.node.clone(),
            by_choice: hold.by_choice,
            spans: hold.spans.iter().map(span).collect(),
            end: hold.end.map(|end| end.at),
            evicted: hold.evicted(),
            left: hold.left,
            lost: hold.lost,
            busy: busy.collect(),
        }
    }
}

impl StoredHold {
    /// The hold as it was. None where it cannot be read.
    pub fn hold(self) -> Option<Hold> {
        let tariff = |t: &StoredTariff| {
            let rates = t.rates.iter().map(|text| text.parse().ok().map(Rate)).collect::<Option<Vec<_>>>()?;
            Some((account_key(&t.account), Tariff { basis: t.basis, rates, opportunistic: t.opportunistic }))
        };
        let span = |s: StoredSpan| {
            let tariffs = s.tariffs.iter().map(tariff).collect::<Option<Vec<_>>>()?;
            Some(Span { from: s.from, devices: s.devices.into(), tariffs })
        };
        let spans = self.spans.into_iter().map(span).collect::<Option<Vec<_>>>()?;
        let pod = PodKey::new(self.namespace, &*self.name);
        let mut hold = Hold::new(self.uid, pod, self.node, Time(0), Vec::new());
        hold.spans = spans;
        hold.by_choice = self.by_choice;
        hold.end = self.end.map(|at| End { at, evicted: self.evicted });
        (hold.left, hold.lost) = (self.left, self.lost);
        for (container, device, moments) in self.busy {
            let mut counter = Counter::default();
            moments.into_iter().for_each(|(at, busy)| counter.tell(at, busy));
            hold.busy.insert((container, device), counter);
        }
        Some(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use divvy_core::budget::{CostRule, Prices};
    use divvy_core::units::{Bytes, Share};

    fn device() -> HeldDevice {
        HeldDevice {
            device: "GPU-0".into(),
            model: "H200".into(),
            share: Share(333),
            memory: Bytes::gib(3),
            of_share: Share::WHOLE,
            of_memory: Bytes::gib(141),
            alone: false,
        }
    }

    #[test]
    fn a_hold_comes_back_as_it_was() {
        let mut hold = Hold::new("u".into(), PodKey::new("n", "p"), "n0".into(), Time(5), vec![device()]);
        let rule = CostRule { prices: Prices::time(), ..CostRule::default() };
        hold.spans[0].tariffs =
            vec![(account_key("n/b"), rule.tariff(&[device()])), (account_key("all"), rule.tariff(&[device()]))];
        hold.end = Some(End { at: Time(99), evicted: true });
        hold.left = Some(Time(98));
        let mut counter = Counter::default();
        counter.tell(Time(50), 7);
        hold.busy.insert(("c".into(), "GPU-0".into()), counter);
        let text = serde_json::to_string(&StoredHold::from(&hold)).unwrap();
        let back: StoredHold = serde_json::from_str(&text).unwrap();
        assert_eq!(back.hold().unwrap(), hold);
    }

    #[test]
    fn an_account_comes_back_as_it_was_less_what_holds_will_tell_again() {
        let mut kept = Account::new(Terms::default(), Time(3), 1);
        kept.buckets.push_back(Bucket {
            start: Time(0),
            end: Time(10),
            granted: Amount::units(7),
            folded: (Amount::micros(1), Amount::micros(2)),
            ..Bucket::default()
        });
        kept.entries.insert("e".into(), Entry { kind: EntryKind::Debit, amount: Amount::micros(5), at: Time(4) });
        kept.timeline.begin(Time(6));
        kept.empty_since = Some(Time(6));
        let stored: Books = serde_json::from_value(serde_json::to_value(books(&kept, Time(9))).unwrap()).unwrap();
        assert_eq!((account(&stored, Terms::default(), 1).unwrap(), stored.at), (kept, 9));
    }
}
