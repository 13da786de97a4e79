//! Shares on a modelled card: what each tenant's kernels really had, against what was asked.

mod model;

use divvy_limiter::Tuning;
use model::runs::{SECONDS, Tenant, managed, parts, run, unmanaged, within};
use model::{Card, MS, Program, SEC, US};

/// How fast each tenant was, in thousandths of alone, summed.
fn progress(card: &Card, tenants: &[Tenant]) -> u64 {
    let alone = tenants.iter().map(|&t| unmanaged(&[t]).kernels()[0]);
    card.kernels().iter().zip(alone).map(|(k, a)| k * 1000 / a.max(1)).sum()
}

fn gpu_bound(kernel: u64, requests: &[u32]) {
    let tenants: Vec<Tenant> = requests.iter().map(|&r| (r, 1000, Program::kernels_of(kernel))).collect();
    let card = managed(&tenants);
    let over_all = parts(&card, SEC, (SECONDS + 1) * SEC);
    assert!(within(&over_all, requests, 20), "asked {requests:?}, got {over_all:?}");
    for second in 1..=SECONDS {
        let found = parts(&card, second * SEC, (second + 1) * SEC);
        assert!(within(&found, requests, 40), "second {second}: asked {requests:?}, got {found:?}");
    }
    let (ours, plain) = (card.kernels().iter().sum::<u64>(), unmanaged(&tenants).kernels().iter().sum::<u64>());
    assert!(ours >= plain, "{ours} kernels, {plain} without an arbiter");
    books_are_true(&card);
}

/// What was charged, against what kernels had: whose the time of changing over is does not change anybody's part.
fn books_are_true(card: &Card) {
    let books = card.charged();
    let (charged, had) = books.iter().fold((0, 0), |(c, h), (charged, had)| (c + charged, h + had));
    for (its_charged, its_had) in &books {
        let (charged, had) = (its_charged * 1000 / charged, its_had * 1000 / had);
        assert!(charged.abs_diff(had) <= 15, "charged {charged} thousandths, had {had}");
    }
}

/// Kernels of many lengths, and gaps in between: what is booked of them is what they take, or a limit is none.
#[test]
fn a_lone_training_program_keeps_to_its_limit() {
    for limit in [300, 500] {
        let card = managed(&[(limit, limit, Program::train())]);
        let had = card.shares(SEC, (SECONDS + 1) * SEC)[0];
        assert!(had.abs_diff(limit) <= 20, "limit {limit}, had {had}");
    }
}

/// The CPU is the bottleneck, so chunks are filled more slowly than the card works: the card may do much in one, or nothing. And what
/// was known is of what the program did before.
#[test]
fn a_lone_program_that_is_held_up_by_launching_keeps_to_its_limit_whatever_it_turns_to() {
    let launches = Program { launch: 15 * US, burst: 400, think: 200 * US, ..Program::kernels_of(3 * US) };
    let heavier = Program { turns_at: 2 * SEC, turns_to: 11 * US, ..launches };
    let with_head = Program { launch: 18 * US, burst: 228, think: 547 * US, head: 11, wide: 133 * US, ..launches };
    for (limit, program) in [(300, heavier), (300, with_head), (400, Program { head: 60, ..with_head })] {
        let card = managed(&[(limit, limit, program)]);
        let had = card.shares(3 * SEC, (SECONDS + 1) * SEC)[0];
        assert!(had.abs_diff(limit) <= 60, "limit {limit}, had {had}");
    }
}

/// A mean of what a program's kernels take says little about the chunk that runs on when the turn is another's.
#[test]
fn two_programs_of_long_and_short_kernels_have_equal_parts() {
    let mixed = Program {
        kernel: 10 * US,
        every: 6,
        long: 290 * US,
        launch: 12 * US,
        burst: 95,
        think: 100 * US,
        ..Program::mm()
    };
    for seed in [3, 17, 2024] {
        let card = run(Card::new(Tuning::default()).seeded(seed), &[(500, 1000, mixed), (500, 1000, mixed)]);
        books_are_true(&card);
        for second in 1..=SECONDS {
            let found = parts(&card, second * SEC, (second + 1) * SEC);
            assert!(within(&found, &[500, 500], 30), "seed {seed}, second {second}: {found:?}");
        }
    }
}

