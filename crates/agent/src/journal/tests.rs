use divvy_core::budget;
use divvy_core::units::{Bytes, Share};

use super::*;

const T0: Time = Time(1_700_000_000_000);

fn at(seconds: u64) -> Time {
    T0.plus_seconds(seconds)
}

fn sample(pod: &str, busy: u64) -> Sample {
    let held = HeldDevice {
        device: "G0".into(),
        model: "T4".into(),
        share: Share(300),
        memory: Bytes::gib(4),
        of_share: Share::WHOLE,
        of_memory: Bytes::gib(16),
        alone: false,
    };
    Sample {
        pod: PodKey::new("ns", pod),
        uid: format!("uid-{pod}").as_str().into(),
        container: "main".into(),
        held,
        granted: T0,
        counters: Counters { busy, throttled: busy / 2, refused: busy / 100 },
        used: busy << 20,
    }
}

fn open(dir: &Path, bytes: u64) -> Journal {
    Journal::open(dir, "n".into(), bytes, T0).unwrap()
}

fn all(journal: &Journal) -> Vec<Entry> {
    after(journal, None)
}

/// Everything after a place, page by page.
fn after(journal: &Journal, mut place: Option<Cut>) -> Vec<Entry> {
    let mut read = Vec::new();
    loop {
        let page = journal.page(place, PAGE).unwrap();
        assert!(page.records.len() <= PAGE);
        place = page.records.last().map(|last| Cut { epoch: page.epoch, sequence: last.record.sequence });
        read.extend(page.records);
        if !page.more {
            return read;
        }
    }
}

fn story(journal: &Journal) -> Vec<(u64, String, u64, bool)> {
    let tell = |e: Entry| (e.record.sequence, e.record.pod.name.to_string(), e.record.busy, e.record.until.is_some());
    all(journal).into_iter().map(tell).collect()
}

#[test]
fn a_record_is_written_at_the_start_every_minute_of_use_at_a_change_and_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(0), &[sample("a", 0)]).unwrap();
    journal.observe(at(30), &[sample("a", 100)]).unwrap();
    journal.observe(at(60), &[sample("a", 200)]).unwrap();
    journal.observe(at(200), &[sample("a", 200)]).unwrap();
    let mut resized = sample("a", 210);
    resized.held.memory = Bytes::gib(8);
    journal.observe(at(201), &[resized.clone()]).unwrap();
    resized.counters.busy = 250;
    journal.freshen(at(202), &[resized], |_| true).unwrap();
    journal.observe(at(203), &[]).unwrap();
    journal.observe(at(204), &[]).unwrap();
    let of = |n, busy, end| (n, "a".to_owned(), busy, end);
    assert_eq!(
        story(&journal),
        [of(1, 0, false), of(2, 200, false), of(3, 210, false), of(4, 250, false), of(5, 250, true)]
    );
    let end = all(&journal).pop().unwrap();
    assert_eq!((end.record.until, end.throttled, end.refused, end.used), (Some(at(203)), 105, 2, 0));
}

#[test]
fn budgets_read_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(0), &[sample("a", 7), sample("b", 8)]).unwrap();
    let text = serde_json::to_string(&journal.page(None, 1).unwrap()).unwrap();
    let page: budget::Page = serde_json::from_str(&text).unwrap();
    assert!(page.more);
    let cut = page.cut().unwrap();
    assert_eq!((cut.epoch, cut.sequence, page.records[0].busy), (T0.0, 1, 7));
    let rest = journal.page(Some(cut), 100).unwrap();
    assert_eq!((rest.records.len(), rest.more), (1, false));
    let elsewhere = Cut { epoch: 1, sequence: 2 };
    assert_eq!(
        journal.page(Some(elsewhere), 100).unwrap().records.len(),
        2,
        "a place in another journal is the beginning"
    );
}

#[test]
fn what_a_restart_finds_goes_on_and_what_went_meanwhile_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), 1 << 30).observe(at(0), &[sample("a", 10), sample("b", 20)]).unwrap();
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(100), &[sample("b", 30)]).unwrap();
    let of = |n, pod: &str, busy, end| (n, pod.to_owned(), busy, end);
    assert_eq!(story(&journal)[2..], [of(3, "b", 30, false), of(4, "a", 10, true)]);
    // The node lost its pages: counters begin anew, totals do not.
    journal.observe(at(200), &[sample("b", 5)]).unwrap();
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(300), &[sample("b", 9)]).unwrap();
    assert_eq!(story(&journal).last().unwrap(), &of(6, "b", 39, false));
}

