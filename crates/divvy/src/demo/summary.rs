//! What the demo says on the terminal.

use std::fmt::Write;
use std::net::SocketAddr;

use divvy_dashboard::view;
use divvy_embedded::Simulation;

use super::Args;

/// Where to look, and what to try.
pub(crate) fn greeting(address: SocketAddr, args: &Args) -> String {
    format!(
        "\
divvy demo: {nodes} simulated nodes, a day at {speed} × real time. No GPU, no cluster; the decisions are real.

  look       http://{address}        (keys: 1-5 views, / filter, t light or dark, ? help)
  submit     curl --data-binary @examples/native/fraction.yaml http://{address}/api/demo/pods
  break      curl -X POST http://{address}/api/demo/fail/h200-01/0
  slower     curl -X POST http://{address}/api/demo/speed/10
  stop       Ctrl-C, which prints what came of the day
",
        nodes = args.nodes,
        speed = args.speed,
    )
}

/// What came of the day.
pub(crate) fn closing(simulation: &Simulation, proof: Option<view::Proof>) -> String {
    let summary = simulation.summary();
    let minutes = simulation.now().0 / 60_000;
    let dialects: Vec<String> = summary.admitted.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<22} {value}");
    };
    line("simulated time", format!("{:02}:{:02}", minutes / 60 % 24, minutes % 60));
    line("pods admitted", format!("{} ({})", summary.admitted.values().sum::<u64>(), dialects.join(", ")));
    line("pods refused", summary.refused.to_string());
    if let Some(refusal) = &summary.last_refusal {
        line("  the last", refusal.replace('\n', "\n                         "));
    }
    line("pods bound", format!("{}, in {} gangs and alone", summary.bound, summary.gangs));
    line("pods finished", summary.finished.to_string());
    line("pods evicted", format!("{} to make room for others", summary.evicted));
    line("gave up waiting", summary.given_up.to_string());
    let out: Vec<&str> = summary.out_of_budget.iter().map(String::as_str).collect();
    line("out of budget", if out.is_empty() { "nobody".into() } else { out.join(", ") });
    line("cards that failed", format!("{}, with {} pods on them", summary.failed_cards, summary.lost));
    line("promised twice", format!("{} (must be 0)", summary.overcommitted));
    line("plans audited away", format!("{} (must be 0)", summary.violations));
    if let Some(proof) = proof {
        line("enforcement", proof.state);
        for tenant in proof.tenants {
            let had = mean(&tenant.course);
            line(
                &format!("  {}", tenant.name),
                format!(
                    "asked {:.1} % of the card, had {:.1} %; {} of {} MiB, {} allocations beyond refused",
                    f64::from(tenant.share) / 10.0,
                    had / 10.0,
                    tenant.held,
                    tenant.memory,
                    tenant.refused
                ),
            );
        }
    }
    format!("\nWhat came of the day:\n{text}")
}

fn mean(course: &[u32]) -> f64 {
    course.iter().map(|part| f64::from(*part)).sum::<f64>() / course.len().max(1) as f64
}
