//! The dashboard in a real browser, on the demo. `DIVVY_PICTURES=1` writes the pictures of the documentation anew.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use divvy_browser::Page;

/// A demo that serves its dashboard, until it is dropped.
struct Demo {
    child: Child,
    address: String,
}

impl Demo {
    fn start(flags: &[&str]) -> Demo {
        let mut command = Command::new(divvy());
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

/// The program, built if it is not up to date.
fn divvy() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--package", "divvy"]);
        // What cargo told this test about its own package would make dependencies compile anew.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                command.env_remove(&name);
            }
        }
        assert!(command.status().unwrap().success(), "divvy does not build");
        // target/PROFILE/deps/TEST-HASH is this very program.
        std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("divvy")
    };
    BUILT.get_or_init(build).clone()
}

fn pictures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// Takes a picture; where asked to, it becomes the documentation's.
fn picture(page: &mut Page, name: &str) {
    let taken = page.picture().unwrap();
    assert!(taken.starts_with(b"\x89PNG") && taken.len() > 10_000, "{name} is no picture: {} bytes", taken.len());
    let path = pictures().join(name);
    if std::env::var_os("DIVVY_PICTURES").is_some() {
        std::fs::create_dir_all(pictures()).unwrap();
        std::fs::write(&path, &taken).unwrap();
    }
    assert!(path.exists(), "{name} is missing in docs/pictures: run this test with DIVVY_PICTURES=1 and commit it");
}

#[track_caller]
fn nothing_went_wrong(page: &mut Page, address: &str) {
    assert_eq!(page.errors().unwrap(), Vec::<String>::new());
    let outside: Vec<&String> =
        page.requests().iter().filter(|url| !url.starts_with(address) && !url.starts_with("about:")).collect();
    assert_eq!(outside, Vec::<&String>::new(), "requests to elsewhere");
    assert!(!page.requests().is_empty());
}

#[test]
fn every_view_renders_and_what_changes_is_pushed_without_a_script_error() {
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
