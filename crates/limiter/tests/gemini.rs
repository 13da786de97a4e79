//! What Gemini's users could count on, case by case (`GM-..`): its tokens and windows are translated to turns and virtual time, the
//! outcome for the user is kept.

mod model;

use divvy_limiter::{Domain, Ns, Seen, Shares, Tuning};
use model::{Card, MS, Program, SEC, US};

fn shares(request: u32, limit: u32) -> Shares {
    Shares { request, limit }
}

fn card(tenants: &[(u32, u32, Program)], seconds: u64) -> Card {
    let mut card = Card::new(Tuning::default());
    for &(request, limit, program) in tenants {
        card.add(request, limit, program);
    }
    card.run_until(seconds * SEC);
    card
}

/// Looks of a tenant that has work all the time: a unit of 200 us is done whenever its gate was open for that long.
struct Busy {
    seen: Seen,
    ran: Ns,
}

impl Busy {
    fn new() -> Busy {
        Busy { seen: Seen { queued: 4, filling: 0, streams: 1, completed: 0, submitted: 4 }, ran: 0 }
    }

    fn pass(&mut self, open: bool, time: Ns) {
        if open || !self.ran.is_multiple_of(200 * US) {
            self.ran += time;
            let done = (self.ran / (200 * US)) as u32;
            self.seen.submitted += done - self.seen.completed;
            self.seen.completed = done;
        }
    }
}

/// Runs tenants that are always busy, each from its moment on, for `time`; who was open at each look.
fn looks(domain: &mut Domain, tenants: &mut [(Ns, Busy)], from: Ns, time: Ns) -> Vec<Vec<bool>> {
    let mut all = Vec::new();
    for k in 1..=time / (25 * US) {
        let now = from + k * 25 * US;
        let open: Vec<bool> = domain.directives().map(|d| d.open).collect();
        for ((begins, busy), open) in tenants.iter_mut().zip(open) {
            if now > *begins {
                busy.pass(open, 25 * US);
            }
        }
        let seen: Vec<Seen> =
            tenants.iter().map(|(begins, b)| if now > *begins { b.seen } else { Seen::default() }).collect();
        domain.step(now, &seen);
        all.push(domain.directives().map(|d| d.open).collect());
    }
    all
}

/// Tokens follow the length of bursts: who works in short bursts holds the card for short.
#[test]
fn gm_01_a_turn_is_as_long_as_the_burst_it_serves() {
    let bursts = |kernels| Program { kernel: 100 * US, burst: kernels, think: 5 * MS, ..Program::mm() };
    let neighbour = Program { burst: 0, ..Program::mm() };
    for kernels in [1, 10, 100] {
        let card = card(&[(500, 1000, bursts(kernels)), (500, 1000, neighbour)], 4);
        // The neighbour never stands still for much longer than one such burst: a switch, a chunk, a late look.
        let most = u64::from(kernels) * 100 * US + 3 * MS;
        assert!(card.worst_wait(1) <= most, "{kernels} kernels: waited {} us", card.worst_wait(1) / US);
    }
}

#[test]
fn gm_02_a_tiny_limit_bounds_a_run_however_long_the_burst() {
    let card = card(&[(1, 1, Program::mm())], 10);
    // A thousandth of ten seconds is ten milliseconds; a bucket and a chunk on top.
    let had: u32 = card.shares(0, 10 * SEC)[0];
    assert!(had <= 2, "had {had} thousandths");
    assert!(card.kernels()[0] > 0, "and yet it runs");
}

#[test]
fn gm_03_the_very_first_run_is_bounded_too() {
    let card = card(&[(1, 1, Program::mm())], 1);
    assert!(card.shares(0, 100 * MS)[0] <= 100, "had {} thousandths of the first tenth", card.shares(0, 100 * MS)[0]);
}

#[test]
fn gm_04_who_lacks_more_of_its_request_goes_first() {
    let mut domain = Domain::new(1, Tuning::default());
    domain.add(shares(500, 1000), &[0]);
    domain.add(shares(300, 1000), &[0]);
    // Alone for twice as long, within what an idle tenant keeps to its credit: 20/0.5 = 40 against 9/0.3 = 30.
    let mut tenants = [(0, Busy::new()), (0, Busy::new())];
    let first = looks(&mut domain, &mut tenants, 0, 20 * MS);
    assert!(first.iter().any(|o| o[0]) && first.iter().any(|o| o[1]), "both had turns");
    let charged: Vec<Ns> = domain.directives().map(|d| d.charged).collect();
    let behind = if charged[0] * 3 > charged[1] * 5 { 1 } else { 0 };
    let next = looks(&mut domain, &mut tenants, 20 * MS, 10 * MS);
    let time = |i: usize| next.iter().filter(|o| o[i]).count();
    assert!(time(behind) > 0, "who was behind ({charged:?}) has its turn");
    let virt = |i: usize, request: u64| domain.directives().nth(i).unwrap().charged * 1000 / request;
    assert!(virt(0, 500).abs_diff(virt(1, 300)) < 15 * MS, "and catches up");
}

