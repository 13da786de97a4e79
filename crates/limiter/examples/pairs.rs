//! Pairs of programs on the modelled card of the tests: how fast each is in percent of alone, with and without the arbiter, what
//! their kernels had and what they were charged, in thousandths. `cargo run --release -p divvy-limiter --example pairs [word]`
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a table for people")]

#[path = "../tests/model/mod.rs"]
mod model;

use divvy_limiter::Tuning;
use model::{Card, MS, Program, SEC, US};

/// Request, limit, program.
type Tenant = (u32, u32, Program);

const SECONDS: u64 = 9;

fn run(mut card: Card, tenants: &[Tenant]) -> Card {
    for &(request, limit, program) in tenants {
        card.add(request, limit, program);
    }
    card.run_until(SECONDS * SEC);
    card
}

fn pair(name: &str, one: (u32, Program), other: (u32, Program)) -> (String, Vec<Tenant>) {
    let name = format!("{name} {}/{}", one.0 / 10, other.0 / 10);
    (name, vec![(one.0, 1000, one.1), (other.0, 1000, other.1)])
}

fn cases() -> Vec<(String, Vec<Tenant>)> {
    let mm = Program { think: 70 * US, launch: 20 * US, ..Program::mm() };
    let graph = Program { kernel: 3800 * US, units: 20, burst: 2, ..mm };
    let long = Program { kernel: 5400 * US, burst: 4, ..mm };
    let vgg = Program { kernel: 10 * US, every: 6, long: 290 * US, launch: 12 * US, burst: 95, think: 100 * US, ..mm };
    let wide = Program { launch: 19 * US, every: 5, long: 200 * US, head: 20, wide: 100 * US, ..vgg };
    let deeplab =
        Program { kernel: 10 * US, every: 6, long: 120 * US, launch: 18 * US, burst: 220, think: 300 * US, ..mm };
    // As fast as its CPU, with the card half busy all along.
    let sparse =
        Program { kernel: 10 * US, every: 6, long: 52 * US, launch: 34 * US, burst: 577, think: 300 * US, ..mm };
    let (small, train, lstm) = (Program::small(), Program::train(), Program::lstm());
    let slow = Program { launch: 11 * US, ..lstm };
    let fast = Program { launch: 8 * US, ..small };
    // As an H200 ran them: launching a burst of them takes as long as a slice of the card.
    let recorded = Program { kernel: 3_200, launch: 9_500, think: 30 * US, ..small };
    let recorded_mm = Program { kernel: 175 * US, launch: 12 * US, ..mm };
    let infers = Program { kernel: 10 * US, phase: 0, burst: 1900, think: 300 * US, ..lstm };
    let four = [100, 200, 300, 400].map(|request| (request, 1000, mm)).to_vec();
    vec![
        pair("mm", (300, mm), (700, mm)),
        pair("mm", (100, mm), (900, mm)),
        pair("mm", (500, mm), (500, mm)),
        ("mm 10/20/30/40".to_owned(), four),
        pair("graph", (300, graph), (700, graph)),
        pair("graph", (100, graph), (900, graph)),
        pair("long", (300, long), (700, long)),
        pair("long", (100, long), (900, long)),
        pair("vgg", (500, vgg), (500, vgg)),
        pair("wide", (500, wide), (500, wide)),
        pair("wide", (500, wide), (500, wide.out_of_step())),
        pair("wide", (300, wide), (700, wide.out_of_step())),
        pair("wide, mm", (300, wide), (700, mm)),
        pair("deeplab", (500, deeplab), (500, deeplab)),
        pair("sparse", (500, sparse), (500, sparse.out_of_step())),
        pair("sparse", (300, sparse), (700, sparse.out_of_step())),
        pair("lstm", (500, lstm), (500, lstm.out_of_step())),
        pair("lstm", (300, lstm), (700, lstm.out_of_step())),
        pair("slow lstm", (500, slow), (500, slow.out_of_step())),
        pair("slow lstm", (300, slow), (700, slow.out_of_step())),
        pair("lstm inference", (500, infers), (500, infers.out_of_step())),
        pair("lstm inference", (300, infers), (700, infers.out_of_step())),
        pair("lstm inference, mm", (500, infers), (500, mm)),
        pair("lstm inference, mm", (700, infers), (300, mm)),
        pair("lstm, mm", (500, lstm), (500, mm)),
        pair("lstm, mm", (700, lstm), (300, mm)),
        pair("lstm, mm", (300, lstm), (700, mm)),
        pair("slow lstm, mm", (500, slow), (500, mm)),
        pair("slow lstm, mm", (700, slow), (300, mm)),
        pair("lstm, mm without a request", (500, lstm), (0, mm)),
        pair("lstm, small", (300, lstm), (700, small)),
        pair("lstm, small", (700, lstm), (300, small)),
        pair("lstm, small", (500, lstm), (500, small)),
        pair("slow lstm, small", (500, slow), (500, small)),
        pair("slow lstm, small", (700, slow), (300, small)),
        pair("slow lstm, fast small", (700, slow), (300, fast)),
        pair("small", (300, small), (700, small.out_of_step())),
        pair("train", (300, train), (700, train)),
        pair("mm, small", (300, mm), (700, small)),
        pair("mm, small", (700, mm), (300, small)),
        // The same on faster cores.
        pair("mm, fast small", (300, mm), (700, fast)),
        pair("mm, fast small", (700, mm), (300, fast)),
        pair("mm, small, as recorded", (300, recorded_mm), (700, recorded)),
        pair("mm, small, as recorded", (700, recorded_mm), (300, recorded)),
        pair("mm, small, as recorded", (500, recorded_mm), (500, recorded)),
        pair("train, mm", (700, train), (300, mm)),
        pair("train, mm", (300, train), (700, mm)),
        pair("vgg, mm", (300, vgg), (700, mm)),
    ]
}

fn percent(card: &Card, alone: &[u64]) -> Vec<f64> {
    card.kernels().iter().zip(alone).map(|(&done, &alone)| done as f64 * 100.0 / alone as f64).collect()
}

fn main() {
    let word = std::env::args().nth(1).unwrap_or_default();
    for (name, tenants) in cases().into_iter().filter(|(name, _)| name.contains(&word)) {
        let card = || Card::new(Tuning::default());
        let (ours, plain) = (run(card(), &tenants), run(card().unmanaged(), &tenants));
        let alone: Vec<u64> = tenants.iter().map(|&tenant| run(card().unmanaged(), &[tenant]).kernels()[0]).collect();
        let (with, without) = (percent(&ours, &alone), percent(&plain, &alone));
        let sum = 100.0 * with.iter().sum::<f64>() / without.iter().sum::<f64>();
        let charged: Vec<u64> = ours.charged().iter().map(|(charged, _)| charged / (SECONDS * MS)).collect();
        let turns: Vec<u64> = ours.domain.directives().map(|directive| directive.turns / SECONDS).collect();
        let quarters = (4..SECONDS * 4).map(|n| ours.shares(n * SEC / 4, (n + 1) * SEC / 4)[0]);
        println!(
            "{name}: {with:.1?} % of alone, {without:.1?} without, {sum:.1} % in all; had {:?}, charged {charged:?}; the first {} to {} of a quarter second; {turns:?} turns a second",
            ours.shares(SEC, SECONDS * SEC),
            quarters.clone().min().unwrap_or(0),
            quarters.max().unwrap_or(0),
        );
    }
}
