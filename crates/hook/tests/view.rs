//! What a container sees of the cards: its own, as large as it was granted, with its own processes on them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::fake::{Machine, kit};
use common::{Container, Running, run};
use divvy_shm::DeviceConfig;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

/// Everything after "what:" in each line that begins so.
fn values<'a>(said: &'a str, what: &str) -> Vec<&'a str> {
    said.lines().filter_map(|l| l.strip_prefix(what)?.strip_prefix(':')).map(str::trim).collect()
}

#[track_caller]
fn one<'a>(said: &'a str, what: &str) -> &'a str {
    let found = values(said, what);
    assert_eq!(found.len(), 1, "{what} in\n{said}");
    found[0]
}

/// Starts a viewer that holds memory until it is killed.
fn holder(command: &mut Command, mebibytes: u64) -> Running {
    let mut child =
        command.args([mebibytes.to_string().as_str(), "stay"]).stdout(Stdio::piped()).spawn().expect("starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|l| l == "done"), "it did not get through");
    Running(child)
}

#[test]
fn a_container_sees_its_slice_and_only_its_own_processes() {
    let machine = Machine::new("H200");
    let slice = DeviceConfig { gated: true, ..machine.slice(0, 10 * GIB) };
    let (ours, theirs) = (Container::new(vec![slice]), Container::new(vec![machine.slice(0, 20 * GIB)]));
    let neighbour = holder(&mut machine.inside(&theirs, kit("view")), 3000);
    let sibling = holder(&mut machine.inside(&ours, kit("view")), 1000);
    let said = run(machine.inside(&ours, kit("view")).arg("500"));
    println!("{said}");
    assert!(said.contains(", 0 wrong"), "{said}");
    assert_eq!((one(&said, "cards"), one(&said, "devices")), ("1", "1"));
    let used = 1500 * MIB;
    assert_eq!(one(&said, "memory 0"), format!("total {} used {used} free {}", 10 * GIB, 10 * GIB - used));
    let processes: Vec<u32> =
        values(&said, "process 0").iter().map(|p| p.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert!(processes.contains(&sibling.0.id()) && !processes.contains(&neighbour.0.id()), "{processes:?}");
    assert_eq!(one(&said, "setters 0"), "4 4 4", "NVML_ERROR_NO_PERMISSION");
    assert_eq!(one(&said, "utilisation 0"), "0", "nothing was booked");
    ours.gate.set_booked(0, divvy_shm::gate::Booked { utilisation: 305, ..Default::default() });
    let said = run(machine.inside(&ours, kit("view")).arg("0"));
    assert_eq!(one(&said, "utilisation 0"), "31", "what the arbiter booked, in per cent");
}

#[test]
fn a_limit_that_changes_is_seen_at_once() {
    let machine = Machine::new("H200");
    let container = Container::new(vec![machine.slice(0, 10 * GIB)]);
    let total = || {
        let said = run(machine.inside(&container, kit("view")).arg("100"));
        one(&said, "memory 0").split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(total(), 10 * GIB);
    let larger = divvy_shm::ContainerConfig { devices: vec![machine.slice(0, 30 * GIB)], ..Default::default() };
    container.gate.set_config(&larger).unwrap();
    assert_eq!(total(), 30 * GIB);
}

#[test]
fn only_granted_cards_exist_and_they_are_numbered_from_zero() {
    let machine = Machine::new("4xH200");
    let container = Container::new(vec![machine.slice(2, 7 * GIB), machine.slice(1, 5 * GIB)]);
    let said = run(machine.inside(&container, kit("view")).arg("100"));
    assert!(said.contains(", 0 wrong"), "{said}");
    assert_eq!((one(&said, "cards"), one(&said, "devices")), ("2", "2"));
    // In the driver's order, whatever the order of the grant.
    for (i, (card, limit)) in [(1, 5 * GIB), (2, 7 * GIB)].into_iter().enumerate() {
        assert!(one(&said, &format!("device {i}")).starts_with(&machine.spec.cards[card].uuid), "{said}");
        assert!(one(&said, &format!("memory {i}")).starts_with(&format!("total {limit} used {}", 100 * MIB)), "{said}");
        assert_eq!(one(&said, &format!("index {i}")), i.to_string());
    }
}

#[test]
fn limits_follow_the_cards_through_any_order_of_visible_devices() {
    let machine = Machine::new("2xH200");
    let container = Container::new(vec![machine.slice(0, 5 * GIB), machine.slice(1, 7 * GIB)]);
    let by_uuid = format!("{},{}", machine.spec.cards[1].uuid, machine.spec.cards[0].uuid);
    for (visible, order) in [("0,1", vec![0, 1]), ("1,0", vec![1, 0]), ("1", vec![1]), (by_uuid.as_str(), vec![1, 0])] {
        let said = run(machine.inside(&container, kit("view")).arg("64").env("CUDA_VISIBLE_DEVICES", visible));
        assert!(said.contains(", 0 wrong"), "{visible}: {said}");
        assert_eq!(one(&said, "devices"), order.len().to_string(), "{visible}");
        assert_eq!(one(&said, "cards"), "2", "NVML does not hear of the variable");
        for (i, card) in order.into_iter().enumerate() {
            let limit = [5 * GIB, 7 * GIB][card];
            assert!(
                one(&said, &format!("device {i}")).starts_with(&machine.spec.cards[card].uuid),
                "{visible}: {said}"
            );
            assert!(one(&said, &format!("memory {i}")).starts_with(&format!("total {limit} ")), "{visible}: {said}");
        }
    }
}

#[test]
fn a_whole_card_is_shown_whole_and_metered_all_the_same() {
    let machine = Machine::new("H200");
    let container = Container::new(vec![DeviceConfig { whole_card: true, ..machine.slice(0, GIB) }]);
    let holder = holder(machine.inside(&container, kit("view")).env("VIEW_WHOLE", "1"), 2000);
    let inside = run(machine.inside(&container, kit("view")).arg("0").env("VIEW_WHOLE", "1"));
    holder.end();
    // Last: outside, the card can be set to serve nobody else.
    let native = run(machine.native(kit("view")).arg("0").env("VIEW_WHOLE", "1"));
    assert!(inside.contains(", 0 wrong"), "{inside}");
    let total = |said: &str| one(said, "memory 0").split(' ').nth(1).unwrap().to_owned();
    assert_eq!(total(&inside), total(&native));
    assert_eq!(container.ledger.peak(0), 2000 * MIB);
    assert_eq!(one(&inside, "setters 0"), "4 4 4", "a mode outlives the container");
}

#[test]
fn outside_a_container_everything_is_as_without_the_library() {
    let machine = Machine::new("2xH200");
    let native = run(machine.native(kit("view")).arg("100").env("VIEW_WHOLE", "1"));
    let preloaded =
        run(machine.native(kit("view")).arg("100").env("VIEW_WHOLE", "1").env("LD_PRELOAD", common::library()));
    let steady = |said: &str| said.lines().filter(|l| !l.starts_with("process")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(steady(&native), steady(&preloaded));
}

#[test]
fn an_instance_of_a_partitioned_card_is_a_card_of_its_own() {
    let machine = Machine::new("A100 mig=3g.40gb+3g.40gb");
    let instances = machine.spec.cards[0].mig.clone().unwrap();
    let slice = |i: usize, limit| DeviceConfig {
        id: instances[i].uuid.clone(),
        uuid: common::fake::uuid(&instances[i].uuid),
        ..machine.slice(0, limit)
    };
    let container = Container::new(vec![slice(1, 10 * GIB)]);
    let mut command = machine.inside(&container, kit("view"));
    let said = run(command.arg("100").env("CUDA_VISIBLE_DEVICES", &instances[1].uuid));
    assert!(said.contains(", 0 wrong"), "{said}");
    assert_eq!((one(&said, "cards"), one(&said, "devices")), ("1", "1"));
    assert!(one(&said, "memory 0").starts_with(&format!("total {} used {}", 10 * GIB, 100 * MIB)), "{said}");
    assert_eq!(one(&said, "instance"), instances[1].uuid, "the other instance is somebody else's");
}
