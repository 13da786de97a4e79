//! All contestants side by side: the table, as CSV and for people.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::replay::{Contestant, Outcome, replay};
use crate::rows::{NodeRow, Request};
use crate::workload::workload;

/// One cell: a contestant on a list under a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The list.
    pub list: String,
    /// Who.
    pub contestant: String,
    /// The seed.
    pub seed: u64,
    /// Unallocated at 100 % demand.
    pub at_100: f64,
    /// Unallocated at 130 % demand.
    pub at_130: f64,
    /// Demand and allocation, percent by percent.
    pub curve: Vec<(f64, f64)>,
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The nodes.
    pub nodes: Vec<NodeRow>,
    /// Lists by name.
    pub lists: Vec<(String, Vec<Request>)>,
    /// Who takes part.
    pub contestants: Vec<Contestant>,
    /// The seeds.
    pub seeds: Vec<u64>,
}

impl Comparison {
    /// How many replays it takes.
    pub fn replays(&self) -> usize {
        self.lists.len() * self.contestants.len() * self.seeds.len()
    }

    /// Plays everything on so many threads; `done` is called after every replay. The cells come in the order of lists, contestants, seeds.
    pub fn run(&self, threads: usize, done: impl Fn(&Cell) + Sync) -> Vec<Cell> {
        let next = AtomicUsize::new(0);
        let cells: Mutex<Vec<Option<Cell>>> = Mutex::new(vec![None; self.replays()]);
        let work = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= self.replays() {
                    return;
                }
                let cell = self.cell(at);
                done(&cell);
                if let Ok(mut cells) = cells.lock() {
                    cells[at] = Some(cell);
                }
            }
        };
        std::thread::scope(|scope| (0..threads.max(1)).for_each(|_| drop(scope.spawn(work))));
        cells.into_inner().unwrap_or_default().into_iter().flatten().collect()
    }

    fn cell(&self, at: usize) -> Cell {
        let (rest, seed) = (at / self.seeds.len(), self.seeds[at % self.seeds.len()]);
        let (list, contestant) = (rest / self.contestants.len(), &self.contestants[rest % self.contestants.len()]);
        let (name, list) = &self.lists[list];
        let Outcome { unallocated, unallocated_at_130, curve, .. } =
            replay(contestant, &workload(&self.nodes, list, seed), list, || {});
        let contestant = contestant.to_string();
        Cell { list: name.clone(), contestant, seed, at_100: unallocated, at_130: unallocated_at_130, curve }
    }
}

/// Every cell as a line.
pub fn csv(cells: &[Cell]) -> String {
    let mut text = String::from("list,policy,seed,unallocated_at_100_percent,unallocated_at_130_percent\n");
    for cell in cells {
        text += &format!("{},{},{},{:.4},{:.4}\n", cell.list, cell.contestant, cell.seed, cell.at_100, cell.at_130);
    }
    text
}

/// The means over seeds: a row per list and one for the mean of lists, a column per contestant.
#[derive(Clone, Debug, PartialEq)]
pub struct Means {
    /// Who.
    pub contestants: Vec<String>,
    /// A list's name and its means.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// The table of means at 100 % demand.
pub fn means(cells: &[Cell]) -> Means {
    let mut contestants: Vec<String> = Vec::new();
    let mut lists: Vec<String> = Vec::new();
    for cell in cells {
        if !contestants.contains(&cell.contestant) {
            contestants.push(cell.contestant.clone());
        }
        if !lists.contains(&cell.list) {
            lists.push(cell.list.clone());
        }
    }
    let mean = |list: &str, who: &str| {
        let own = || cells.iter().filter(|c| c.list == list && c.contestant == who).map(|c| c.at_100);
        own().sum::<f64>() / own().count().max(1) as f64
    };
    let mut rows: Vec<(String, Vec<f64>)> =
        lists.iter().map(|l| (l.clone(), contestants.iter().map(|c| mean(l, c)).collect())).collect();
    let column = |i: usize| rows.iter().map(|(_, row)| row[i]).sum::<f64>() / rows.len().max(1) as f64;
    let all = (0..contestants.len()).map(column).collect();
    rows.push(("mean".into(), all));
    Means { contestants, rows }
}

impl Means {
    /// As Markdown, as it stands in docs/reference/benchmarks.md.
    pub fn markdown(&self) -> String {
        let mut text =
            format!("| list | {} |\n|---|{}\n", self.contestants.join(" | "), "---|".repeat(self.contestants.len()));
        for (list, row) in &self.rows {
            let cells: Vec<String> = row.iter().map(|x| format!("{x:.2}")).collect();
            text += &format!("| {list} | {} |\n", cells.join(" | "));
        }
        text
    }
}

/// Lists and seeds on which `who` does not do better than `than`: a claim of "on every seed" is checked by this.
pub fn not_better(cells: &[Cell], who: &str, than: &str) -> Vec<(String, u64)> {
    let of = |list: &str, seed: u64, name: &str| {
        cells.iter().find(|c| c.list == list && c.seed == seed && c.contestant == name).map(|c| c.at_100)
    };
    let own = cells.iter().filter(|cell| cell.contestant == who);
    own.filter(|cell| of(&cell.list, cell.seed, than).is_some_and(|theirs| cell.at_100 >= theirs))
        .map(|cell| (cell.list.clone(), cell.seed))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(list: &str, who: &str, seed: u64, at_100: f64) -> Cell {
        Cell { list: list.into(), contestant: who.into(), seed, at_100, at_130: 0.0, curve: Vec::new() }
    }

    #[test]
    fn means_are_over_seeds_and_then_over_lists() {
        let cells = [
            cell("x", "a", 1, 2.0),
            cell("x", "a", 2, 4.0),
            cell("y", "a", 1, 1.0),
            cell("x", "b", 1, 3.5),
            cell("x", "b", 2, 3.0),
        ];
        let means = means(&cells);
        assert_eq!(means.rows[0], ("x".into(), vec![3.0, 3.25]));
        assert_eq!(means.rows[2].1[0], 2.0);
        assert!(means.markdown().starts_with("| list | a | b |\n|---|---|---|\n| x | 3.00 | 3.25 |\n"));
        assert_eq!(not_better(&cells, "a", "b"), [("x".to_owned(), 2)]);
    }

    #[test]
    fn cells_do_not_depend_on_the_number_of_threads() {
        let nodes: Vec<_> = crate::trace::nodes().into_iter().step_by(40).collect();
        let list: Vec<_> = crate::trace::list("default").unwrap().into_iter().step_by(40).collect();
        let contestants = ["first-fit", "frag"].map(|name| Contestant::named(name).unwrap()).to_vec();
        let comparison = Comparison { nodes, lists: vec![("few".into(), list)], contestants, seeds: vec![1, 2] };
        let one = comparison.run(1, |_| {});
        // As text: where demand never rounds to 130 % that figure is not a number, and unequal to itself.
        assert_eq!(format!("{one:?}"), format!("{:?}", comparison.run(3, |_| {})));
        assert_eq!(csv(&one).lines().count(), 5);
    }
}
