//! divvy: scheduler, webhook, budget, dashboard, demo and simulator in one binary.

fn main() {}
