use std::sync::Barrier;

use proptest::prelude::*;

use super::*;
use crate::map::Guarded;
use crate::place;

fn ledger() -> (tempfile::TempDir, Guarded<Ledger>) {
    let dir = tempfile::tempdir().unwrap();
    let ledger = LedgerFile::create(dir.path(), 2).unwrap();
    (dir, ledger)
}

fn newcomer(pid: u32) -> Newcomer<'static> {
    Newcomer { pid, name: "x", ..Newcomer::default() }
}

fn reaper(dir: &tempfile::TempDir) -> Reaper {
    LedgerFile::reaper(dir.path()).unwrap()
}

#[test]
fn a_slot_is_taken_identified_and_given_back_with_all_it_held() {
    let (dir, agent) = ledger();
    let library = LedgerFile::open(dir.path()).unwrap();
    let who = Newcomer { pid: 17, start_time: 122, namespace: 4026531836, token: 99, name: "python3" };
    let id = library.claim_process(&who).unwrap();
    assert_eq!(agent.process(id).map(|p| (p.start_time, p.namespace)), Some((122, 4026531836)));
    assert!(agent.identify_process(id, 4017, 123));
    let seen: Vec<_> = agent.processes().collect();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].pid, seen[0].host_pid, seen[0].start_time, seen[0].token), (17, 4017, 123, 99));
    assert_eq!((seen[0].name.as_str(), seen[0].state, seen[0].cpu_gate), ("python3", State::Live, false));

    library.charge(id, 1, Kind::Vmm, 100, 150).unwrap();
    assert_eq!(library.charge(id, 1, Kind::Linear, 51, 150), Err(OverLimit { used: 100 }));
    library.charge(id, 1, Kind::Linear, 50, 150).unwrap();
    agent.set_overhead(id, 1, 500);
    agent.set_overhead(id, 1, 450);
    assert_eq!((agent.used(1), agent.held_in_all(id, 1), agent.refused(1)), (600, 600, 1));
    library.credit(id, 1, Kind::Vmm, 100);
    library.charge_unchecked(id, 1, Kind::Context, 30);
    assert_eq!((agent.used(1), agent.peak(1), agent.held(id, 1, Kind::Context)), (530, 530, 30));

    let stream = library.claim_stream(id, 1).unwrap();
    library.marks(stream).unwrap().submit(1);
    let reaper = reaper(&dir);
    assert!(agent.reap_process(&reaper, id) && !agent.reap_process(&reaper, id), "once");
    assert_eq!((agent.used(1), agent.used(0), agent.processes().count()), (0, 0, 0));
    assert_eq!(agent.backlog(1).filling, 0, "the GPU dropped a dead process's work");
    let next = library.claim_process(&newcomer(18)).unwrap();
    assert_eq!(next.slot(), id.slot());
    assert_ne!(next, id);
    assert!(
        library.process(id).is_none() && !agent.reap_process(&reaper, id),
        "the old name of the slot is worth nothing"
    );
    assert_eq!(library.held(next, 1, Kind::Linear), 0);
}

#[test]
fn what_a_reaper_that_died_left_half_given_back_the_next_one_gives_back_and_never_two_at_once() {
    let (dir, ledger) = ledger();
    let (dead, alive) = (ledger.claim_process(&newcomer(1)).unwrap(), ledger.claim_process(&newcomer(2)).unwrap());
    ledger.charge(dead, 0, Kind::Linear, 70, 100).unwrap();
    ledger.charge(alive, 0, Kind::Linear, 20, 100).unwrap();
    let first = reaper(&dir);
    assert!(ledger.begin_reaping(&first, dead));
    assert!(LedgerFile::reaper(dir.path()).is_none(), "somebody is at it");
    assert_eq!(ledger.used(0), 90, "not given back yet");
    // The kernel takes the right from a reaper that was killed.
    drop(first);
    let next = reaper(&dir);
    assert!(ledger.reap_process(&next, dead) && !ledger.reap_process(&next, dead), "once");
    assert_eq!((ledger.used(0), ledger.processes().count()), (20, 1));
}