/// A tenant with few turns pays no more for changing over than its part.
#[test]
fn what_is_booked_is_what_kernels_had_however_small_the_share() {
    for requests in [[100, 900], [300, 700]] {
        for think in [30 * US, 100 * US, 200 * US] {
            let mm = Program { think, kernel: 190 * US, launch: 10 * US, ..Program::mm() };
            let card = managed(&[(requests[0], 1000, mm), (requests[1], 1000, mm)]);
            books_are_true(&card);
            let found = parts(&card, SEC, (SECONDS + 1) * SEC);
            assert!(within(&found, &requests, 20), "paused for {think} ns: asked {requests:?}, got {found:?}");
        }
    }
}

#[test]
fn matrix_products_at_30_and_70() {
    gpu_bound(209 * US, &[300, 700]);
}

#[test]
fn matrix_products_at_10_and_90() {
    gpu_bound(209 * US, &[100, 900]);
}

#[test]
fn matrix_products_at_50_and_50() {
    gpu_bound(209 * US, &[500, 500]);
}

#[test]
fn four_tenants_at_10_20_30_40() {
    gpu_bound(209 * US, &[100, 200, 300, 400]);
}

#[test]
fn kernels_of_five_milliseconds() {
    gpu_bound(5 * MS, &[300, 700]);
    gpu_bound(5 * MS, &[100, 900]);
}

/// Nobody could tell whose kernel ran when two long ones were on the card, and the card would lose time over them: the next one waits for
/// the end of the last one.
#[test]
fn long_kernels_are_not_cut_up_by_those_of_others() {
    for kernel in [2500 * US, 5400 * US, 8 * MS] {
        let long = Program { kernel, burst: 1, think: 70 * US, launch: 20 * US, ..Program::mm() };
        let short = Program { kernel: 209 * US, burst: 9, ..long };
        for (one, other) in [(long, long), (long, short)] {
            for request in [300, 500] {
                let tenants = [(request, 1000, one), (1000 - request, 1000, other)];
                let card = managed(&tenants);
                let found = parts(&card, SEC, (SECONDS + 1) * SEC);
                assert!(within(&found, &[request, 1000 - request], 8), "{request} of {kernel} ns: {found:?}");
            }
        }
    }
}

/// Python is away for longer after it has synchronised than its neighbour needs to notice.
#[test]
fn programs_that_pause_after_each_burst_keep_what_they_are_owed() {
    for pause in [100 * US, 250 * US, 400 * US] {
        let long = Program { kernel: 5 * MS, burst: 4, think: pause, launch: 10 * US, ..Program::mm() };
        let card = managed(&[(300, 1000, long), (700, 1000, long)]);
        let found = parts(&card, SEC, (SECONDS + 1) * SEC);
        assert!(within(&found, &[300, 700], 10), "paused for {pause} ns: {found:?}");
        let mm = Program { think: pause, launch: 10 * US, ..Program::mm() };
        let card = managed(&[(100, 1000, mm), (900, 1000, mm)]);
        let found = parts(&card, SEC, (SECONDS + 1) * SEC);
        assert!(within(&found, &[100, 900], 25), "paused for {pause} ns: {found:?}");
        let card = managed(&[(100, 1000, mm), (200, 1000, mm), (300, 1000, mm), (400, 1000, mm)]);
        let found = parts(&card, SEC, (SECONDS + 1) * SEC);
        assert!(within(&found, &[100, 200, 300, 400], 15), "paused for {pause} ns: {found:?}");
    }
}

