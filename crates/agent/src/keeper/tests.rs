use divvy_shm::{ContainerConfig, DeviceConfig};

use super::*;

fn container(dir: &Path, card: &str, request: u32) -> GateWriter {
    let device = DeviceConfig {
        id: card.into(),
        share_request: request,
        share_limit: 1000,
        gated: true,
        ..DeviceConfig::default()
    };
    std::fs::create_dir_all(dir).unwrap();
    let config = ContainerConfig { devices: vec![device], ..ContainerConfig::default() };
    GateWriter::create(dir, &config).unwrap()
}

const MS: u64 = 1_000_000;

#[test]
fn gates_that_an_arbiter_left_closed_are_opened_in_turns_by_request() {
    let root = tempfile::tempdir().unwrap();
    let gates = [container(&root.path().join("x/a"), "one", 300), container(&root.path().join("x/b"), "one", 700)];
    let start = 1_000_000 * MS;
    for gate in &gates {
        gate.beat_arbiter(start);
        gate.take_control(Controller::Arbiter);
        gate.set_gate(0, false);
    }
    let mut keeper = Keeper::default();
    keeper.look(root.path(), start + 300 * MS);
    assert!(gates.iter().all(|g| !g.gate(0).unwrap().is_open()), "its heart may have skipped a beat");
    let (mut now, mut had) = (start + 401 * MS, [0u64; 2]);
    while now < start + 2401 * MS {
        let nap = keeper.look(root.path(), now).as_nanos() as u64;
        for (gate, had) in gates.iter().zip(&mut had) {
            *had += if gate.gate(0).unwrap().is_open() { nap } else { 0 };
        }
        now += nap;
    }
    assert!(had[0].abs_diff(600 * MS) < 20 * MS && had[1].abs_diff(1400 * MS) < 20 * MS, "{had:?}");
    assert!(gates.iter().all(|g| g.controller() == Controller::Keeper && g.keeper_beat() > start));

    // The arbiter is back: hands off.
    for gate in &gates {
        gate.beat_arbiter(now);
        gate.take_control(Controller::Arbiter);
        gate.set_gate(0, false);
    }
    for step in 0..20 {
        keeper.look(root.path(), now + step * 10 * MS);
    }
    assert!(gates.iter().all(|g| !g.gate(0).unwrap().is_open() && g.controller() == Controller::Arbiter));
}

#[test]
fn a_gate_that_is_truncated_ends_neither_the_keeper_nor_its_neighbours_turns() {
    let root = tempfile::tempdir().unwrap();
    let gates = ["a", "b"].map(|name| container(&root.path().join(name), "one", 500));
    let mut keeper = Keeper::default();
    keeper.look(root.path(), MS);
    let file = std::fs::OpenOptions::new().write(true).open(root.path().join("a/gate")).unwrap();
    file.set_len(0).unwrap();
    gates[1].set_gate(0, false);
    let mut opened = 0;
    for ms in (2..2000).step_by(10) {
        keeper.look(root.path(), ms * MS + GONE_NS);
        opened += u32::from(gates[1].gate(0).unwrap().is_open());
    }
    assert!(opened > 0);
    assert_eq!(keeper.gates.len(), 1, "there is nothing to keep in the other");
}

#[test]
fn containers_that_come_and_go_are_noticed_and_empty_files_ignored() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("socket")).unwrap();
    std::fs::write(root.path().join("socket/gate"), "").unwrap();
    let mut keeper = Keeper::default();
    let now = 5_000_000 * MS;
    keeper.look(root.path(), now);
    assert!(keeper.gates.is_empty());
    let gate = container(&root.path().join("containers/uid/main"), "one", 100);
    gate.set_gate(0, false);
    keeper.look(root.path(), now + 600 * MS);
    assert!(gate.gate(0).unwrap().is_open(), "never had an arbiter");
    std::fs::remove_dir_all(root.path().join("containers")).unwrap();
    keeper.look(root.path(), now + 1200 * MS);
    assert!(keeper.gates.is_empty());
}

#[test]
fn told_to_go_it_leaves_the_gates_open_once_the_arbiter_has_gone_too() {
    let root = tempfile::tempdir().unwrap();
    let gates = [container(&root.path().join("x/a"), "one", 300), container(&root.path().join("x/b"), "one", 700)];
    let told = 1_000_000 * MS;
    for gate in &gates {
        gate.beat_arbiter(told);
        gate.set_gate(0, false);
    }
    let mut keeper = Keeper::default();
    keeper.look(root.path(), told);
    assert!(!keeper.lets_go(told + 100 * MS, told), "the arbiter still lives");
    assert!(gates.iter().all(|g| !g.gate(0).unwrap().is_open()));
    assert!(keeper.lets_go(told + 500 * MS, told), "it has gone");
    assert!(gates.iter().all(|g| g.gate(0).unwrap().is_open()));

    // An arbiter that stays (only the keeper is replaced) keeps its gates.
    let later = told + STAY_NS + MS;
    for gate in &gates {
        gate.beat_arbiter(later);
        gate.set_gate(0, false);
    }
    assert!(keeper.lets_go(later, told));
    assert!(gates.iter().all(|g| !g.gate(0).unwrap().is_open()));
}
