use std::sync::atomic::AtomicBool;

use super::*;
use crate::place;

fn config(share: u32) -> ContainerConfig {
    let device = DeviceConfig {
        id: "GPU-6ea1f1d2-0000-4000-8000-00000000beef".into(),
        uuid: *b"0123456789abcdef",
        node_index: 3,
        memory_request: 1 << 30,
        memory_limit: 2 << 30,
        share_request: share,
        share_limit: share,
        gated: true,
        whole_card: false,
        enforcement: Enforcement::Audit,
        context_bytes: 500 << 20,
    };
    let other = DeviceConfig { id: "MIG-1".into(), whole_card: true, memory_limit: 5, ..Default::default() };
    ContainerConfig { name: "team/job-0/main".into(), gate_writable: false, devices: vec![device, other] }
}

#[test]
fn what_the_agent_writes_is_what_the_library_reads() {
    let dir = tempfile::tempdir().unwrap();
    let writer = GateWriter::create(dir.path(), &config(300)).unwrap();
    let reader = GateReader::open(dir.path()).unwrap();
    assert_eq!(reader.config(), (1, config(300)));
    writer.set_config(&config(700)).unwrap();
    assert_eq!(reader.config(), (2, config(700)));
    assert_eq!(GateWriter::open(dir.path()).unwrap().config(), (2, config(700)));

    let limits = reader.limits(0).unwrap();
    assert_eq!((limits.memory, limits.context_bytes, limits.uuid), (2 << 30, 500 << 20, *b"0123456789abcdef"));
    assert_eq!((limits.gated, limits.whole_card, limits.enforcement), (true, false, Enforcement::Audit));
    assert_eq!((reader.limits(1).unwrap().memory, reader.devices()), (u64::MAX, 2));
    assert!(reader.limits(MAX_DEVICES).is_none());

    assert!(reader.gate(0).unwrap().is_open(), "gates begin open");
    assert!(writer.set_gate(0, false) && !writer.set_gate(0, false));
    assert!(writer.set_gate(0, true) && writer.set_gate(0, false));
    assert_eq!(reader.gate(0).unwrap().turn(), 1, "opened once");
    assert!(!reader.gate(0).unwrap().is_open() && reader.gate(1).unwrap().is_open());
    assert!(reader.gate(MAX_DEVICES).is_none() && !writer.set_gate(MAX_DEVICES, true));
    let (hint, booked) =
        (ChunkHint { units: 7, cost_ns: 50_000 }, Booked { busy_ns: 1, throttled_ns: 2, turns: 3, utilisation: 4 });
    writer.set_hint(1, hint);
    writer.set_booked(1, booked);
    assert_eq!((reader.gate(1).unwrap().hint(), reader.gate(1).unwrap().booked()), (hint, booked));
    writer.beat_arbiter(11);
    writer.beat_keeper(12);
    writer.take_control(Controller::Keeper);
    assert_eq!((reader.arbiter_beat(), reader.keeper_beat(), reader.controller()), (11, 12, Controller::Keeper));
}

#[test]
fn a_page_that_is_truncated_reads_as_nothing_and_ends_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let writer = GateWriter::create(dir.path(), &config(300)).unwrap();
    let (other, reader) = (GateWriter::open(dir.path()).unwrap(), GateReader::open(dir.path()).unwrap());
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join(place::GATE)).unwrap();
    file.set_len(0).unwrap();
    assert!(!writer.is_broken() && !other.is_broken() && !reader.is_broken(), "nobody has looked");
    writer.beat_keeper(1);
    assert!(!other.set_gate(0, true) || other.is_broken());
    assert!(reader.config().1.devices.is_empty());
    assert!(writer.is_broken() && other.is_broken() && reader.is_broken());
    assert!(GateWriter::open(dir.path()).is_err() && GateReader::open(dir.path()).is_err());
}