/// A network is widest where it begins, and that is where turns end: each drains its queue there. What a launch costs in the mean says
/// nothing about those, and whoever believed it charged one program for the other's beginnings.
#[test]
fn programs_with_their_longest_kernels_after_each_pause_have_what_they_are_charged() {
    let program = |kernel, (every, long), launch, (burst, think), (head, wide)| Program {
        every,
        long: long * US,
        launch: launch * US,
        burst,
        think: think * US,
        head,
        wide: wide * US,
        ..Program::kernels_of(kernel * US)
    };
    let once = program(23, (9, 96), 16, (131, 170), (10, 245));
    let twice = program(10, (8, 346), 21, (154, 170), (23, 357));
    let third = program(21, (9, 96), 18, (221, 193), (17, 372));
    let (wide, narrow) =
        (program(17, (6, 175), 15, (143, 182), (19, 327)), program(31, (7, 230), 9, (296, 400), (2, 46)));
    for (requests, one, other) in [
        ([300, 700], once, once.out_of_step()),
        ([500, 500], twice, twice.out_of_step()),
        ([500, 500], third, third.out_of_step()),
        ([700, 300], wide, narrow),
    ] {
        let card = managed(&[(requests[0], 1000, one), (requests[1], 1000, other)]);
        let found = parts(&card, SEC, (SECONDS + 1) * SEC);
        assert!(within(&found, &requests, 50), "asked {requests:?}, got {found:?}");
    }
}

/// A graph is launched as one, so its whole length is a chunk.
#[test]
fn graphs_of_four_milliseconds_in_bursts_of_two() {
    for requests in [[300, 700], [100, 900]] {
        for pause in [50 * US, 300 * US] {
            for units in [1, 20] {
                let graph = Program { kernel: 4 * MS, burst: 2, think: pause, launch: 20 * US, units, ..Program::mm() };
                let card = managed(&[(requests[0], 1000, graph), (requests[1], 1000, graph)]);
                let found = parts(&card, SEC, (SECONDS + 1) * SEC);
                assert!(
                    within(&found, &requests, 20),
                    "{units} units, paused for {pause} ns: asked {requests:?}, got {found:?}"
                );
            }
        }
    }
}

/// Who ran alone for long and who only had gaps meet with new shares: neither owes the other anything.
#[test]
fn a_request_for_who_had_none_begins_with_a_clean_sheet() {
    let mut card = Card::new(Tuning::default());
    let lone = card.add(500, 1000, Program::mm());
    let ids: Vec<_> = (0..3).map(|_| card.add(0, 1000, Program { from: 3 * SEC, ..Program::mm() })).collect();
    card.run_until(2900 * MS);
    card.set_shares(lone, 100, 1000);
    for (id, request) in ids.into_iter().zip([200, 300, 400]) {
        card.set_shares(id, request, 1000);
    }
    card.run_until(7 * SEC);
    let found = parts(&card, 3500 * MS, 7 * SEC);
    assert!(within(&found, &[100, 200, 300, 400], 20), "{found:?}");
}

#[test]
fn a_program_that_turns_to_other_kernels_is_known_again_within_seconds() {
    for (before, after) in [(5 * MS, 200 * US), (5 * US, 200 * US), (200 * US, 3 * MS)] {
        let other = Program { kernel: before, turns_at: SEC, turns_to: after, ..Program::mm() };
        let mm = Program::mm();
        let card = managed(&[(100, 1000, other), (200, 1000, mm), (300, 1000, mm), (400, 1000, mm)]);
        let found = parts(&card, 3 * SEC, (SECONDS + 1) * SEC);
        assert!(within(&found, &[100, 200, 300, 400], 20), "from {before} to {after} ns: {found:?}");
        let card = managed(&[(100, 1000, other), (900, 1000, mm)]);
        let found = parts(&card, 2 * SEC, (SECONDS + 1) * SEC);
        assert!(within(&found, &[100, 900], 25), "from {before} to {after} ns: {found:?}");
    }
}

#[test]
fn programs_that_leave_the_card_alone_between_their_kernels_run_side_by_side() {
    let token = Program { kernel: 5 * US, launch: 20 * US, burst: 150, think: 100 * US, ..Program::mm() };
    let tenants = [(300, 1000, token), (700, 1000, token)];
    let (card, plain) = (managed(&tenants), unmanaged(&tenants));
    for (ours, plain) in card.kernels().iter().zip(plain.kernels()) {
        assert!(ours * 1000 >= plain * 970, "{ours} against {plain}");
    }
}

