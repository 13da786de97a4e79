//! The chart on paper: what is committed is what it renders, every switch renders, and slips are refused by name.

use std::collections::BTreeSet;
use std::process::Command;

use divvy_e2e::programs;
use serde_json::Value;

use crate::{NAMESPACE, helm, repository};

fn documents(text: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    all.into_iter().filter(|value| !value.is_null()).collect()
}

/// `UPDATE=1 cargo test -p divvy-e2e --test install rendered` writes it.
#[test]
fn the_rendered_manifest_is_what_the_chart_says() {
    let rendered = helm(
        None,
        &[
            "template",
            "divvy",
            "charts/divvy",
            "--namespace",
            NAMESPACE,
            "--include-crds",
            // What every Kubernetes takes that Divvy runs on.
            "--kube-version",
            "1.34.0",
            "--set",
            "namespace.create=true",
        ],
    );
    let head = "# Divvy for `kubectl apply -f`: rendered from charts/divvy with its defaults. Do not edit; see tests/e2e/tests/install/chart.rs.\n";
    let text = format!("{head}{rendered}");
    let path = repository().join("deploy/divvy.yaml");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "deploy/divvy.yaml is out of date: UPDATE=1 cargo test -p divvy-e2e --test install rendered"
    );
}

#[test]
fn every_switch_of_the_chart_renders_and_a_slip_is_refused_by_name() {
    let on = "scheduler.mode=extender,monitoring.serviceMonitor.enabled=true,monitoring.prometheusRule.enabled=true,\
              monitoring.dashboards.enabled=true,webhook.certificateSecret=tls,policy.maxTasks=4,dashboard.enabled=true,\
              dashboard.certificateSecret=shown,monitoring.emulatedNames=true";
    let rendered =
        documents(&helm(None, &["template", "divvy", "charts/divvy", "--namespace", "elsewhere", "--set", on]));
    let kinds: Vec<&str> = rendered.iter().filter_map(|object| object["kind"].as_str()).collect();
    for kind in [
        "ServiceMonitor",
        "PrometheusRule",
        "GpuPolicy",
        "PodDisruptionBudget",
        "ValidatingAdmissionPolicy",
        "NetworkPolicy",
    ] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
    let text = serde_json::to_string(&rendered).unwrap();
    assert!(!text.contains("divvy-system"), "somebody names the namespace the chart is not installed in");
    assert_eq!(text.matches("DIVVY_EMULATE_METRICS").count(), 2, "one of controller and agents keeps old names back");
    let rules = rendered.iter().find(|object| object["kind"] == "PrometheusRule").unwrap();
    let operations = std::fs::read_to_string(repository().join("docs/guides/operations.md")).unwrap().to_lowercase();
    for rule in rules["spec"]["groups"][0]["rules"].as_array().unwrap() {
        let name = rule["alert"].as_str().unwrap().to_lowercase();
        assert!(operations.contains(&format!("### {name}")), "{name} has no runbook in docs/guides/operations.md");
        assert!(rule["annotations"]["runbook_url"].as_str().unwrap().ends_with(&format!("#{name}")));
    }
    let told = metrics_in_the_source();
    let watched: Vec<&Value> =
        rendered.iter().filter(|object| object["kind"] == "PrometheusRule" || object["kind"] == "ConfigMap").collect();
    let asked = metrics_in(&serde_json::to_string(&watched).unwrap());
    assert!(asked.len() > 20, "{asked:?}");
    let unknown: Vec<&String> = asked.iter().filter(|name| !told.contains(*name)).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "alerts or dashboards ask for what nobody tells");
    let slip = Command::new(programs::helm().unwrap())
        .args(["template", "divvy", "charts/divvy", "--set", "agent.memoryUnit=GB,controler.replicas=1"])
        .current_dir(repository())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&slip.stderr);
    assert!(!slip.status.success() && said.contains("memoryUnit") && said.contains("controler"), "{said}");
}

/// The objects of the chart in extender mode, and the Secret whose certificate both sides show.
fn extended(more: &str) -> (Vec<Value>, Vec<Value>) {
    let set = format!("scheduler.mode=extender,{more}");
    let rendered = documents(&helm(None, &["template", "divvy", "charts/divvy", "--namespace", "far", "--set", &set]));
    let named = |kind: &str, name: &str| {
        let of = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        rendered.iter().find(of).unwrap_or_else(|| panic!("no {kind} {name}")).clone()
    };
    let secret_of = |name: &str| {
        let deployment = named("Deployment", name);
        let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
        volumes.into_iter().find(|volume| volume["name"] == "extender").unwrap()["secret"]["secretName"].clone()
    };
    let text = named("ConfigMap", "divvy-kube-scheduler")["data"]["config.yaml"].as_str().unwrap().to_owned();
    let configuration: Value = serde_saphyr::from_str(&text).unwrap();
    let extender = &configuration["extenders"][0];
    assert_eq!(extender["urlPrefix"], "https://divvy-extender.far.svc:8090/divvy");
    assert_eq!(extender["tlsConfig"]["serverName"], "divvy-extender.far.svc");
    let shown = vec![secret_of("divvy"), secret_of("divvy-kube-scheduler")];
    (rendered, shown)
}

#[test]
fn extender_and_kube_scheduler_show_the_certificate_that_the_chart_makes_or_one_that_somebody_else_keeps() {
    let secrets = |rendered: &[Value]| rendered.iter().filter(|object| object["kind"] == "Secret").count();
    let (rendered, shown) = extended("webhook.certificateSecret=tls");
    assert_eq!((secrets(&rendered), shown), (1, vec!["divvy-extender".into(), "divvy-extender".into()]));
    let (rendered, shown) = extended("scheduler.extenderCertificateSecret=theirs,scheduler.extenderInspect=true");
    assert_eq!((secrets(&rendered), shown), (0, vec!["theirs".into(), "theirs".into()]));
    let said = |rendered: &[Value]| serde_json::to_string(rendered).unwrap().contains("--extender-inspect");
    assert!(said(&rendered) && !said(&extended("webhook.certificateSecret=").0), "it is for those who say so");
}

/// Names of metrics in a text, without what Prometheus appends.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let word = |c: char| c.is_ascii_lowercase() || c == '_';
    let starts = text.match_indices("divvy_").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())]);
    names.map(|name| name.trim_end_matches("_total").trim_end_matches("_bucket").to_owned()).collect()
}

/// What the programs' sources call their metrics.
fn metrics_in_the_source() -> BTreeSet<String> {
    let mut folders = vec![repository().join("crates")];
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|end| end == "rs") {
                found.extend(metrics_in(&std::fs::read_to_string(entry).unwrap()));
            }
        }
    }
    found
}