#[test]
fn gm_22_long_names_are_kept_whole_and_longer_ones_cut() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("namespace/{}/container", "p".repeat(160));
    let named = |name: &str| ContainerConfig { name: name.into(), ..config(300) };
    let writer = GateWriter::create(dir.path(), &named(&long)).unwrap();
    assert_eq!(GateReader::open(dir.path()).unwrap().config().1.name, long);
    writer.set_config(&named(&"x".repeat(1000))).unwrap();
    let (_, read) = writer.config();
    assert_eq!(read, named(&"x".repeat(192)), "and nothing beside it is touched");
}

#[test]
fn gate_words_lie_where_the_driver_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let writer = GateWriter::create(dir.path(), &config(300)).unwrap();
    let (start, length) = writer.gates_area();
    assert_eq!((start.addr() % 4096, length), (0, 65536));
    for device in 0..MAX_DEVICES {
        let word = writer.gate(device).unwrap().word().as_ptr().addr();
        assert_eq!(word, start.addr() + GatePage::word_offset(device));
        assert_eq!(word % 256, 0, "each on a line of its own");
    }
}

#[test]
fn a_bad_configuration_is_refused_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut bad = config(300);
    bad.devices[0].share_limit = 200;
    let error = GateWriter::create(dir.path(), &bad).unwrap_err();
    assert_eq!(error.to_string(), "device 0: share request 300 is above its limit 200");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let writer = GateWriter::create(dir.path(), &config(300)).unwrap();
    assert!(writer.set_config(&bad).is_err());
    assert_eq!(writer.config(), (1, config(300)));
}

#[test]
fn files_that_are_not_ours_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let said = |bytes: &[u8]| {
        std::fs::write(dir.path().join(place::GATE), bytes).unwrap();
        GateReader::open(dir.path()).unwrap_err().to_string()
    };
    assert!(said(b"").contains("has 0 bytes where 131072 are due"), "{}", said(b""));
    assert!(said(&[0; SIZE]).contains("does not begin like"), "{}", said(&[0; SIZE]));
    let mut newer = vec![0; SIZE];
    newer[..8].copy_from_slice(&GATE_MAGIC.to_le_bytes());
    newer[8] = 99;
    assert!(said(&newer).contains("layout 99, newer"), "{}", said(&newer));
    std::fs::remove_file(dir.path().join(place::GATE)).unwrap();
    assert!(GateReader::open(dir.path()).unwrap_err().to_string().contains("gate"));
}

#[test]
fn a_reader_sees_whole_configurations_while_they_change() {
    let dir = tempfile::tempdir().unwrap();
    let writer = GateWriter::create(dir.path(), &config(1)).unwrap();
    let reader = GateReader::open(dir.path()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                s.spawn(|| {
                    let mut last = 0;
                    while !done.load(Relaxed) {
                        let (generation, seen) = reader.config();
                        // The writer below makes share and generation one number.
                        assert_eq!(seen, config(generation as u32));
                        assert!(generation >= last);
                        last = generation;
                    }
                    last
                })
            })
            .collect();
        for share in 2..=1000 {
            writer.set_config(&config(share)).unwrap();
        }
        done.store(true, Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
}

#[test]
fn a_thread_in_the_cpu_gate_is_woken_through_a_read_only_page() {
    let dir = tempfile::tempdir().unwrap();
    let writer = GateWriter::create(dir.path(), &config(1)).unwrap();
    let reader = GateReader::open(dir.path()).unwrap();
    writer.set_gate(0, false);
    std::thread::scope(|s| {
        let waiting = s.spawn(|| {
            let gate = reader.gate(0).unwrap();
            while !gate.is_open() {
                // SAFETY: the word is mapped for as long as `reader` lives; a null time-out waits for ever.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        gate.word().as_ptr(),
                        libc::FUTEX_WAIT,
                        CLOSED,
                        core::ptr::null::<libc::timespec>(),
                    )
                };
            }
        });
        writer.set_gate(0, true);
        // Woken before it slept or after: the kernel compares the word, so nothing is lost.
        writer.wake(0);
        waiting.join().unwrap();
    });
}