#[test]
fn requests_that_leave_some_over_share_the_rest_by_request() {
    let card = managed(&[(200, 1000, Program::mm()), (300, 1000, Program::mm())]);
    let found = parts(&card, SEC, (SECONDS + 1) * SEC);
    assert!(within(&found, &[400, 600], 15), "{found:?}");
}

#[test]
fn long_kernels_in_a_neighbours_gaps_do_not_eat_its_share() {
    let card = managed(&[(300, 1000, Program::kernels_of(5 * MS)), (700, 1000, Program::mm())]);
    let found = parts(&card, SEC, (SECONDS + 1) * SEC);
    assert!(within(&found, &[300, 700], 20), "{found:?}");
}

#[test]
fn training_steps_at_30_and_70() {
    let tenants = [(300, 1000, Program::train()), (700, 1000, Program::train())];
    let (card, plain) = (managed(&tenants), unmanaged(&tenants));
    let found = parts(&card, SEC, (SECONDS + 1) * SEC);
    assert!(within(&found, &[300, 700], 20), "{found:?}");
    let (ours, plain) = (card.kernels().iter().sum::<u64>(), plain.kernels().iter().sum::<u64>());
    assert!(ours * 1000 >= plain * 980, "{ours} against {plain}");
}

#[test]
fn launch_bound_tenants_that_both_fit_hardly_notice_each_other() {
    let tenants = [(300, 1000, Program::small()), (700, 1000, Program::small().out_of_step())];
    let (card, plain) = (managed(&tenants), unmanaged(&tenants));
    for (ours, plain) in card.kernels().iter().zip(plain.kernels()) {
        assert!(ours * 1000 >= plain * 980, "{ours} against {plain}");
    }
}

/// Each alone keeps the card half busy, all along: together they fill it, and turns would only cost.
#[test]
fn programs_that_fit_beside_each_other_run_side_by_side() {
    let sparse = Program {
        every: 6,
        long: 52 * US,
        launch: 34 * US,
        burst: 577,
        think: 300 * US,
        ..Program::kernels_of(10 * US)
    };
    for requests in [[500, 500], [300, 700]] {
        let tenants = [(requests[0], 1000, sparse), (requests[1], 1000, sparse.out_of_step())];
        let (card, plain) = (managed(&tenants), unmanaged(&tenants));
        for (i, (ours, plain)) in card.kernels().iter().zip(plain.kernels()).enumerate() {
            assert!(ours * 1000 >= plain * 970, "{requests:?}, {i}: {ours} against {plain}");
        }
    }
}

/// On faster cores they keep the card busier and themselves are as much in need of it. What they cost was once taken from the end of a
/// chunk, a seventh of it, and they were kept waiting for half of their time.
#[test]
fn small_kernels_at_70_beside_matrix_products_have_what_they_cost_on_faster_cores_too() {
    let products = Program { think: 70 * US, launch: 20 * US, ..Program::mm() };
    for (launch, least) in [(6_500, 650), (8 * US, 680), (10 * US, 680)] {
        let small = Program { launch, ..Program::small() };
        let tenants = [(300, 1000, products), (700, 1000, small)];
        let card = managed(&tenants);
        for ((&tenant, done), least) in tenants.iter().zip(card.kernels()).zip([280, least]) {
            let alone = unmanaged(&[tenant]).kernels()[0];
            assert!(done * 1000 >= alone * least, "{done} of {alone} at {}, launches of {launch} ns", tenant.0);
        }
        let (charged, had) = card.charged()[1];
        assert!(charged >= had, "{charged} ns were charged for {had}");
    }
}

