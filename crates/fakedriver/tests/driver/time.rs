//! Simulated time: kernels take what they say, shares between processes are exact, waits hold across processes.

use std::time::Instant;

use crate::support::{Host, comes_to, eventually};
use divvy_fakedriver::machine::Unit;

const CARD: Unit = Unit::card(0);

/// How far a part is from a share of a whole, in thousandths.
fn off_by(part: u64, whole: u64, share: u64) -> u64 {
    (part * 1000 / whole).abs_diff(share)
}

#[test]
fn kernels_take_the_time_their_name_says() {
    let host = Host::new("1xH200");
    let mut tenant = host.ready();
    let mut rounds = 0;
    comes_to("us for 1000 kernels of 200 us", 200_000..230_000, || {
        let start = Instant::now();
        tenant.ask("launch spin_us_200 1000");
        tenant.ask("sync");
        rounds += 1;
        start.elapsed().as_micros() as u64
    });
    let busy = host.machine.tenants(CARD)[0].busy;
    assert_eq!(busy, rounds * 200_000_000, "busy time is exact however late anybody looked");
}

#[test]
fn two_saturating_processes_get_equal_halves() {
    let host = Host::new("1xH200");
    let mut pair = [host.ready(), host.ready()];
    comes_to("points off a half, and of the time in which the card was idle", 0..18, || {
        let switches = host.machine.switches(CARD);
        pair.iter_mut().for_each(|t| t.tell("spin spin_us_200 50 1500"));
        eventually("both run", || host.machine.switches(CARD) > switches + 10);
        let before = host.machine.tenants(CARD);
        let start = Instant::now();
        pair.iter_mut().for_each(|t| drop(t.hear()));
        let (after, took) = (host.machine.tenants(CARD), start.elapsed().as_nanos() as u64);
        let gained: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a.busy - b.busy).collect();
        let sum: u64 = gained.iter().sum();
        off_by(gained[0], sum, 500).max((took - sum.min(took)) * 600 / took)
    });
}

#[test]
fn a_long_kernel_is_sliced_with_short_ones() {
    let host = Host::new("1xH200");
    let (mut long, mut short) = (host.ready(), host.ready());
    comes_to("short kernels in a second beside a long one, of 10000 alone", 4300..5700, || {
        long.tell("spin spin_ms_100 1 1000");
        short.tell("spin spin_us_100 20 1000");
        let kernels = short.hear().strip_prefix("ok ").unwrap().parse().unwrap();
        let long_kernels: u64 = long.hear().strip_prefix("ok ").unwrap().parse().unwrap();
        assert!((4..=12).contains(&long_kernels), "{long_kernels} long ones");
        kernels
    });
}

#[test]
fn a_stream_waits_for_a_word_that_another_process_writes() {
    let host = Host::new("1xH200");
    let (mut waits, mut runs) = (host.ready(), host.ready());
    let page = host.page("gate");
    waits.ask(&format!("gate {}", page.path.display()));
    waits.ask("wait 0 1");
    waits.ask("launch spin_us_100 10");
    waits.ask("write 1 7");
    assert_eq!(waits.ask("query"), "error 600");
    // While it waits, the card is free for others.
    comes_to("of 3000 beside a waiting stream", 2800..3100, || runs.numbers("spin spin_us_100 50 300")[0]);
    assert_eq!((page.get(1), waits.ask("query").as_str()), (0, "error 600"));
    page.set(0, 1);
    eventually("the write behind the gate", || page.get(1) == 7);
    assert_eq!(waits.ask("query"), "ok");
}

#[test]
fn a_stopped_owner_does_not_hold_the_card_and_a_killed_one_leaves_nothing() {
    let host = Host::new("1xH200");
    let (mut first, mut second) = (host.ready(), host.ready());
    first.ask("alloc 10737418240");
    first.ask("launch spin_ms_100 100");
    // SAFETY: stops and kills a child of ours.
    unsafe { libc::kill(first.pid().cast_signed(), libc::SIGSTOP) };
    comes_to("of 3000 beside a stopped owner", 2500..3100, || second.numbers("spin spin_us_100 50 300")[0]);
    let held = host.machine.used(CARD);
    first.kill();
    assert_eq!(host.machine.used(CARD), held - (10 << 30) - (518 << 20), "what it held is free");
    comes_to("of 2000 alone", 1800..2100, || second.numbers("spin spin_us_100 50 200")[0]);
    assert_eq!(host.machine.tenants(CARD).len(), 1);
}

#[test]
fn a_write_to_a_read_only_page_breaks_only_the_writer() {
    let host = Host::new("1xH200");
    let (mut writer, mut other) = (host.ready(), host.ready());
    let page = host.page("gate");
    assert_eq!(writer.ask(&format!("gate-read-only {}", page.path.display())), "ok");
    assert_eq!(writer.ask("wait 0 0"), "ok");
    assert_eq!(writer.ask("query"), "ok", "waits on a read-only page work");
    assert_eq!(writer.ask("write 1 5"), "ok");
    assert_eq!(writer.ask("sync"), "error 719");
    assert_eq!(writer.ask("alloc 512"), "error 719");
    assert_eq!(page.get(1), 0);
    assert!(other.ask("launch spin_us_10 1") == "ok" && other.ask("sync").starts_with("ok"));
}

#[test]
fn many_threads_on_one_context_all_get_done() {
    let host = Host::new("1xH200");
    let mut tenant = host.ready();
    let empty = host.machine.used(CARD);
    for seed in 1..=3 {
        let before = host.machine.account(CARD, 0).kernels.load(std::sync::atomic::Ordering::SeqCst);
        let counted = tenant.numbers(&format!("stress 8 400 {seed}"));
        let done = host.machine.account(CARD, 0).kernels.load(std::sync::atomic::Ordering::SeqCst) - before;
        assert!(done >= counted[0], "{done} kernels and sets done, {} launched", counted[0]);
        assert_eq!(tenant.ask("query"), "ok");
        assert_eq!(host.machine.used(CARD), empty, "seed {seed}: all memory is back");
        assert_eq!(host.machine.turn(CARD).owner, None, "an idle process does not keep the turn");
    }
}
