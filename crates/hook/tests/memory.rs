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
fn memory_of_every_kind_is_refused_above_the_limit_and_granted_at_it() {
    let said = passes("limit", &[]);
    let ways = [
        "plain",
        "pitch",
        "managed",
        "async",
        "async-default-stream",
        "pool",
        "create",
        "array",
        "array3d",
        "mipmap",
        "graph",
        "capture",
    ];
    for way in ways {
        assert!(said.lines().any(|l| l == format!("{way}: 10240 MiB")), "{way} in\n{said}");
    }
}

#[test]
fn physical_memory_is_charged_once_until_its_last_handle_and_mapping_are_gone() {
    passes("vmm", &[]);
}

#[test]
fn a_thousand_rounds_of_filling_and_freeing_leave_the_books_where_they_were() {
    let said = passes("cycles", &["3000"]);
    assert!(!said.contains(" 0 refused"), "the limit was never met: {said}");
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

#[test]
fn contexts_are_part_of_the_limit() {
    let machine = Machine::new("H200");
    let slice = divvy_shm::DeviceConfig { context_bytes: 600 << 20, ..machine.slice(0, GIB) };
    let container = Container::new(vec![slice]);
    let said = run(machine.inside(&container, kit("limit")).arg("plain"));
    assert!(said.contains("plain: 424 MiB") && said.contains(", 0 wrong"), "{said}");
    // A second process has no room for its context beside the first.
    let mut first =
        machine.inside(&container, kit("storm")).arg("60").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(first.stdout.take().unwrap()), &mut line).unwrap();
    let first = common::Running(first);
    let second = common::outcome(&mut machine.inside(&container, kit("crowd")));
    let said = String::from_utf8_lossy(&second.stdout).into_owned();
    assert!(said.contains("cuDevicePrimaryCtxRetain(&context, 0): error 2"), "{said}");
    first.end();
    assert!(run(&mut machine.inside(&container, kit("crowd"))).starts_with("0 "), "there is room again");
}

#[test]
fn memory_of_the_card_that_others_hold_is_not_free() {
    let machine = Machine::new("H200 memory=12GiB");
    let (ours, theirs) =
        (Container::new(vec![machine.slice(0, 10 * GIB)]), Container::new(vec![machine.slice(0, 10 * GIB)]));
    let mut big = machine
        .inside(&theirs, kit("view"))
        .args(["8000", "stay"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(big.stdout.take().unwrap()));
    assert!(lines.map_while(Result::ok).any(|l| l == "done"));
    let _big = common::Running(big);
    let said = run(machine.inside(&ours, kit("view")).arg("100"));
    let free: u64 = said.lines().find_map(|l| l.strip_prefix("memory 0: ")?.split(' ').nth(5)?.parse().ok()).unwrap();
    assert!(said.contains("memory 0: total 10737418240 ") && free < 4 * GIB, "{said}");
}

#[test]
fn memory_is_charged_to_the_card_it_is_on() {
    let machine = Machine::new("2xH200");
    let container = Container::new(vec![machine.slice(0, 5 * GIB), machine.slice(1, 7 * GIB)]);
    let said = run(&mut machine.inside(&container, kit("devices")));
    assert!(said.contains(", 0 wrong"), "{said}");
}

#[test]
fn memory_that_processes_share_is_charged_to_the_one_that_allocated_it() {
    let said = passes("share", &[]);
    assert_eq!(said.matches(", 0 wrong").count(), 2, "both processes: {said}");
}

#[test]
fn many_threads_leave_the_books_where_they_were() {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, GIB)]);
    let said = run(machine.inside(&container, kit("threads")).args(["8", "4000"]));
    assert!(said.contains(", 0 wrong") && !said.contains(" 0 refused"), "{said}");
    // What a pool takes beyond what was asked for, a piece or a block that fits no hole, is known after the call; then the call is
    // refused and the pool trimmed. Each thread may be in the middle of that.
    let most = GIB + 8 * ((64 + 32) << 20);
    assert!(container.ledger.peak(0) <= most, "{}", container.ledger.peak(0));
}