/// What it has launched so far was once given a turn because it was a millisecond old, and the rest of the burst another one, though the
/// program was faster than promised and did not wait.
#[test]
fn who_is_fast_enough_and_goes_on_launching_is_not_given_a_turn_before_it_waits() {
    let products = Program { kernel: 175 * US, think: 70 * US, launch: 12 * US, ..Program::mm() };
    let small = Program { kernel: 3_200, launch: 9_500, think: 30 * US, ..Program::small() };
    let card = managed(&[(700, 1000, products), (300, 1000, small)]);
    let bursts = card.kernels()[1] / u64::from(small.burst);
    let turns = card.domain.directives().nth(1).unwrap().turns;
    assert!(turns * 10 <= bursts * 12, "{turns} turns for {bursts} bursts");
}

/// Then nothing ever says that it waits, but that it launches no more.
#[test]
fn who_looks_into_memory_for_the_end_of_its_work_has_its_part_of_its_lone_progress() {
    let products = Program { burst: 0, ..Program::mm() };
    for (burst, request) in [(100, 300), (200, 300), (200, 100)] {
        let polls = Program { burst, polls: true, ..Program::small() };
        let card = managed(&[(1000 - request, 1000, products), (request, 1000, polls)]);
        let (done, alone) = (card.kernels()[1], unmanaged(&[(request, 1000, polls)]).kernels()[0]);
        assert!(done * 1000 >= alone * u64::from(request - 20), "{done} of {alone} at {request}");
    }
}

#[test]
fn every_tenant_of_a_mixed_pair_makes_at_least_its_share_of_its_lone_progress() {
    use Program as P;
    for pair in [
        [(300, 1000, P::mm()), (700, 1000, P::small())],
        [(700, 1000, P::mm()), (300, 1000, P::small())],
        [(700, 1000, P::train()), (300, 1000, P::mm())],
        [(100, 1000, P::small()), (900, 1000, P::train())],
    ] {
        let card = managed(&pair);
        for (i, tenant) in pair.iter().enumerate() {
            let (ours, alone) = (card.kernels()[i], unmanaged(&[*tenant]).kernels()[0]);
            let made = ours * 1000 / alone;
            // To go over and back takes the modelled card 280 us, and these do 300 times a second: that time is nobody's.
            assert!(made + 75 >= u64::from(tenant.0), "{pair:?}: tenant {i} made {made} of its lone thousand");
        }
        assert!(progress(&card, &pair) >= 950, "{pair:?}");
    }
}

/// Who thinks for most of its time is slowed down by waiting, not by having less of the card than its request: the card is not kept
/// free for it while it is as fast as it was promised.
#[test]
fn a_program_that_mostly_thinks_leaves_the_card_to_others_as_long_as_it_is_fast_enough() {
    for requests in [[300, 700], [500, 500]] {
        let pair = [(requests[0], 1000, Program::mm()), (requests[1], 1000, Program::small())];
        let card = managed(&pair);
        let (ours, plain) = (progress(&card, &pair), progress(&unmanaged(&pair), &pair));
        assert!(ours * 1000 >= plain * 960, "{requests:?}: {ours} in all, {plain} without an arbiter");
    }
}

#[test]
fn a_lone_tenant_keeps_to_its_limit() {
    for limit in [250, 500, 750] {
        for program in [Program::mm(), Program::train(), Program::kernels_of(5 * MS)] {
            let card = managed(&[(limit, limit, program)]);
            let found = card.shares(SEC, (SECONDS + 1) * SEC)[0];
            assert!(found.abs_diff(limit) <= 15, "{program:?}: limit {limit}, had {found}");
        }
    }
}

#[test]
fn hard_limits_hold_for_pairs() {
    for program in [Program::mm(), Program::train()] {
        let card = managed(&[(300, 300, program), (700, 700, program)]);
        let found = card.shares(SEC, (SECONDS + 1) * SEC);
        // The card's own switching costs some of each turn.
        assert!(within(&found, &[300, 700], 25) && found[0] <= 310 && found[1] <= 710, "{program:?}: {found:?}");
    }
    let card = managed(&[(200, 300, Program::mm()), (200, 1000, Program::mm())]);
    let found = card.shares(SEC, (SECONDS + 1) * SEC);
    assert!(found[0] <= 310 && found[0] >= 270 && found[1] >= 650, "{found:?}");
}

