//! `kubectl divvy doctor`: what keeps GPU sharing from working, and how to mend it.
//!
//! Facts are gathered first (from the API server, or with `--host` from this machine's files); every check is a pure function of
//! them, and has a test that breaks it.

mod cluster;
mod facts;
mod host;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::Serialize;

pub(crate) use facts::Facts;

use crate::cluster::{File, Source, View, gather};
use crate::ending::Ending;
use crate::output::{BAD, Cell, GOOD, PLAIN, QUIET, Table, WARN, paint};

/// What the command promises.
pub(crate) const ABOUT: &str = "\
Looks at the cluster from outside: are there nodes with GPUs that Divvy knows, does admission answer, does anybody else own the same GPUs or \
resource names, do versions and clocks agree, is the policy followed. With --host it looks at the machine it runs on instead, which \
should be a GPU node: the container runtime's default and its CDI setting, who may choose visible devices, the kubelet's folders. \
Exit code 1 when something is wrong.";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Look at this machine's own settings instead; a path is where its root file system is mounted
    #[arg(long, value_name = "ROOT", num_args = 0..=1, default_missing_value = "/")]
    host: Option<PathBuf>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// As it should be.
    Well,
    /// It cannot be told from here.
    Unknown,
    /// It works, but not as well as it could.
    Warning,
    /// It does not work.
    Wrong,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Which check.
    pub(crate) check: &'static str,
    /// How bad it is.
    pub(crate) verdict: Verdict,
    /// What was found.
    pub(crate) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) mend: String,
}

impl Finding {
    fn well(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Well, found: found.into(), mend: String::new() }
    }

    fn unknown(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Unknown, found: found.into(), mend: String::new() }
    }

    fn warning(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Warning, found: found.into(), mend: mend.into() }
    }

    fn wrong(check: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { check, verdict: Verdict::Wrong, found: found.into(), mend: mend.into() }
    }
}

pub(crate) async fn run(args: &Args, source: &Source) -> anyhow::Result<Ending> {
    let findings = match &args.host {
        Some(root) => host::check(&host::Host::read(root)),
        None => {
            let file = match &source.snapshot {
                Some(path) => File::read(path)?,
                None => {
                    let client = source.client().await?;
                    let mut file = gather(&client).await?;
                    file.facts = Facts::of_cluster(&client).await?;
                    file
                }
            };
            let facts = file.facts.clone();
            let policy = file.policy.clone();
            cluster::check(&View::of(file, "default".into()), &policy, &facts)
        }
    };
    source.output.print(&findings, |_| text(&findings))?;
    let wrong = findings.iter().any(|finding| finding.verdict == Verdict::Wrong);
    Ok(if wrong { Ending::No } else { Ending::Yes })
}

fn text(findings: &[Finding]) -> String {
    let mut table = Table::default();
    for finding in findings {
        let (mark, style) = match finding.verdict {
            Verdict::Well => ("ok", GOOD),
            Verdict::Unknown => ("?", QUIET),
            Verdict::Warning => ("warning", WARN),
            Verdict::Wrong => ("WRONG", BAD),
        };
        table.row([Cell(mark.into(), style), Cell::from(finding.check), Cell(finding.found.clone(), PLAIN)]);
        if !finding.mend.is_empty() {
            table.row([Cell::from(""), Cell::from(""), Cell(format!("-> {}", finding.mend), style)]);
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (wrong, warnings) = (count(Verdict::Wrong), count(Verdict::Warning));
    let sum = match (wrong, warnings) {
        (0, 0) => paint("Nothing is wrong.", GOOD),
        (0, n) => paint(&format!("Nothing is wrong; {n} could be better."), WARN),
        (n, _) => paint(&format!("{n} of {} checks found something wrong.", findings.len()), BAD),
    };
    format!("{}\n{sum}\n", table.text())
}
