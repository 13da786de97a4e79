//! Programs of several streams on a modelled card: their parts, their prices, and whether they have turns or run side by side.

mod model;

use model::runs::{SECONDS, managed, parts, unmanaged, within};
use model::{Card, Program, SEC, US};

/// Of several streams nobody sees how many chunks have passed the gate when it closes.
#[test]
fn programs_of_several_streams_have_their_parts() {
    let products = Program { streams: 3, launch: 10 * US, think: 100 * US, burst: 200, ..Program::mm() };
    let network = Program {
        streams: 3,
        every: 5,
        long: 275 * US,
        launch: 11 * US,
        burst: 150,
        think: 200 * US,
        head: 25,
        wide: 167 * US,
        ..Program::kernels_of(32 * US)
    };
    for program in [products, network] {
        for request in [300, 500] {
            let card = managed(&[(request, 1000, program), (1000 - request, 1000, program.out_of_step())]);
            let found = parts(&card, SEC, (SECONDS + 1) * SEC);
            assert!(within(&found, &[request, 1000 - request], 20), "{request} of {program:?}: {found:?}");
        }
    }
}

/// At the end of an iteration one stream is left, and a chunk of it ends right after another. That was taken for what all work costs.
#[test]
fn what_work_in_several_streams_costs_is_not_told_by_its_end() {
    let one = Program {
        every: 6,
        long: 85 * US,
        launch: 29 * US,
        burst: 88,
        think: 77 * US,
        head: 10,
        wide: 150 * US,
        streams: 2,
        ..Program::kernels_of(29 * US)
    };
    let other = Program {
        every: 6,
        long: 297 * US,
        launch: 28 * US,
        burst: 276,
        think: 394 * US,
        head: 2,
        wide: 349 * US,
        streams: 3,
        ..Program::kernels_of(12 * US)
    };
    let card = managed(&[(700, 1000, one), (300, 1000, other)]);
    let had = parts(&card, SEC, (SECONDS + 1) * SEC);
    assert!(within(&had, &[700, 300], 80), "{had:?}");
    for ((directive, done), (_, had)) in card.domain.directives().zip(card.kernels()).zip(card.charged()) {
        let (price, cost) = (u64::from(directive.unit_ns), had / done);
        assert!(price < 3 * cost && cost < 3 * price, "{price} ns for what takes {cost}");
    }
}

/// Kernels of all in some seconds after the first ones, in which turns are tried for a moment.
fn after_both_were_tried(card: &mut Card) -> u64 {
    let before: u64 = card.kernels().iter().sum();
    card.run_until(2 * SECONDS * SEC);
    card.kernels().iter().sum::<u64>() - before
}

/// Some programs of several streams cannot submit fast enough while they wait for a turn, and are faster side by side ...
#[test]
fn recurrent_networks_at_50_and_50_are_as_fast_as_without_an_arbiter() {
    for launch in [9 * US, 11 * US] {
        let lstm = Program { launch, ..Program::lstm() };
        let tenants = [(500, 1000, lstm), (500, 1000, lstm.out_of_step())];
        let mut card = managed(&tenants);
        let [ours, plain] = [&mut card, &mut unmanaged(&tenants)].map(after_both_were_tried);
        assert!(ours * 1000 >= plain * 985, "{ours} against {plain}");
        let had = parts(&card, SEC, (SECONDS + 1) * SEC);
        let charged: Vec<u64> = card.charged().iter().map(|(charged, _)| *charged).collect();
        let first = charged[0] * 1000 / (charged[0] + charged[1]);
        assert!(first.abs_diff(u64::from(had[0])) <= 20, "charged {charged:?}, had {had:?}");
    }
}

