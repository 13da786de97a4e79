//! What Prometheus is told.

use divvy_e2e::eventually;

use crate::ground::{SHARED, SOON, share, wait_bound};

#[test]
fn metrics_tell_decisions_steps_queue_room_fragments_and_evictions() {
    let space = SHARED.cluster.namespace("metrics").unwrap();
    // A part of a card: something is left over on it.
    space.create(&share("part", 200).to_string()).unwrap();
    wait_bound(&space, "part");
    eventually("everything is told", SOON, || {
        let text = SHARED.divvy.ask("/metrics")?;
        let value = |start: &str| -> anyhow::Result<f64> {
            let line = text.lines().find(|line| line.starts_with(start));
            let line = line.ok_or_else(|| anyhow::anyhow!("no {start} in:\n{text}"))?;
            Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
        };
        for start in [
            "divvy_decisions_total{outcome=\"placed\"}",
            "divvy_decisions_total{outcome=\"bound\"}",
            "divvy_attempts_total",
            "divvy_step_seconds_count{step=\"decide\"}",
            "divvy_step_seconds_count{step=\"bind\"}",
            "divvy_step_seconds_bucket{le=\"0.1\",step=\"bind\"}",
            "divvy_free_thousandths{model=\"NVIDIA-H200\"}",
            "divvy_stranded_thousandths{model=\"NVIDIA-H200\"}",
            "divvy_devices{model=\"NVIDIA-H200\"}",
            "divvy_admission_seconds_count",
            "divvy_admission_reviews_total",
        ] {
            anyhow::ensure!(value(start)? > 0.0, "{start} is zero");
        }
        for start in [
            "divvy_decisions_total{outcome=\"waits\"}",
            "divvy_decisions_total{outcome=\"conflict\"}",
            "divvy_decisions_total{outcome=\"refused\"}",
            "divvy_queue_pods{state=\"asleep\"}",
            "divvy_queue_oldest_seconds",
            "divvy_evictions_total",
        ] {
            value(start)?;
        }
        anyhow::ensure!(value("divvy_audit_violations_total")? == 0.0, "the audit threw plans away");
        anyhow::ensure!(value("divvy_leading")? == 1.0);
        Ok(())
    })
    .unwrap();
    assert_eq!(SHARED.divvy.ask("/healthz").unwrap(), "ok\n");
}
