//! The public trace, carried along. Its source is named in `data/openb/README.md`.

use std::sync::Arc;

use crate::csv;
use crate::rows::{NodeRow, Request};

macro_rules! lists {
    ($($name:literal),* $(,)?) => {
        /// The pod lists there are, in the order in which they are reported.
        pub const LISTS: &[&str] = &[$($name),*];

        fn text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../data/openb/", $name, ".txt"))),)*
                _ => None,
            }
        }
    };
}

lists![
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "cpu250",
    "gpushare40",
    "gpushare60",
    "gpushare80",
    "gpushare100",
    "gpuspec10",
    "gpuspec20",
    "gpuspec25",
    "gpuspec33",
    "multigpu20",
    "multigpu30",
    "multigpu40",
    "multigpu50",
];

/// The nodes with GPUs.
#[expect(clippy::expect_used, reason = "the file is part of the program, and a test reads it")]
pub fn nodes() -> Vec<NodeRow> {
    csv::nodes(include_str!("../data/openb/nodes.csv")).expect("the trace is well formed")
}

/// The requests of a list's pods, in the order of their names; an error names the lists there are.
pub fn list(name: &str) -> Result<Vec<Request>, String> {
    let text = text(name).ok_or_else(|| format!("there is no list `{name}`; there are {}", LISTS.join(", ")))?;
    read(text).ok_or_else(|| format!("list `{name}` is damaged"))
}

fn read(text: &str) -> Option<Vec<Request>> {
    let (table, pods) = text.split_once("pods\n")?;
    let request = |line: &str| {
        let mut fields = line.split(',');
        let mut number = || fields.next()?.parse::<u64>().ok();
        let (cpu, memory, gpus, milli) = (number()?, number()?, number()? as u32, number()? as u32);
        let models: Vec<Arc<str>> = fields.next()?.split('|').filter(|m| !m.is_empty()).map(Into::into).collect();
        Some(Request { cpu, memory, gpus, milli, models })
    };
    let table: Vec<Request> = table.lines().skip(1).map(request).collect::<Option<_>>()?;
    pods.split_whitespace().map(|i| table.get(i.parse::<usize>().ok()?).cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::capacity;

    #[test]
    fn the_trace_is_whole() {
        let nodes = nodes();
        assert_eq!((nodes.len(), capacity(&nodes)), (1213, 6_212_000));
        assert_eq!(nodes.iter().map(|n| n.cpu).sum::<u64>(), 107_018_000);
        let default = list("default").unwrap();
        assert_eq!((default.len(), default.iter().filter(|r| r.gpus == 0).count()), (8152, 1088));
        for name in LISTS {
            let pods = list(name).unwrap();
            assert!(pods.iter().all(|r| (r.gpus == 0) == (r.milli == 0)), "{name}");
        }
        assert!(list("other").unwrap_err().contains("gpuspec33"));
    }
}