/// ... beside small kernels of one stream, too: both are bound by submitting, and in turns they made four fifths of what they make here.
#[test]
fn a_recurrent_network_beside_small_kernels_is_nearly_as_fast_as_without_an_arbiter() {
    for (launch, request) in [(9 * US, 300), (9 * US, 500), (11 * US, 500)] {
        let lstm = Program { launch, ..Program::lstm() };
        let tenants = [(request, 1000, lstm), (1000 - request, 1000, Program::small())];
        let alone = tenants.map(|tenant| unmanaged(&[tenant]).kernels()[0]);
        let speeds = |card: &Card| -> Vec<u64> {
            card.kernels().iter().zip(alone).map(|(&done, alone)| done * 1000 / alone).collect()
        };
        let [ours, plain] = [managed(&tenants), unmanaged(&tenants)].map(|card| speeds(&card));
        let [all, plain_all] = [&ours, &plain].map(|speeds| speeds.iter().sum::<u64>());
        assert!(all * 100 >= plain_all * 95, "{ours:?} against {plain:?} at {request}");
        for ((request, ..), speed) in tenants.iter().zip(&ours) {
            assert!(*speed + 20 >= u64::from(*request), "{ours:?} of alone at {request}");
        }
    }
}

/// ... and others look so when they begin, and get more done in turns. Nobody knows before it was tried.
#[test]
fn recurrent_networks_that_are_faster_in_turns_have_turns() {
    let infers = Program { kernel: 10 * US, phase: 0, burst: 1900, think: 300 * US, ..Program::lstm() };
    let tenants = [(500, 1000, infers), (500, 1000, infers.out_of_step())];
    let mut card = managed(&tenants);
    let turns = |card: &Card| card.domain.directives().map(|directive| directive.turns).sum::<u64>();
    let before = turns(&card);
    let [ours, plain] = [&mut card, &mut unmanaged(&tenants)].map(after_both_were_tried);
    assert!(ours >= plain, "{ours} against {plain}");
    assert!(turns(&card) > before + 100 * (SECONDS - 1), "{before} turns first, then {}", turns(&card));
}

#[test]
fn recurrent_networks_at_30_and_70_each_have_their_part_of_their_lone_progress() {
    for launch in [9 * US, 11 * US] {
        let lstm = Program { launch, ..Program::lstm() };
        let tenants = [(300, 1000, lstm), (700, 1000, lstm.out_of_step())];
        let card = managed(&tenants);
        for (&tenant, done) in tenants.iter().zip(card.kernels()) {
            let alone = unmanaged(&[tenant]).kernels()[0];
            assert!(done * 1000 >= alone * u64::from(tenant.0 - 20), "{done} of {alone} at {}", tenant.0);
        }
    }
}

/// Between two chunks it has nothing whole to do. Each time products went first, and the card had to go there and back.
#[test]
fn a_recurrent_network_keeps_the_card_while_it_submits() {
    let tenants = [(700, 1000, Program::lstm()), (300, 1000, Program::mm())];
    let card = managed(&tenants);
    let (done, alone) = (card.kernels()[0], unmanaged(&tenants[..1]).kernels()[0]);
    assert!(done * 1000 >= alone * 680, "{done} of {alone}");
    let turns = card.domain.directives().map(|directive| directive.turns / SECONDS).max();
    assert!(turns < Some(80), "{turns:?} turns a second");
}

#[test]
fn nobody_waits_for_who_came_off_badly_and_rests() {
    let lstm = Program::lstm();
    let gone = Program { until: 4 * SEC, ..lstm };
    for request in [700, 800] {
        let other = (1000 - request) / 2;
        let tenants = [(other, 1000, lstm), (other, 1000, lstm.out_of_step()), (request, 1000, gone)];
        let card = managed(&tenants);
        for second in 5..=SECONDS {
            let had = card.shares(second * SEC, (second + 1) * SEC);
            assert!(had[0] > 400 && had[1] > 400, "second {second}: {had:?}");
        }
    }
}

#[test]
fn a_lone_recurrent_network_is_booked_what_it_had_and_keeps_to_its_limit() {
    let card = managed(&[(500, 1000, Program::lstm())]);
    let (charged, had) = card.charged()[0];
    assert!(charged.abs_diff(had) <= had * 15 / 100, "charged {charged}, had {had}");
    let had = managed(&[(300, 300, Program::lstm())]).shares(SEC, (SECONDS + 1) * SEC)[0];
    assert!((200..=320).contains(&had), "{had}");
}