#[test]
fn a_tenant_alone_and_unlimited_runs_as_if_nobody_watched() {
    for program in [Program::mm(), Program::small(), Program::train()] {
        let tenant = [(300, 1000, program)];
        let (ours, plain) = (managed(&tenant).kernels()[0], unmanaged(&tenant).kernels()[0]);
        assert!(ours * 1000 >= plain * 995, "{program:?}: {ours} against {plain}");
    }
}

#[test]
fn an_idle_share_moves_to_the_neighbour_and_back_within_200_ms() {
    let mut card = Card::new(Tuning::default());
    card.add(300, 800, Program::mm());
    let sleeper = Program { on_off: (SEC, SEC), ..Program::mm() };
    card.add(500, 1000, sleeper);
    card.run_until(8 * SEC);
    for cycle in 0..4 {
        let begin = cycle * 2 * SEC;
        // Both run from `begin`, the sleeper stops at about one second.
        if cycle > 0 {
            let both = card.shares(begin + 200 * MS, begin + 900 * MS);
            assert!(both[1] >= 480 && both[0] >= 300, "cycle {cycle}: {both:?} while both run");
        }
        let alone = card.shares(begin + SEC + 200 * MS, begin + 2 * SEC);
        assert!(alone[0].abs_diff(800) <= 30, "cycle {cycle}: {alone:?} while one sleeps");
    }
}

#[test]
fn fp_24_a_tenant_without_a_request_gets_the_gaps_and_nothing_else() {
    let busy = managed(&[(0, 1000, Program::mm()), (500, 1000, Program::mm())]);
    let (guest, host) = (busy.kernels()[0], busy.kernels()[1]);
    let alone = unmanaged(&[(500, 1000, Program::mm())]).kernels()[0];
    assert!(host * 1000 >= alone * 900, "the host made {host} of {alone}");
    assert!(guest > 0, "gaps are there to be used");
    let idle = managed(&[(0, 1000, Program::mm()), (500, 1000, Program { from: 100 * SEC, ..Program::mm() })]);
    assert!(idle.kernels()[0] * 1000 >= alone * 990);
}

#[test]
fn half_second_kernels_share_with_short_ones_and_stall_nobody_for_a_second() {
    let tenants = [(500, 1000, Program::kernels_of(500 * MS)), (500, 1000, Program::kernels_of(MS))];
    let card = managed(&tenants);
    let found = parts(&card, SEC, (SECONDS + 1) * SEC);
    assert!(within(&found, &[500, 500], 130), "{found:?}");
    assert!(card.worst_wait(1) < SEC, "{} ms", card.worst_wait(1) / MS);
}

#[test]
fn a_changed_share_holds_within_a_second() {
    let mut card = Card::new(Tuning::default());
    let first = card.add(300, 1000, Program::mm());
    let second = card.add(700, 1000, Program::mm());
    card.run_until(3 * SEC);
    card.set_shares(first, 600, 1000);
    card.set_shares(second, 400, 1000);
    card.run_until(6 * SEC);
    let found = parts(&card, 3 * SEC + 200 * MS, 6 * SEC);
    assert!(within(&found, &[600, 400], 20), "{found:?}");
    card.set_shares(first, 200, 200);
    card.run_until(9 * SEC);
    let found = card.shares(6 * SEC + 200 * MS, 9 * SEC);
    assert!(found[0].abs_diff(200) <= 20 && found[1] >= 750, "{found:?}");
}

#[test]
fn the_arbiter_rests_when_nobody_competes() {
    let lone = managed(&[(300, 1000, Program::mm()), (700, 1000, Program { from: 100 * SEC, ..Program::mm() })]);
    assert!(lone.looks < 600 * (SECONDS + 1), "{} looks", lone.looks);
    let idle = managed(&[(300, 1000, Program { from: 100 * SEC, ..Program::mm() })]);
    assert!(idle.looks < 60 * (SECONDS + 1), "{} looks", idle.looks);
}
