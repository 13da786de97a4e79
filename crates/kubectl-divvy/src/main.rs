//! kubectl divvy: inspect, top, why, budget, snapshot, doctor.

fn main() {}
