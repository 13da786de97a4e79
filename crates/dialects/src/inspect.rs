//! What `kubectl inspect gpushare` printed: who holds how much of which card, in the nodes' units.

use divvy_core::device::MemoryUnit;

/// A node as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its name.
    pub name: String,
    /// Its internal address, where known.
    pub address: Option<String>,
    /// The units of each of its cards.
    pub cards: Vec<u64>,
    /// The pods on it.
    pub pods: Vec<PodView>,
}

/// A pod as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Units by card, as many as the node has cards.
    pub held: Vec<u64>,
    /// Units that are bound to the node but to no card.
    pub pending: u64,
}

impl NodeView {
    fn used(&self, card: usize) -> u64 {
        self.pods.iter().map(|pod| pod.held.get(card).copied().unwrap_or(0)).sum()
    }

    fn pending(&self) -> u64 {
        self.pods.iter().map(|pod| pod.pending).sum()
    }

    fn all_used(&self) -> u64 {
        (0..self.cards.len()).map(|card| self.used(card)).sum::<u64>() + self.pending()
    }

    fn total(&self) -> u64 {
        self.cards.iter().sum()
    }

    fn address(&self) -> &str {
        self.address.as_deref().unwrap_or("unknown")
    }
}

fn unit(unit: MemoryUnit) -> &'static str {
    match unit {
        MemoryUnit::GiB => "GiB",
        MemoryUnit::MiB => "MiB",
    }
}

fn percent(used: u64, total: u64) -> u64 {
    (u128::from(used) * 100).checked_div(u128::from(total)).unwrap_or(0) as u64
}

fn in_order(nodes: &[NodeView]) -> Vec<&NodeView> {
    let mut nodes: Vec<&NodeView> = nodes.iter().collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

fn cluster(nodes: &[&NodeView]) -> String {
    let (used, total) = (nodes.iter().map(|node| node.all_used()).sum(), nodes.iter().map(|node| node.total()).sum());
    format!("{used}/{total} ({}%)", percent(used, total))
}

/// One line per node, in the order of their names: allocated and total units of each card.
pub fn summary(nodes: &[NodeView], memory_unit: MemoryUnit) -> String {
    let nodes = in_order(nodes);
    let cards = nodes.iter().map(|node| node.cards.len()).max().unwrap_or(0);
    let pending = nodes.iter().any(|node| node.pending() > 0);
    let mut table = Table::default();
    let mut header = vec!["NAME".to_owned(), "IPADDRESS".to_owned()];
    header.extend((0..cards).map(|card| format!("GPU{card}(Allocated/Total)")));
    header.extend(pending.then(|| "PENDING(Allocated)".to_owned()));
    header.push(format!("GPU Memory({})", unit(memory_unit)));
    table.row(header);
    for node in &nodes {
        let mut row = vec![node.name.clone(), node.address().to_owned()];
        row.extend(
            (0..cards).map(|card| format!("{}/{}", node.used(card), node.cards.get(card).copied().unwrap_or(0))),
        );
        row.extend(pending.then(|| node.pending().to_string()));
        row.push(format!("{}/{}", node.all_used(), node.total()));
        table.row(row);
    }
    let dashes = table.raw_length(1) + 20;
    format!("{}{}\nAllocated/Total GPU Memory In Cluster:\n{}\n", table.text(), "-".repeat(dashes), cluster(&nodes))
}

/// Every pod of every node, with the units it holds of each card.
pub fn details(nodes: &[NodeView]) -> String {
    let nodes = in_order(nodes);
    let mut out = String::new();
    let mut dashes = None;
    for node in &nodes {
        let pending = node.pending() > 0;
        out.push_str(&format!("\nNAME:       {}\nIPADDRESS:  {}\n\n", node.name, node.address()));
        let mut table = Table::default();
        let mut header = vec!["NAME".to_owned(), "NAMESPACE".to_owned()];
        header.extend((0..node.cards.len()).map(|card| format!("GPU{card}(Allocated)")));
        header.extend(pending.then(|| "Pending(Allocated)".to_owned()));
        table.row(header);
        let mut pods: Vec<&PodView> = node.pods.iter().collect();
        pods.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        for pod in pods {
            let mut row = vec![pod.name.clone(), pod.namespace.clone()];
            row.extend((0..node.cards.len()).map(|card| pod.held.get(card).copied().unwrap_or(0).to_string()));
            row.extend(pending.then(|| pod.pending.to_string()));
            table.row(row);
        }
        let used = node.all_used();
        // As long as all rows of the first node before they are laid out: gpushare measured the text it had gathered by then.
        let rows = || (1..table.rows.len()).map(|row| table.raw_length(row) + 1).sum::<usize>();
        let length = *dashes.get_or_insert_with(|| rows() + 10);
        table.row(vec!["Allocated :".to_owned(), format!("{used} ({}%)", percent(used, node.total()))]);
        table.row(vec!["Total :".to_owned(), node.total().to_string()]);
        out.push_str(&table.text());
        out.push_str(&"-".repeat(length));
        out.push('\n');
    }
    out.push_str(&format!("\n\nAllocated/Total GPU Memory In Cluster:  {}\n", cluster(&nodes)));
    out
}

/// Columns of text, two spaces apart, no borders.
#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The length of a row before it is laid out: its cells with a character between them.
    fn raw_length(&self, row: usize) -> usize {
        self.rows.get(row).map_or(0, |cells| cells.iter().map(|cell| cell.len() + 1).sum())
    }

    fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
            format!("{}\n", cells.trim_end())
        };
        self.rows.iter().map(line).collect()
    }
}