#[test]
fn every_process_of_a_crowd_gets_a_slot_of_its_own_and_the_next_is_told_no() {
    let (dir, agent) = ledger();
    let start = Barrier::new(8);
    let mut slots: Vec<usize> = std::thread::scope(|s| {
        let crowd: Vec<_> = (0..8)
            .map(|t| {
                let (start, dir) = (&start, dir.path());
                s.spawn(move || {
                    let library = LedgerFile::open(dir).unwrap();
                    start.wait();
                    (0..MAX_PROCESSES / 8)
                        .map(|i| library.claim_process(&newcomer(t * 1000 + i as u32)).unwrap().slot())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        crowd.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), MAX_PROCESSES);
    assert!(agent.claim_process(&newcomer(1)).is_none());
    assert_eq!(agent.processes().count(), MAX_PROCESSES);
}

#[test]
fn charges_of_many_processes_never_pass_the_limit_together() {
    let (dir, agent) = ledger();
    const LIMIT: u64 = 1000;
    std::thread::scope(|s| {
        for t in 0..4u32 {
            let dir = dir.path();
            s.spawn(move || {
                let library = LedgerFile::open(dir).unwrap();
                let id = library.claim_process(&newcomer(t)).unwrap();
                for i in 0..5000u64 {
                    let bytes = 1 + (i * 7 + u64::from(t)) % 400;
                    if library.charge(id, 0, Kind::Linear, bytes, LIMIT).is_ok() {
                        assert!(library.used(0) <= LIMIT);
                        library.credit(id, 0, Kind::Linear, bytes);
                    }
                }
            });
        }
    });
    assert_eq!(agent.used(0), 0);
    assert!((400..=LIMIT).contains(&agent.peak(0)), "{}", agent.peak(0));
}

#[test]
fn of_processes_that_ask_at_once_as_many_get_through_as_fit() {
    for _ in 0..200 {
        let (dir, agent) = ledger();
        let start = Barrier::new(4);
        let got: usize = std::thread::scope(|s| {
            let all: Vec<_> = (0..4)
                .map(|t| {
                    let (dir, start) = (dir.path(), &start);
                    s.spawn(move || {
                        let library = LedgerFile::open(dir).unwrap();
                        let id = library.claim_process(&newcomer(t)).unwrap();
                        start.wait();
                        library.charge(id, 0, Kind::Linear, 3, 10).is_ok()
                    })
                })
                .collect();
            all.into_iter().map(|t| usize::from(t.join().unwrap())).sum()
        });
        assert_eq!((got, agent.used(0)), (3, 9));
    }
}

#[test]
fn a_process_killed_at_any_instant_leaves_nothing_once_it_is_reaped() {
    let (dir, ledger) = ledger();
    let (dead, alive) = (ledger.claim_process(&newcomer(1)).unwrap(), ledger.claim_process(&newcomer(2)).unwrap());
    ledger.charge(dead, 0, Kind::Pool, 100, 1000).unwrap();
    ledger.charge(alive, 0, Kind::Pool, 10, 1000).unwrap();
    // Killed while asking, and killed after the booking but before it was noted by kind.
    ledger.charges[0].asked[dead.slot()].fetch_add(700, Relaxed);
    ledger.charges[0].held[dead.slot()].fetch_add(80, Relaxed);
    assert_eq!(ledger.used(0), 190);
    assert_eq!(ledger.charge(alive, 0, Kind::Linear, 900, 1000), Err(OverLimit { used: 190 }));
    ledger.reap_process(&reaper(&dir), dead);
    assert_eq!(ledger.used(0), 10);
    ledger.charge(alive, 0, Kind::Linear, 990, 1000).unwrap();
    ledger.credit(alive, 0, Kind::Linear, 5000);
    assert_eq!(ledger.used(0), 0, "never 17 TB");
}

#[test]
fn work_is_counted_from_its_launch_to_the_gpus_word() {
    let (_dir, ledger) = ledger();
    let id = ledger.claim_process(&newcomer(1)).unwrap();
    let (a, b) = (ledger.claim_stream(id, 0).unwrap(), ledger.claim_stream(id, 0).unwrap());
    let (first, second) = (ledger.marks(a).unwrap(), ledger.marks(b).unwrap());
    assert_eq!((first.submit(1), first.submit(2)), (0, 1));
    let begun = Backlog { queued: 0, filling: 3, streams: 1, completed: 0, submitted: 3 };
    assert_eq!(ledger.backlog(0), begun);
    first.end(3);
    assert_eq!((first.submit(4), first.ended(), first.submitted()), (3, 3, 7));
    first.end(7);
    second.submit(1);
    let both = Backlog { queued: 7, filling: 1, streams: 2, completed: 0, submitted: 8 };
    assert_eq!(ledger.backlog(0), both);
    assert_eq!(ledger.backlog(1), Backlog::default());
    gpu_writes(&ledger, a, 3);
    assert_eq!((first.queued(), first.completed()), (4, 3));
    gpu_writes(&ledger, a, 7);
    assert_eq!(ledger.backlog(0), Backlog { queued: 0, streams: 1, completed: 7, ..both });
}

/// Stores as the GPU would: by offset into the registered pages.
fn gpu_writes(ledger: &Ledger, stream: StreamId, number: u32) {
    let (start, length) = ledger.completions_area(stream.device()).unwrap();
    assert!(stream.completion_offset() + 4 <= length);
    // SAFETY: within the completion words of a mapped ledger, which are atomics.
    let word = unsafe { &*start.add(stream.completion_offset()).cast::<AtomicU32>() };
    word.store(number, Relaxed);
}

#[test]
fn a_destroyed_streams_slot_waits_for_the_gpu_before_it_is_used_again() {
    let (dir, ledger) = ledger();
    let (one, two) = (ledger.claim_process(&newcomer(1)).unwrap(), ledger.claim_process(&newcomer(2)).unwrap());
    let old = ledger.claim_stream(one, 0).unwrap();
    let marks = ledger.marks(old).unwrap();
    marks.submit(1);
    marks.end(1);
    ledger.free_stream(old);
    let other = ledger.claim_stream(two, 0).unwrap();
    assert_ne!(other, old, "the GPU still owes a write there");
    assert_eq!(ledger.backlog(0).queued, 1);
    gpu_writes(&ledger, old, 1);
    assert_eq!(ledger.claim_stream(two, 0), Some(old));
    let marks = ledger.marks(old).unwrap();
    assert_eq!(marks.submit(1), 1, "numbers go on");
    marks.end(2);

    ledger.free_stream(old);
    assert!(ledger.reap_process(&reaper(&dir), two));
    assert_eq!(
        ledger.backlog(0),
        Backlog { completed: 2, submitted: 2, ..Default::default() },
        "a retired slot dies with its owner"
    );
}

#[test]
fn stream_slots_run_out_politely() {
    let (dir, ledger) = ledger();
    let id = ledger.claim_process(&newcomer(1)).unwrap();
    for _ in 0..MAX_STREAMS {
        assert!(ledger.claim_stream(id, 1).is_some());
    }
    assert_eq!(ledger.claim_stream(id, 1), None);
    assert!(
        ledger.claim_stream(id, MAX_DEVICES).is_none() && ledger.marks(ledger.claim_stream(id, 0).unwrap()).is_some()
    );
    ledger.reap_process(&reaper(&dir), id);
    let next = ledger.claim_process(&newcomer(1)).unwrap();
    assert!(ledger.claim_stream(next, 1).is_some());
}

#[test]
fn a_tenant_that_truncates_its_ledger_does_not_end_the_agent() {
    let (dir, agent) = ledger();
    let id = agent.claim_process(&newcomer(1)).unwrap();
    agent.charge(id, 1, Kind::Linear, 7, 10).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(dir.path().join(place::LEDGER)).unwrap();
    assert!(!agent.is_broken());
    file.set_len(0).unwrap();
    assert_eq!(agent.used(1), 0, "reads as zeroes");
    assert!(agent.is_broken() && !agent.is_sound());
    // Everything still answers.
    assert!(agent.process(id).is_none() && !agent.reap_process(&reaper(&dir), id));
    assert_eq!(agent.backlog(0), Backlog::default());
    agent.set_overhead(id, 0, 5);
    let again = LedgerFile::open_guarded(dir.path()).unwrap_err();
    assert!(again.to_string().contains("has 0 bytes where"), "{again}");
}

#[test]
fn a_new_mapping_at_an_old_place_is_guarded_anew() {
    for _ in 0..50 {
        let (dir, agent) = ledger();
        std::fs::OpenOptions::new().write(true).open(dir.path().join(place::LEDGER)).unwrap().set_len(4096).unwrap();
        assert!(!agent.is_broken());
        agent.peak(0);
        assert!(agent.is_broken());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_agent_survives_any_bytes(seed in any::<u64>(), dense in any::<bool>()) {
        let (dir, agent) = ledger();
        let path = dir.path().join(place::LEDGER);
        let mut bytes = std::fs::read(&path).unwrap();
        let mut x = seed | 1;
        let mut next = move || { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x };
        let end = AREAS_AT + 2 * AREA;
        if dense {
            for word in bytes[64..end].chunks_mut(8) { word.copy_from_slice(&next().to_le_bytes()[..word.len()]); }
        } else {
            for _ in 0..200 { let at = next() as usize % end; bytes[at] = next() as u8; }
        }
        use std::os::unix::fs::FileExt;
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&bytes, 0).unwrap();
        let mut seen = 0;
        for process in agent.processes().collect::<Vec<_>>() {
            seen += 1;
            agent.identify_process(process.id, 1, 1);
            agent.set_overhead(process.id, 0, next());
            if seen % 2 == 0 { agent.reap_process(&reaper(&dir), process.id); }
        }
        for device in 0..MAX_DEVICES + 1 {
            let backlog = agent.backlog(device);
            prop_assert!(backlog.streams as usize <= MAX_STREAMS);
            agent.used(device);
        }
        prop_assert!(seen <= MAX_PROCESSES);
        agent.any_cpu_gate();
    }
}
