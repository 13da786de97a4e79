//! Memory limits on the fake driver, by the programs that also run on a real card.

mod common;

use common::Container;
use common::fake::{Machine, kit};
use common::run;

const GIB: u64 = 1 << 30;

/// One card, one container of 10 GiB on it.
fn ten_gibibytes() -> (Machine, Container) {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, 10 * GIB)]);
    (machine, container)
}

#[track_caller]
fn passes(name: &str, arguments: &[&str]) -> String {
    let (machine, container) = ten_gibibytes();
    let said = run(machine.inside(&container, kit(name)).args(arguments));
    println!("{said}");
    assert!(said.contains(", 0 wrong"), "{said}");
    said
}

#[test]
fn plain_memory_is_refused_above_the_limit_and_granted_at_it() {
    passes("limit", &["plain", "pitch", "managed"]);
}

#[test]
fn what_no_program_should_do_gets_the_drivers_own_answers() {
    passes("odd", &[]);
}

#[test]
fn children_are_members_of_their_own_and_leave_the_parents_books_alone() {
    passes("children", &[]);
}

#[test]
fn shared_pages_cannot_be_given_to_the_driver() {
    passes("tamper", &[]);
}

#[test]
fn a_trace_has_every_call_with_its_arguments_and_changes_nothing() {
    let (machine, container) = ten_gibibytes();
    let trace = container.dir.path().join("trace");
    let said = run(machine.inside(&container, kit("limit")).arg("plain").env("DIVVY_TRACE", &trace));
    assert!(said.contains("plain: 10240 MiB") && said.contains(", 0 wrong"), "{said}");
    let lines = std::fs::read_to_string(&trace).unwrap();
    let has = |what: &str| lines.lines().any(|l| l.split_whitespace().nth(2).is_some_and(|w| w.starts_with(what)));
    assert!(has("cuInit(0x0)"), "passed on, and written down: {lines}");
    assert!(has("cuDevicePrimaryCtxRetain(0x"), "{lines}");
    assert!(
        lines.contains(", 0x280000000) = 0") && lines.contains(", 0x280000200) = 2"),
        "granted and refused: {lines}"
    );
}
