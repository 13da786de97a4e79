//! `kubectl divvy budget`: balances of GPU time, as the budget controller keeps them in the objects' status.

use serde::Serialize;
use serde_json::Value;

use crate::cluster::{Source, View};
use crate::ending::Ending;
use crate::output::{BAD, Cell, GOOD, PLAIN, Table, WARN};

#[derive(clap::Args)]
pub(crate) struct Args {}

/// A balance, in the controller's words.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Balance {
    /// The namespace; absent for a budget of the whole cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    name: String,
    /// Not said before the controller has seen it.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
}

impl Balance {
    fn says(&self, field: &str) -> String {
        let value = self.status.as_ref().map_or(&Value::Null, |status| &status[field]);
        match value {
            Value::Null => "-".into(),
            Value::String(text) if text.is_empty() => "-".into(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

pub(crate) async fn run(_: &Args, source: &Source) -> anyhow::Result<Ending> {
    let balances = balances(&source.view().await?, source.wanted_namespace());
    source.output.print(&balances, |wide| table(&balances, wide))?;
    Ok(Ending::Yes)
}

fn balances(view: &View, only: Option<&str>) -> Vec<Balance> {
    let of = |budget: &Value| {
        let text = |field: &str| budget["metadata"][field].as_str().map(str::to_owned);
        Balance {
            namespace: text("namespace"),
            name: text("name").unwrap_or_default(),
            status: budget.get("status").filter(|status| !status.is_null()).cloned(),
        }
    };
    let mut all: Vec<Balance> = view.budgets.iter().map(of).collect();
    all.retain(|balance| only.is_none_or(|only| balance.namespace.as_deref() == Some(only)));
    all.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    all
}

fn table(balances: &[Balance], wide: bool) -> String {
    if balances.is_empty() {
        return "There is no GpuBudget here: GPU time is not counted against anybody.\n".into();
    }
    let fields = ["state", "left", "total", "perHour", "empty", "renews", "pods"];
    let more = ["spent", "refunded", "carried", "booked", "message"];
    let mut header = vec!["NAMESPACE", "BUDGET", "STATE", "LEFT", "OF", "PER HOUR", "EMPTY", "RENEWS", "PODS"];
    if wide {
        header.extend(["SPENT", "REFUNDED", "CARRIED", "BOOKED", "MESSAGE"]);
    }
    let mut table = Table::default();
    table.row(header);
    for balance in balances {
        let state = balance.says("state");
        let style = match state.to_ascii_lowercase().as_str() {
            "-" => PLAIN,
            "outofbudget" | "stopped" | "invalid" => BAD,
            "grace" => WARN,
            _ => GOOD,
        };
        let mut cells =
            vec![Cell::from(balance.namespace.as_deref().unwrap_or("(cluster)")), Cell::from(&balance.name)];
        for field in fields.iter().chain(more.iter().filter(|_| wide)) {
            cells.push(Cell(balance.says(field), if *field == "state" { style } else { PLAIN }));
        }
        table.row(cells);
    }
    table.text()
}
