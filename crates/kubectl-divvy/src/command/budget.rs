//! `kubectl divvy budget`: balances of GPU time.

use serde_json::Value;

use crate::cluster::Source;
use crate::ending::Ending;
use crate::output::Table;

#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_: &Args, source: &Source) -> anyhow::Result<Ending> {
    let view = source.view().await?;
    let wanted = |budget: &&Value| {
        source.wanted_namespace().is_none_or(|only| budget["metadata"]["namespace"].as_str().unwrap_or(only) == only)
    };
    let budgets: Vec<&Value> = view.budgets.iter().filter(wanted).collect();
    source.output.print(&budgets, |_| table(&budgets))?;
    Ok(Ending::Yes)
}

fn table(budgets: &[&Value]) -> String {
    if budgets.is_empty() {
        return "There is no GpuBudget: GPU time is not counted against anybody.\n".into();
    }
    let mut table = Table::new(["NAMESPACE", "NAME"]);
    for budget in budgets {
        let text = |field: &str| budget["metadata"][field].as_str().unwrap_or("-").to_owned();
        table.row([text("namespace"), text("name")]);
    }
    table.text()
}
