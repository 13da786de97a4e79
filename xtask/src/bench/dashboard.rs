//! `cargo xtask bench dashboard`: how long a viewer waits for the first view, in a real Chromium, at the demo's 24 nodes and at 1,000.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use divvy_e2e::browser::Page;

use crate::{dist, run};

/// Looks at each size, each in a browser that was just started and has cached nothing.
const LOOKS: usize = 7;

/// Prints the table of docs/reference/benchmarks.md. A program that is built already is measured where one is named.
pub(super) fn run(words: &[String]) -> anyhow::Result<()> {
    let program = match words.first() {
        Some(program) => PathBuf::from(program),
        None => {
            run::run(&mut run::command("cargo", &["build", "--release", "--package", "divvy"]))?;
            dist::target()?.join("release/divvy")
        }
    };
    println!("| nodes | cards | page | picture | styles and scripts there | drawn: median | least | most |");
    println!("|---|---|---|---|---|---|---|---|");
    for nodes in ["24", "1000"] {
        let demo = Demo::start(&program, nodes)?;
        println!("{}", row(nodes, &demo.address)?);
    }
    Ok(())
}

fn row(nodes: &str, address: &str) -> anyhow::Result<String> {
    // The first look only makes sure that everything is there; it is not counted.
    let mut page = Page::open(address)?;
    let there = format!("document.querySelector('.tile').innerText.includes('{nodes} nodes')");
    page.until(&there)?;
    page.until("document.querySelectorAll('#legend button').length >= 3")?;
    let cards = page.value("fetch('/api/cluster').then((r) => r.json()).then((c) => c.nodes.reduce((n, node) => n + node.cards.length, 0))")?;
    let picture = number(&mut page, "fetch('/api/cluster').then((r) => r.text()).then((t) => t.length)")?;
    drop(page);
    let (mut drawn, mut loaded, mut bytes) = (Vec::new(), Vec::new(), 0.0);
    for _ in 0..LOOKS {
        let mut page = Page::open(address)?;
        page.until("document.body.dataset.firstView")?;
        drawn.push(number(&mut page, "Number(document.body.dataset.firstView)")?);
        let parts = "performance.getEntriesByType('resource').filter((r) => !r.name.includes('/api/'))";
        loaded.push(number(&mut page, &format!("Math.max(...{parts}.map((r) => r.responseEnd))"))?);
        let page_itself = "performance.getEntriesByType('navigation')[0].transferSize";
        bytes = number(&mut page, &format!("{page_itself} + {parts}.reduce((sum, r) => sum + r.transferSize, 0)"))?;
    }
    for times in [&mut drawn, &mut loaded] {
        times.sort_by(f64::total_cmp);
    }
    Ok(format!(
        "| {nodes} | {cards} | {:.0} KiB | {:.0} KiB | {:.0} ms | {:.0} ms | {:.0} ms | {:.0} ms |",
        bytes / 1024.0,
        picture / 1024.0,
        loaded[LOOKS / 2],
        drawn[LOOKS / 2],
        drawn[0],
        drawn[LOOKS - 1]
    ))
}

fn number(page: &mut Page, expression: &str) -> anyhow::Result<f64> {
    page.value(expression)?.as_f64().with_context(|| format!("not a number: {expression}"))
}

/// A demo in real time, until it is dropped.
struct Demo {
    child: Child,
    address: String,
}

impl Demo {
    fn start(program: &Path, nodes: &str) -> anyhow::Result<Demo> {
        let mut command = Command::new(program);
        command.args(["demo", "--listen", "127.0.0.1:0", "--speed", "1", "--no-enforcement", "--nodes", nodes]);
        let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| program.display().to_string())?;
        let out = child.stdout.take().context("the demo says nothing")?;
        let mut demo = Demo { child, address: String::new() };
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let words = lines.find(|line| line.contains("http://")).context("the demo does not say where it is")?;
        words
            .split_whitespace()
            .filter(|word| word.starts_with("http://"))
            .for_each(|word| word.clone_into(&mut demo.address));
        std::thread::spawn(move || lines.for_each(drop));
        Ok(demo)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
