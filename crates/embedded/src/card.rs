//! What programs get of a simulated card: the limiter's own decisions on a model of one, for a short while.
//!
//! A card runs the work of tenants whose gates are open. Everything about gates, turns and charges is [`Domain`]'s; the model only
//! says what programs want (bursts of kernels, pauses between them) and lets time pass.

use std::collections::BTreeMap;

use divvy_limiter::{Domain, Ns, Seen, Shares, Tuning};

/// How long a card is watched to see what everybody gets. Long against a turn and the duty cycle of a limit.
const WATCHED: Ns = 150_000_000;
/// Left out at the beginning: chunk sizes and costs are being learnt.
const SETTLING: Ns = 50_000_000;
const KERNEL: Ns = 200_000;
/// GPU work a program queues before it waits for the outcome.
const BURST: Ns = 6_000_000;

/// Cards remembered.
const REMEMBERED: usize = 50_000;

/// A program on a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Guaranteed time, in thousandths.
    pub request: u32,
    /// Most time, in thousandths.
    pub limit: u32,
    /// What it would use if it were alone and unlimited, in thousandths.
    pub appetite: u32,
}

/// What a program got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Of the card's time, in thousandths.
    pub share: u32,
    /// Time with work behind a closed gate, in thousandths.
    pub throttled: u32,
}

struct Tenant {
    work: Ns,
    pause: Ns,
    /// GPU work left of the burst.
    left: Ns,
    /// Part of the kernel that runs.
    part: Ns,
    wakes: Ns,
    submitted: u32,
    completed: u32,
    used: Ns,
    throttled_before: Ns,
}

impl Tenant {
    fn of(program: &Program, place: usize) -> Tenant {
        let appetite = Ns::from(program.appetite.clamp(1, 1000));
        let pause = BURST * (1000 - appetite) / appetite;
        // Programs do not begin together.
        let wakes = pause * (place as Ns + 1) / 7;
        Tenant { work: BURST, pause, left: 0, part: 0, wakes, submitted: 0, completed: 0, used: 0, throttled_before: 0 }
    }

    fn wake(&mut self, now: Ns) {
        if self.left == 0 && now >= self.wakes {
            self.left = self.work;
            self.submitted = self.submitted.wrapping_add((self.work / KERNEL) as u32);
        }
    }

    fn run(&mut self, time: Ns, now: Ns, counted: bool) -> Ns {
        let time = time.min(self.left);
        self.left -= time;
        self.part += time;
        self.completed = self.completed.wrapping_add((self.part / KERNEL) as u32);
        self.part %= KERNEL;
        if counted {
            self.used += time;
        }
        if self.left == 0 {
            self.wakes = now + self.pause;
        }
        time
    }

    fn seen(&self) -> Seen {
        let queued = self.submitted.wrapping_sub(self.completed);
        Seen {
            queued,
            filling: 0,
            streams: u32::from(queued > 0),
            completed: self.completed,
            submitted: self.submitted,
        }
    }
}

/// Cards that were watched before: the same programs get the same.
#[derive(Debug, Default)]
pub struct Watched(BTreeMap<Vec<Program>, Vec<Got>>);

impl Watched {
    /// What each of these programs gets of one card.
    pub fn share_out(&mut self, programs: Vec<Program>) -> Vec<Got> {
        if self.0.len() == REMEMBERED {
            self.0.clear();
        }
        self.0.entry(programs).or_insert_with_key(|programs| share_out(programs)).clone()
    }
}

/// What each of these programs gets of one card.
pub fn share_out(programs: &[Program]) -> Vec<Got> {
    let mut domain = Domain::new(1, Tuning::default());
    let mut tenants: Vec<Tenant> = Vec::with_capacity(programs.len());
    for (place, program) in programs.iter().enumerate() {
        domain.add(Shares { request: program.request.min(program.limit), limit: program.limit }, &[0]);
        tenants.push(Tenant::of(program, place));
    }
    let mut open = vec![true; tenants.len()];
    let mut seen = vec![Seen::default(); tenants.len()];
    let mut now: Ns = 0;
    let mut settled = false;
    while now < SETTLING + WATCHED && !tenants.is_empty() {
        for (tenant, seen) in tenants.iter_mut().zip(&mut seen) {
            tenant.wake(now);
            *seen = tenant.seen();
        }
        let outcome = domain.step(now, &seen);
        for directive in domain.directives() {
            open[directive.lane.0] = directive.open;
            if !settled {
                tenants[directive.lane.0].throttled_before = directive.throttled;
            }
        }
        settled = now >= SETTLING;
        let waking = tenants.iter().filter(|t| t.left == 0).map(|t| t.wakes.saturating_sub(now)).min();
        let step = outcome.next.min(waking.unwrap_or(Ns::MAX)).clamp(25_000, 1_000_000);
        // The driver slices time among those whose gates are open.
        let mut rest = step;
        for _ in 0..2 {
            let ready = (0..tenants.len()).filter(|i| open[*i] && tenants[*i].left > 0).count() as Ns;
            if ready == 0 {
                break;
            }
            let each = rest / ready;
            for (tenant, open) in tenants.iter_mut().zip(&open) {
                if *open && tenant.left > 0 {
                    rest -= tenant.run(each, now + step, settled);
                }
            }
        }
        now += step;
    }
    let throttled: Vec<Ns> = domain.directives().map(|d| d.throttled).collect();
    let part = |time: Ns| (time.saturating_mul(1000) / WATCHED).min(1000) as u32;
    let got =
        |(t, all): (&Tenant, &Ns)| Got { share: part(t.used), throttled: part(all.saturating_sub(t.throttled_before)) };
    tenants.iter().zip(&throttled).map(got).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(request: u32, limit: u32, appetite: u32) -> Program {
        Program { request, limit, appetite }
    }

    fn shares(programs: &[Program]) -> Vec<u32> {
        share_out(programs).iter().map(|got| got.share).collect()
    }

    #[track_caller]
    fn near(found: &[u32], expected: &[u32]) {
        let close = found.iter().zip(expected).all(|(f, e)| f.abs_diff(*e) <= 50);
        assert!(close && found.len() == expected.len(), "{found:?}, expected {expected:?}");
    }

    #[test]
    fn two_greedy_programs_get_what_they_asked_for() {
        near(&shares(&[program(300, 1000, 1000), program(700, 1000, 1000)]), &[300, 700]);
    }

    #[test]
    fn a_lone_program_is_held_to_its_limit() {
        near(&shares(&[program(200, 400, 1000)]), &[400]);
        let got = share_out(&[program(200, 400, 1000)]);
        assert!(got[0].throttled > 400, "{got:?}");
    }

    #[test]
    fn what_an_idle_program_leaves_goes_to_the_busy_one() {
        near(&shares(&[program(700, 1000, 100), program(300, 1000, 1000)]), &[100, 900]);
    }
}
