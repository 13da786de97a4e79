//! Streams behave as they do without the library.

mod common;

use common::fake::{Machine, kit};
use common::{Container, run};

#[test]
fn default_streams_of_threads_run_side_by_side_behind_the_gate_and_without_one() {
    let machine = Machine::new("H200");
    for gated in [true, false] {
        let slice = divvy_shm::DeviceConfig { gated, ..machine.slice(0, 1 << 30) };
        let container = Container::new(vec![slice]);
        let said = run(&mut machine.inside(&container, kit("overlap")));
        assert!(said.contains(", 0 wrong"), "gated: {gated}: {said}");
    }
}
