use super::*;

fn machine(spec: &str) -> (tempfile::TempDir, Machine) {
    let dir = tempfile::tempdir().unwrap();
    let machine = Machine::open(dir.path(), Some(spec)).unwrap();
    (dir, machine)
}

#[test]
fn a_machine_keeps_its_shape_and_says_so_when_asked_for_another() {
    let (dir, first) = machine("2xH200");
    let again = Machine::open(dir.path(), None).unwrap();
    assert_eq!(again.spec, first.spec);
    assert!(Machine::open(dir.path(), Some("2xH200  # the same")).is_ok());
    let told = Machine::open(dir.path(), Some("8xH200")).unwrap_err().to_string();
    assert!(told.contains("8xH200") && told.contains("2xH200") && told.contains("remove the directory"), "{told}");
}

#[test]
fn memory_is_refused_beyond_what_the_card_has() {
    let (_dir, machine) = machine("1xT4");
    let (seat, unit) = (machine.sit().unwrap(), Unit::card(0));
    let all = machine.usable(unit);
    assert!(machine.take(&seat, unit, all - 4096));
    assert!(!machine.take(&seat, unit, 8192));
    assert!(machine.take(&seat, unit, 4096));
    assert_eq!(machine.used(unit), all);
    machine.give(&seat, unit, all);
    assert_eq!((machine.used(unit), seat.account(unit).peak.load(SeqCst)), (0, all));
}

#[test]
fn two_libraries_in_one_process_get_seats_of_their_own() {
    let (dir, machine) = machine("1xT4");
    let other = Machine::open(dir.path(), None).unwrap();
    let (a, b) = (machine.sit().unwrap(), other.sit().unwrap());
    assert_ne!(a.index(), b.index());
    assert!(other.take(&b, Unit::card(0), 1 << 20));
    assert_eq!(machine.used(Unit::card(0)), 1 << 20);
}

#[test]
fn turns_go_round_at_ideal_times() {
    let (dir, machine) = machine("1xT4 slice=2ms");
    let other = Machine::open(dir.path(), None).unwrap();
    let (a, b, unit) = (machine.sit().unwrap(), other.sit().unwrap(), Unit::card(0));
    assert_eq!(machine.ask_turn(&a, unit, 1_000), Some(1_000));
    assert_eq!(other.ask_turn(&b, unit, 5_000), None);
    let turn = machine.turn(unit);
    assert_eq!(machine.slice_end(unit, turn), Some(2_001_000));
    machine.stand_in_line(&a, unit, 2_001_000);
    assert!(machine.end_turn(unit, turn, 2_001_000));
    assert_eq!(other.ask_turn(&b, unit, 5_000), Some(2_001_000));
    // The owner is late: whoever waits ends its turn for it, at the time it should have ended.
    machine.relieve(unit, 4_001_000);
    assert_eq!(machine.turn(unit).owner, Some(b.index()), "not before the grace is over");
    machine.relieve(unit, 6_100_000);
    assert_eq!(machine.turn(unit), Turn { owner: Some(a.index()), since: 4_001_000 });
    assert_eq!(other.lost_at(&b, unit, 2_001_000), 4_001_000);
}

#[test]
fn busy_time_falls_into_its_buckets() {
    let (_dir, machine) = machine("1xT4");
    let (seat, unit) = (machine.sit().unwrap(), Unit::card(0));
    machine.book(&seat, unit, 10 * BUCKET - 50, 10 * BUCKET + 70);
    assert_eq!(machine.busy(unit), 120);
    assert_eq!(machine.busy_around(unit, 10 * BUCKET - 1), 50);
    assert_eq!(machine.tenant_busy_around(unit, seat.index(), 10 * BUCKET), 70);
    machine.book(&seat, unit, (10 + BUCKETS as u64) * BUCKET, (10 + BUCKETS as u64) * BUCKET + 5);
    assert_eq!(machine.busy_around(unit, 10 * BUCKET), 0, "old buckets are overwritten, not added to");
}

#[test]
fn faults_hit_the_calls_they_name() {
    let (_dir, machine) = machine("1xT4");
    assert_eq!(machine.fault("cuMemAlloc_v2"), None);
    assert!(machine.inject(&Inject::parse("cuMemAlloc_v2 fail=2 from=2 times=1").unwrap()));
    assert!(machine.inject(&Inject::parse("cuLaunch* slow=3us").unwrap()));
    let hit: Vec<bool> = (0..3).map(|_| machine.fault("cuMemAlloc_v2").is_some()).collect();
    assert_eq!(hit, [false, true, false]);
    assert_eq!(machine.fault("cuLaunchKernel"), Some(Fault { delay: 3_000, answer: 0 }));
    machine.clear_injections();
    assert_eq!(machine.fault("cuLaunchKernel"), None);
    assert!(Inject::parse("cuMemAlloc_v2").unwrap_err().contains("does nothing"));
    machine.report_xid(0, 79);
    assert_eq!(machine.xid_after(0, 0), Some(Xid { number: 1, code: 79 }));
    assert_eq!(machine.xid_after(0, 1), None);
}
