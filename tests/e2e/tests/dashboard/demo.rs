//! On the demo: every view, a thousand nodes, and enforcement.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use divvy_e2e::browser::Page;
use divvy_e2e::{eventually, own};

use crate::{nothing_went_wrong, picture, turn};

/// How long the parts of the enforcement may take to build.
const BUILT: Duration = Duration::from_secs(600);
/// How long what the demo started may outlive it.
const ENDED: Duration = Duration::from_secs(60);

/// A demo that serves its dashboard, until it is dropped.
struct Demo {
    child: Child,
    address: String,
}

impl Demo {
    fn start(flags: &[&str]) -> Demo {
        let mut command = Command::new(own::divvy().unwrap());
        command.args(["demo", "--listen", "127.0.0.1:0"]).args(flags).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("http://")).expect("the demo says where it is");
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().to_owned();
        Demo { child, address }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn every_view_renders_and_what_changes_is_pushed_without_a_script_error() {
    let _turn = turn();
    let demo = Demo::start(&["--no-enforcement"]);
    let mut page = Page::open(&demo.address).unwrap();
    page.until("document.querySelectorAll('.tile').length == 6").unwrap();
    page.until("document.getElementById('live').textContent == 'live'").unwrap();
    // Pushed: the version grows and the clock goes on with no request of the page's own after the stream's.
    let asked = "performance.getEntriesByType('resource').filter((r) => r.name.includes('/api/')).length";
    page.until("Number(document.body.dataset.version) > 0").unwrap();
    let (version, requests) =
        (page.value("Number(document.body.dataset.version)").unwrap(), page.value(asked).unwrap());
    page.until(&format!("Number(document.body.dataset.version) > {version} + 100")).unwrap();
    assert_eq!(page.value(asked).unwrap(), requests, "the page polls");
    // The map: cards are drawn, in more than one colour, and the keyboard moves over them.
    page.until("document.querySelectorAll('#legend button').length >= 5").unwrap();
    let colours = "(() => { const m = document.getElementById('map'), d = m.getContext('2d').getImageData(0, 0, m.width, m.height).data; \
                   const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); \
                   return seen.size; })()";
    assert!(page.value(colours).unwrap().as_u64().unwrap() > 20);
    // The morning goes by quickly; a card fails and a team runs out of budget on the way.
    page.until("document.getElementById('news').innerText.includes('failed')").unwrap();
    picture(&mut page, "cluster.png");
    page.value("document.getElementById('map').focus()").unwrap();
    page.press("ArrowRight").unwrap();
    page.press("ArrowRight").unwrap();
    page.until("document.getElementById('tip').innerText.includes('card')").unwrap();
    page.press("Enter").unwrap();
    page.until("document.getElementById('story').open").unwrap();
    page.value("document.getElementById('story').close()").unwrap();

    page.press("2").unwrap();
    page.until("!document.getElementById('queue').hidden && document.getElementById('cluster').hidden").unwrap();
    page.until("document.querySelectorAll('#queue tbody tr').length > 0").unwrap();
    page.until("/nodes|gang/.test(document.querySelector('#queue tbody').innerText)").unwrap();
    picture(&mut page, "queue.png");
    page.value("document.querySelector('#queue .link').click()").unwrap();
    page.until("document.querySelectorAll('#story .chapters li').length > 0").unwrap();
    picture(&mut page, "story.png");
    page.value("document.getElementById('story').close()").unwrap();

    page.press("3").unwrap();
    page.until("document.querySelectorAll('#budgets svg.chart').length >= 3").unwrap();
    picture(&mut page, "budgets.png");
    page.press("4").unwrap();
    page.until("document.querySelectorAll('#trends svg.chart path').length >= 4").unwrap();
    picture(&mut page, "trends.png");

    page.press("1").unwrap();
    page.prefer("dark").unwrap();
    page.until("getComputedStyle(document.body).backgroundColor == 'rgb(16, 21, 28)'").unwrap();
    picture(&mut page, "dark.png");
    page.press("t").unwrap();
    page.until("getComputedStyle(document.body).backgroundColor == 'rgb(246, 247, 249)'").unwrap();
    page.press("?").unwrap();
    page.until("document.getElementById('help').open").unwrap();
    nothing_went_wrong(&mut page, &demo.address);
}

#[test]
fn a_thousand_nodes_are_one_readable_picture() {
    let _turn = turn();
    let demo = Demo::start(&["--nodes", "1000", "--speed", "1", "--no-enforcement"]);
    let mut page = Page::open(&demo.address).unwrap();
    page.until("document.querySelectorAll('#legend button').length >= 3").unwrap();
    page.until("document.querySelector('.tile').innerText.includes('1000 nodes')").unwrap();
    drop(page);
    // A second look, with everything there, as somebody has who opens the page now.
    let mut page = Page::open(&demo.address).unwrap();
    page.until("document.body.dataset.firstView").unwrap();
    let first = page.value("Number(document.body.dataset.firstView)").unwrap().as_f64().unwrap();
    println!("first view of 1000 nodes after {first:.0} ms");
    // A promise of one second on a machine of its own; tests run on any.
    assert!(first < 10_000.0, "the first view came after {first:.0} ms");
    let height = page.value("document.getElementById('map').clientHeight").unwrap().as_u64().unwrap();
    assert!((200..4_000).contains(&height), "the map is {height} pixels high");
    let narrow = "document.documentElement.scrollWidth <= window.innerWidth";
    assert_eq!(page.value(narrow).unwrap(), true, "the page is wider than the window");
    page.until("document.getElementById('live').textContent == 'live'").unwrap();
    picture(&mut page, "thousand.png");
    nothing_went_wrong(&mut page, &demo.address);
}

#[test]
fn two_real_processes_are_held_to_their_shares_before_the_viewers_eyes() {
    let _turn = turn();
    let demo = Demo::start(&["--nodes", "3"]);
    let mut page = Page::open(&format!("{}#proof", demo.address)).unwrap();
    page.until("!document.getElementById('proof').hidden").unwrap();
    // The parts are built first, where they are not up to date; the page says so until they run.
    eventually("both processes run", BUILT, || page.until("document.querySelectorAll('#proof .tenant').length == 2"))
        .unwrap();
    page.until("document.querySelectorAll('#proof .tenant svg.chart').length == 2").unwrap();
    page.until("[...document.querySelectorAll('#proof .had')].every((e) => parseFloat(e.textContent) > 5)").unwrap();
    page.until("/[1-9][0-9]* allocations beyond it refused/.test(document.getElementById('proof').innerText)").unwrap();
    picture(&mut page, "enforcement.png");
    nothing_went_wrong(&mut page, &demo.address);
    // Killed, it cannot clean up after itself: what it started sees that it is gone.
    let started = descendants(demo.child.id());
    assert!(started.len() >= 4, "an arbiter, its keeper and two tenants: {started:?}");
    drop(demo);
    eventually("everything that the demo started has ended", ENDED, || {
        let left: Vec<&(u32, String)> = started.iter().filter(|(pid, born)| lives(*pid, born)).collect();
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .unwrap();
}

/// What `/proc/PID/stat` says after the name: the state, the parent, and so on.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// When a process began: with its number its name among all that ever were.
fn born(stat: &[String]) -> String {
    stat[19].clone()
}

fn lives(pid: u32, since: &str) -> bool {
    stat(pid).is_some_and(|stat| stat[0] != "Z" && born(&stat) == since)
}

/// The children of a process, theirs, and so on.
fn descendants(of: u32) -> Vec<(u32, String)> {
    let names = std::fs::read_dir("/proc").unwrap().map_while(Result::ok);
    let all: Vec<(u32, Vec<String>)> = names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect();
    let mut found = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat[1] == parent.to_string()) {
            found.push((*pid, born(stat)));
            parents.push(*pid);
        }
    }
    found
}
