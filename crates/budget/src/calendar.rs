//! Calendars: where a budget's period begins and ends.

use std::collections::BTreeMap;

use divvy_api::budget::Period;
use divvy_api::budget::spec::Every;
use divvy_core::budget::{AccountKey, Calendar};
use divvy_core::time::Time;
use jiff::civil::Date;
use jiff::{Span, Timestamp, Zoned};

/// The end of what has none: the last moment of the year 9999.
pub const FOREVER: Time = Time(253_402_300_799_000);

/// The periods of all balances.
#[derive(Clone, Debug, Default)]
pub struct Calendars(pub BTreeMap<AccountKey, Period>);

impl Calendar for Calendars {
    fn bucket(&self, account: &AccountKey, at: Time) -> (Time, Time) {
        match self.0.get(account) {
            None | Some(Period::Once) => (Time(0), FOREVER),
            Some(Period::Rolling(length)) => {
                let step = (length / Period::STEPS as u64).max(1);
                let start = at.0 / step * step;
                (Time(start), Time(start + step))
            }
            Some(Period::Calendar(every, zone)) => calendar(*every, zone, at).unwrap_or((Time(0), FOREVER)),
        }
    }
}

fn calendar(every: Every, zone: &jiff::tz::TimeZone, at: Time) -> Option<(Time, Time)> {
    let now = Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()?.to_zoned(zone.clone());
    if every == Every::Hour {
        // By the zone's own wall clock, but never longer or shorter than an hour: the clocks' change moves no balance.
        let into = i64::from(now.minute()) * 60_000 + i64::from(now.second()) * 1000 + i64::from(now.millisecond());
        let start = now.timestamp().as_millisecond() - into;
        return Some((Time(u64::try_from(start).ok()?), Time(u64::try_from(start + 3_600_000).ok()?)));
    }
    let date = now.date();
    let (first, length) = match every {
        Every::Hour | Every::Day => (date, Span::new().days(1)),
        Every::Week => {
            let back = i64::from(date.weekday().to_monday_zero_offset());
            (date.checked_sub(Span::new().days(back)).ok()?, Span::new().days(7))
        }
        Every::Month => (Date::new(date.year(), date.month(), 1).ok()?, Span::new().months(1)),
        Every::Quarter => (Date::new(date.year(), (date.month() - 1) / 3 * 3 + 1, 1).ok()?, Span::new().months(3)),
        Every::Year => (Date::new(date.year(), 1, 1).ok()?, Span::new().years(1)),
    };
    let next = first.checked_add(length).ok()?;
    let moment = |date: Date| -> Option<Time> {
        let start: Zoned = date.to_zoned(zone.clone()).ok()?;
        u64::try_from(start.timestamp().as_millisecond()).ok().map(Time)
    };
    Some((moment(first)?, moment(next)?))
}

/// A moment as the API writes it, to the second.
pub fn stamp(at: Time) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()).unwrap_or_default()
}

/// A moment as the audit trail writes it, to the millisecond.
pub fn exact(at: Time) -> String {
    let at = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()).unwrap_or_default()
}

/// A moment for people: `Thu 19 Nov 14:00 UTC`, in the budget's own zone.
pub fn spoken(at: Time, period: &Period) -> String {
    let zone = match period {
        Period::Calendar(_, zone) => zone.clone(),
        _ => jiff::tz::TimeZone::UTC,
    };
    let at = i64::try_from(at.0).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map(|at| at.to_zoned(zone).strftime("%a %-d %b %H:%M %Z").to_string()).unwrap_or_default()
}

/// Reads a moment as the API writes it.
pub fn read(text: &str) -> Option<Time> {
    let at: Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(every: Every, zone: &str, at: &str) -> (String, String) {
        let zone = jiff::tz::TimeZone::get(zone).unwrap();
        let key = AccountKey { namespace: None, name: "b".into() };
        let calendars = Calendars([(key.clone(), Period::Calendar(every, zone))].into());
        let (start, end) = calendars.bucket(&key, read(at).unwrap());
        (stamp(start), stamp(end))
    }

    #[test]
    fn periods_turn_at_midnight_where_the_budget_lives() {
        let of = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            bucket(Every::Month, "Europe/Berlin", "2026-11-16T01:00:00Z"),
            of("2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z")
        );
        assert_eq!(
            bucket(Every::Month, "Europe/Berlin", "2026-10-31T23:00:00Z"),
            of("2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"),
            "the first moment belongs to the new period"
        );
        assert_eq!(
            bucket(Every::Week, "UTC", "2026-11-16T01:00:00Z"),
            of("2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z")
        );
        assert_eq!(
            bucket(Every::Quarter, "UTC", "2026-11-16T01:00:00Z"),
            of("2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z")
        );
        assert_eq!(
            bucket(Every::Year, "UTC", "2026-11-16T01:00:00Z"),
            of("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z")
        );
    }

    #[test]
    fn the_day_the_clocks_change_has_25_hours() {
        let (start, end) = bucket(Every::Day, "Europe/Berlin", "2026-10-25T12:00:00Z");
        assert_eq!(read(&end).unwrap().millis_since(read(&start).unwrap()), 25 * 3_600_000);
    }

    #[test]
    fn every_moment_lies_in_its_own_period() {
        let zone = jiff::tz::TimeZone::get("America/New_York").unwrap();
        let key = AccountKey { namespace: None, name: "b".into() };
        for every in [Every::Hour, Every::Day, Every::Week, Every::Month, Every::Quarter, Every::Year] {
            let calendars = Calendars([(key.clone(), Period::Calendar(every, zone.clone()))].into());
            let mut at = read("2026-01-01T00:00:00Z").unwrap();
            while at < read("2027-02-01T00:00:00Z").unwrap() {
                let (start, end) = calendars.bucket(&key, at);
                assert!(start <= at && at < end, "{every:?} {}", stamp(at));
                assert!(
                    calendars.bucket(&key, end).0 == end,
                    "{every:?}: the next begins where this ends, {}",
                    stamp(end)
                );
                at = Time(at.0 + 7 * 3_600_000 + 13);
            }
        }
    }

    #[test]
    fn what_has_no_period_never_turns_and_a_rolling_one_moves_in_steps() {
        let key = AccountKey { namespace: None, name: "b".into() };
        assert_eq!(Calendars::default().bucket(&key, Time(5)), (Time(0), FOREVER));
        let rolling = Calendars([(key.clone(), Period::Rolling(30 * 86_400_000))].into());
        let (start, end) = rolling.bucket(&key, read("2026-11-16T01:00:00Z").unwrap());
        assert_eq!((stamp(start), stamp(end)), ("2026-11-16T00:00:00Z".into(), "2026-11-17T00:00:00Z".into()));
    }
}
