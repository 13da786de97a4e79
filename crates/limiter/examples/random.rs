//! Random programs on the modelled card of the tests, always the same ones: how far pairs are from the shares they asked for, with one
//! stream each and with several, by how much lone programs pass their limits, and how far what is booked for lone ones without a limit
//! is from what they had.
//! `cargo run --release -p divvy-limiter --example random [how many of each]`
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a table for people")]

#[path = "../tests/model/mod.rs"]
mod model;

use divvy_limiter::Tuning;
use model::{Card, MS, Program, SEC, US};

const SECONDS: u64 = 6;
/// Who alone has less of the card than this, in thousandths, is held up by something else, and its speed says little about its share.
const FILLS: u32 = 900;

struct Dice(u64);

impl Dice {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        least + (self.0 >> 33) % (most - least + 1)
    }

    fn few(&mut self, least: u64, most: u64) -> u32 {
        self.between(least, most) as u32
    }

    /// A network: long kernels among short ones, and wide ones after each synchronisation.
    fn network(&mut self) -> Program {
        Program {
            every: self.few(3, 9),
            long: self.between(50, 400) * US,
            launch: self.between(8, 30) * US,
            burst: self.few(40, 300),
            think: self.between(30, 400) * US,
            head: self.few(0, 25),
            wide: self.between(40, 400) * US,
            ..Program::kernels_of(self.between(5, 40) * US)
        }
    }

    /// Anything, with gaps and in up to three streams.
    fn lone(&mut self) -> Program {
        Program {
            every: self.few(0, 9),
            launch: self.between(5, 40) * US,
            burst: self.few(10, 900),
            think: self.between(0, 2000) * US,
            streams: self.few(1, 3),
            ..self.network()
        }
    }
}

fn run(mut card: Card, tenants: &[(u32, u32, Program)]) -> Card {
    for &(request, limit, program) in tenants {
        card.add(request, limit, program);
    }
    card.run_until(SECONDS * SEC);
    card
}

fn managed(tenants: &[(u32, u32, Program)]) -> Card {
    run(Card::new(Tuning::default()), tenants)
}

fn alone(program: Program) -> Card {
    run(Card::new(Tuning::default()).unmanaged(), &[(500, 1000, program)])
}

/// How far the first of a pair is from its request, in points of their speeds. `None` if one of them does not fill the card.
fn missed_by(request: u32, one: Program, other: Program) -> Option<f64> {
    let lone = [alone(one), alone(Program { from: 0, ..other })];
    if lone.iter().any(|card| card.shares(SEC, SECONDS * SEC)[0] <= FILLS) {
        return None;
    }
    let card = managed(&[(request, 1000, one), (1000 - request, 1000, other)]);
    let speed: Vec<f64> =
        card.kernels().iter().zip(&lone).map(|(&done, lone)| done as f64 / lone.kernels()[0] as f64).collect();
    Some((100.0 * speed[0] / (speed[0] + speed[1]) - f64::from(request) / 10.0).abs())
}

/// Distances in points, told as how many are too large, the largest and the mean.
fn tell(what: &str, distances: &[f64]) {
    let large = distances.iter().filter(|&&d| d > 2.0).count();
    let (worst, sum) = distances.iter().fold((0.0f64, 0.0), |(worst, sum), &d| (worst.max(d), sum + d));
    let (count, mean) = (distances.len(), sum / distances.len().max(1) as f64);
    println!("{what}: {large} of {count} by more than 2 points, the worst by {worst:.1}, {mean:.1} in the mean");
}

fn main() {
    let count = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(200);
    let (mut dice, mut several) = (Dice(12_345), Dice(777));
    let (mut pairs, mut broad, mut limits, mut booked) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..count {
        let one = dice.network();
        let other = if dice.between(0, 1) == 0 { one.out_of_step() } else { dice.network() };
        let request = [300, 500, 700][dice.between(0, 2) as usize];
        pairs.extend(missed_by(request, one, other));
        let [one, other] = [one, other].map(|program| Program { streams: several.few(2, 4), ..program });
        broad.extend(missed_by(request, one, other));
        let (program, limit) = (dice.lone(), dice.few(1, 8) * 100);
        let had = managed(&[(limit, limit, program)]).shares(SEC, SECONDS * SEC)[0];
        limits.push(f64::from(had.saturating_sub(limit)) / 10.0);
        let (charged, had) = managed(&[(500, 1000, program)]).charged()[0];
        booked.push(charged.abs_diff(had) as f64 / (SECONDS * MS) as f64 / 10.0);
    }
    tell("pairs miss their parts", &pairs);
    tell("pairs of several streams each miss theirs", &broad);
    tell("lone programs pass their limits", &limits);
    tell("lone programs without a limit are booked too much or too little", &booked);
}