#[test]
fn gm_06_beyond_their_requests_the_one_that_used_less_goes_first() {
    let mut domain = Domain::new(1, Tuning::default());
    domain.add(shares(100, 1000), &[0]);
    domain.add(shares(100, 1000), &[0]);
    let mut tenants = [(0, Busy::new()), (6 * MS, Busy::new())];
    looks(&mut domain, &mut tenants, 0, 6 * MS);
    let next = looks(&mut domain, &mut tenants, 6 * MS, 3 * MS);
    let (first, second) = (next.iter().filter(|o| o[0]).count(), next.iter().filter(|o| o[1]).count());
    assert!(second > first, "{second} looks against {first}");
}

#[test]
fn gm_07_who_is_at_its_limit_waits_until_use_ages_out() {
    let mut domain = Domain::new(1, Tuning::default());
    domain.add(shares(300, 300), &[0]);
    let mut tenants = [(0, Busy::new())];
    let open = looks(&mut domain, &mut tenants, 0, SEC);
    let runs: Vec<usize> = open.chunk_by(|a, b| a == b).filter(|run| run[0][0]).map(<[_]>::len).collect();
    let part = open.iter().filter(|o| o[0]).count() * 1000 / open.len();
    assert!((280..=330).contains(&part), "open for {part} thousandths");
    assert!(runs.len() >= 15, "in {} runs, not in one", runs.len());
}

#[test]
fn gm_08_the_next_decision_is_never_far() {
    let mut domain = Domain::new(1, Tuning::default());
    domain.add(shares(300, 300), &[0]);
    let mut busy = Busy::new();
    for k in 1..8000u64 {
        let open = domain.directives().next().unwrap().open;
        busy.pass(open, 25 * US);
        let outcome = domain.step(k * 25 * US, &[busy.seen]);
        assert!(outcome.next <= 1200 * MS, "{}", outcome.next);
    }
}

#[test]
fn gm_09_time_in_which_two_ran_at_once_is_half_each_ones() {
    let mut domain = Domain::new(1, Tuning::default());
    domain.add(shares(500, 1000), &[0]);
    domain.add(shares(500, 1000), &[0]);
    // Of neither is anything known. The first's one chunk runs from 0 to 100 ms, the second's from 50 to 150.
    let work = Seen { queued: 1, filling: 0, streams: 1, completed: 0, submitted: 1 };
    let done = Seen { queued: 0, streams: 0, completed: 1, ..work };
    for k in 0..=6000u64 {
        let now = k * 25 * US;
        let first = if now <= 100 * MS { work } else { done };
        let second = match now {
            ..50_000_000 => Seen::default(),
            50_000_000..=150_000_000 => work,
            _ => done,
        };
        domain.step(now, &[first, second]);
    }
    let charged: Vec<Ns> = domain.directives().map(|d| d.charged / MS).collect();
    assert!(charged[0].abs_diff(75) <= 8 && charged[1].abs_diff(75) <= 8, "{charged:?} ms");
}

#[test]
fn gm_11_work_that_runs_on_after_its_turn_is_charged() {
    let card = card(&[(500, 1000, Program::kernels_of(80 * MS)), (500, 1000, Program::mm())], 6);
    let (charged, had) = card.charged()[0];
    assert!(charged.abs_diff(had) < had / 5, "charged {} ms, had {} ms", charged / MS, had / MS);
}

#[test]
fn gm_12_alone_it_may_use_everything() {
    let had = card(&[(200, 1000, Program::mm())], 4).shares(SEC, 4 * SEC)[0];
    assert!(had >= 970, "{had}");
}

#[test]
fn gm_13_two_that_are_always_busy_get_at_least_their_requests() {
    let had = card(&[(300, 1000, Program::mm()), (600, 1000, Program::mm())], 11).shares(SEC, 11 * SEC);
    assert!(had[0] >= 300 && had[1] >= 600, "{had:?}");
}

#[test]
fn gm_14_a_limit_holds_beside_a_neighbour_that_takes_the_rest() {
    let had = card(&[(200, 300, Program::mm()), (200, 1000, Program::mm())], 11).shares(SEC, 11 * SEC);
    assert!(had[0] <= 310 && had[1] >= 640, "{had:?}");
}

/// A token's last launch could overrun it by a whole burst; a turn is overrun by what is in flight, which is a chunk.
#[test]
fn gm_21_what_is_begun_in_a_turn_is_at_most_a_chunk() {
    for kernel in [5 * US, 50 * US, 400 * US] {
        let program = Program { kernel, burst: 0, ..Program::mm() };
        let card = card(&[(500, 1000, program), (500, 1000, program)], 2);
        for d in card.domain.directives() {
            let chunk = u64::from(d.chunk_units) * u64::from(d.unit_ns);
            assert!(chunk <= 750 * US, "{kernel}: chunks of {} us", chunk / US);
        }
    }
}

#[test]
fn gm_28_a_changed_limit_holds_within_a_window_and_history_stays() {
    let mut card = Card::new(Tuning::default());
    let tenant = card.add(500, 1000, Program::mm());
    card.run_until(2 * SEC);
    let before = card.charged()[0].0;
    card.set_shares(tenant, 500, 500);
    assert_eq!(card.charged()[0].0, before, "what was used stays used");
    card.run_until(5 * SEC);
    let had = card.shares(2 * SEC + 200 * MS, 5 * SEC)[0];
    assert!(had.abs_diff(500) <= 20, "{had}");
}