#[test]
fn a_torn_line_ends_its_file_and_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path(), 1 << 30).observe(at(0), &[sample("a", 10), sample("b", 20)]).unwrap();
    let file = dir.path().join(format!("{:020}.jsonl", 1));
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 7]).unwrap();
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(100), &[sample("a", 11), sample("b", 21)]).unwrap();
    let of = |n, pod: &str, busy| (n, pod.to_owned(), busy, false);
    assert_eq!(story(&journal), [of(1, "a", 10), of(2, "a", 11), of(3, "b", 21)]);
}

/// Busy time of each pod as a reader would know it after reading everything.
fn totals(journal: &Journal) -> BTreeMap<String, u64> {
    let (mut totals, mut after) = (BTreeMap::new(), Cut { epoch: T0.0, sequence: 0 });
    loop {
        let page = journal.page(Some(after), 1000).unwrap();
        for entry in &page.records {
            assert!(entry.record.sequence > after.sequence, "numbers only grow");
            after.sequence = entry.record.sequence;
            totals.insert(entry.record.pod.name.to_string(), entry.record.busy);
        }
        if !page.more {
            return totals;
        }
    }
}

#[test]
fn nobody_reads_and_the_journal_stays_bounded_without_losing_a_total() {
    let dir = tempfile::tempdir().unwrap();
    let most = 3 << 20;
    let journal = open(dir.path(), most);
    let names: Vec<String> = (0..80).map(|n| format!("p{n}")).collect();
    for minute in 0..240u64 {
        let samples: Vec<Sample> = names.iter().map(|n| sample(n, minute * 100)).collect();
        journal.observe(at(minute * 60), &samples).unwrap();
    }
    journal.observe(at(240 * 60), &[]).unwrap();
    let (lost, bytes) = journal.size();
    assert!(bytes <= most + (2 << 20), "{bytes}");
    assert_eq!(lost, 0);
    let on_disk: u64 = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk <= bytes + 100, "{on_disk} of {bytes}");
    let of = |journal: &Journal| totals(journal).into_values().collect::<Vec<_>>();
    assert_eq!(of(&journal), [23_900; 80]);
    assert_eq!(of(&open(dir.path(), most)), [23_900; 80]);
}

#[test]
fn what_was_acknowledged_goes_and_what_is_held_is_still_known_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(0), &[sample("held", 1)]).unwrap();
    for n in 0..100u64 {
        let mut samples: Vec<Sample> = (0..40).map(|k| sample(&format!("p{n}-{k}"), 1)).collect();
        samples.push(sample("held", 1));
        journal.observe(at(n), &samples).unwrap();
    }
    let before = journal.size().1;
    let cut = Cut { epoch: journal.page(None, 1).unwrap().epoch, sequence: 4096 };
    journal.acknowledge(Cut { epoch: 1, ..cut }).unwrap();
    assert_eq!(journal.size().1, before, "an acknowledgement of another journal changes nothing");
    journal.acknowledge(cut).unwrap();
    assert!(journal.size().1 < before, "{before}");
    let rest = after(&journal, Some(cut));
    assert_eq!(rest[0].record.sequence, cut.sequence + 1, "what was not acknowledged is there");
    // Only its file of the beginning is gone, and yet its end is noticed.
    let journal = open(dir.path(), 1 << 30);
    journal.observe(at(9000), &[]).unwrap();
    let ends = after(&journal, Some(cut));
    let held = ends.iter().rfind(|e| e.record.pod.name.to_string() == "held");
    let last = held.map(|e| e.record.until).or_else(|| {
        let last = all(&journal);
        last.into_iter().rfind(|e| e.record.pod.name.to_string() == "held").map(|e| e.record.until)
    });
    assert_eq!(last, Some(Some(at(9000))));
}

#[test]
fn a_page_has_at_most_500_records_and_is_read_while_the_journal_is_written_and_cut() {
    let dir = tempfile::tempdir().unwrap();
    let journal = open(dir.path(), 1 << 30);
    for n in 0..100u64 {
        let samples: Vec<Sample> = (0..40).map(|k| sample(&format!("p{n}-{k}"), 1)).collect();
        journal.observe(at(n), &samples).unwrap();
    }
    let whole = journal.page(None, usize::MAX).unwrap();
    assert_eq!((whole.records.len(), whole.more), (500, true));
    let begun = journal.inner().files.unread(0).unwrap();
    let last = all(&journal).last().unwrap().record.sequence;
    journal.acknowledge(Cut { epoch: whole.epoch, sequence: last }).unwrap();
    journal.observe(at(200), &[sample("later", 1)]).unwrap();
    let (read, more) = begun.read(PAGE).unwrap();
    assert_eq!((read, more), (whole.records, true), "what was opened is read to its end");
}
