//! Busy time, per process and per unit: a running total, and buckets of the recent past for NVML's samples.

use std::sync::atomic::Ordering::SeqCst;

use super::layout::{BUCKET, BUCKETS, BucketCell};
use super::{Machine, Seat, Unit};

fn add(buckets: &[BucketCell; BUCKETS], mut from: u64, to: u64) {
    while from < to {
        let number = from / BUCKET + 1;
        let end = (number * BUCKET).min(to);
        let cell = &buckets[(number as usize) % BUCKETS];
        let found = cell.number.load(SeqCst);
        if found < number && cell.number.compare_exchange(found, number, SeqCst, SeqCst).is_ok() {
            cell.busy.store(0, SeqCst);
        }
        cell.busy.fetch_add(end - from, SeqCst);
        from = end;
    }
}

/// Nanoseconds of the bucket in which time `at` lies.
fn read(buckets: &[BucketCell; BUCKETS], at: u64) -> u64 {
    let number = at / BUCKET + 1;
    let cell = &buckets[(number as usize) % BUCKETS];
    if cell.number.load(SeqCst) == number { cell.busy.load(SeqCst) } else { 0 }
}

impl Machine {
    /// Books busy time of this process on a unit.
    pub fn book(&self, seat: &Seat, unit: Unit, from: u64, to: u64) {
        if to > from {
            let account = seat.account(unit);
            account.busy.fetch_add(to - from, SeqCst);
            add(&account.buckets, from, to);
            self.layout.units[unit.0].busy.fetch_add(to - from, SeqCst);
            add(&self.layout.units[unit.0].buckets, from, to);
        }
    }

    /// Nanoseconds a unit was busy, ever.
    #[must_use]
    pub fn busy(&self, unit: Unit) -> u64 {
        self.layout.units[unit.0].busy.load(SeqCst)
    }

    /// Nanoseconds a unit was busy in the bucket in which `at` lies.
    #[must_use]
    pub fn busy_around(&self, unit: Unit, at: u64) -> u64 {
        read(&self.layout.units[unit.0].buckets, at)
    }

    /// Nanoseconds a process was busy on a unit in the bucket in which `at` lies.
    #[must_use]
    pub fn tenant_busy_around(&self, unit: Unit, seat: usize, at: u64) -> u64 {
        read(&self.account(unit, seat).buckets, at)
    }
}
