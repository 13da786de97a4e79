//! Whole runs of several tenants, with and without the arbiter, and what they had of the card.

use divvy_limiter::Tuning;

use super::{Card, Program, SEC};

/// Request, limit, program.
pub(crate) type Tenant = (u32, u32, Program);

pub(crate) const SECONDS: u64 = 8;

pub(crate) fn managed(tenants: &[Tenant]) -> Card {
    run(Card::new(Tuning::default()), tenants)
}

pub(crate) fn unmanaged(tenants: &[Tenant]) -> Card {
    run(Card::new(Tuning::default()).unmanaged(), tenants)
}

pub(crate) fn run(mut card: Card, tenants: &[Tenant]) -> Card {
    for &(request, limit, program) in tenants {
        card.add(request, limit, program);
    }
    // The first second is for settling.
    card.run_until((SECONDS + 1) * SEC);
    card
}

/// Each tenant's part of all GPU time between two moments, in thousandths.
pub(crate) fn parts(card: &Card, from: u64, to: u64) -> Vec<u32> {
    let shares = card.shares(from, to);
    let sum = shares.iter().sum::<u32>().max(1);
    shares.iter().map(|s| s * 1000 / sum).collect()
}

pub(crate) fn within(found: &[u32], asked: &[u32], tolerance: u32) -> bool {
    found.iter().zip(asked).all(|(f, a)| f.abs_diff(*a) <= tolerance)
}
