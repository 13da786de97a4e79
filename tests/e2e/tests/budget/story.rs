//! A budget's life, verb by verb, as kubectl tells it. One test, because there is one clock.

use divvy_core::keys;
use serde_json::json;

use crate::ground::{wait_bound, whole};
use crate::town::{PATIENCE, Town, budget, shows, wait_admitted, wait_class};

/// Milliseconds from now to a little after the next new year, UTC, and so many years more.
fn new_year(more: i16) -> i64 {
    let now = jiff::Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC);
    let first = jiff::civil::date(now.year() + 1 + more, 1, 1).to_zoned(jiff::tz::TimeZone::UTC).unwrap();
    first.timestamp().as_millisecond() - now.timestamp().as_millisecond() + 3_000
}

fn entry(name: &str, kind: &str, amount: &str, reason: &str) -> String {
    json!({
        "apiVersion": keys::GROUP_VERSION, "kind": "GpuBudgetEntry", "metadata": {"name": name},
        "spec": {"budget": "gpu", (kind): amount, "reason": reason, "author": "admin"},
    })
    .to_string()
}

#[test]
fn a_budget_from_its_creation_to_the_turn_of_its_period() {
    let town = Town::start("story");
    town.ground.simulate("money", 1, 2);
    let poor = town.ground.cluster.namespace("poor").unwrap();

    // Create. The columns answer the usual question at a glance.
    let spec = json!({
        "apiVersion": keys::GROUP_VERSION, "kind": "GpuBudget", "metadata": {"name": "gpu"},
        "spec": {"gpuTime": "1h", "period": {"every": "year", "timeZone": "UTC"}, "carryOver": {"percent": 50, "atMost": "10m"},
                 "refunds": {"percent": 0}},
    });
    poor.create(&spec.to_string()).unwrap();
    let said =
        shows(&poor, &["get", "gpubudget"], &["STATE", "LEFT", "OF", "PER HOUR", "EMPTY", "RENEWS", "InBudget", "1h"]);
    assert!(said.contains("1 Jan 00:00 UTC"), "it renews at new year:\n{said}");

    // Forecast: an hour of one device is empty in an hour.
    poor.create(&whole("first", 1).to_string()).unwrap();
    wait_bound(&poor, "first");
    let status = budget(&poor, "gpu", |s| s["perHour"] == "1h" && s["pods"] == 1);
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("empty on ") && message.contains("at this rate, renews"), "{message}");

    // Debit.
    poor.create(&entry("too-much", "debit", "50m", "was charged to another team by mistake")).unwrap();
    budget(&poor, "gpu", |s| s["booked"] == "-50m");

    // Exhaust, ten minutes later, exactly: the running pod goes on as opportunistic, and a new one is let in as that.
    town.move_clock(600_000);
    budget(&poor, "gpu", |s| s["state"] == "OutOfBudget" && s["left"] == "0s" && s["spent"] == "10m");
    shows(&poor, &["get", "gpubudget", "-o", "wide"], &["OutOfBudget", "0s", "pods are opportunistic"]);
    wait_class(&poor, "first", "opportunistic");
    wait_admitted(&poor, &whole("second", 1), "opportunistic");
    poor.create(&whole("second", 1).to_string()).unwrap();
    let second = poor.get("pod", "second").unwrap();
    assert_eq!(second["metadata"]["annotations"][keys::CLASS_NOW], "opportunistic", "from its first moment");
    wait_bound(&poor, "second");
    shows(&poor, &["get", "events"], &["Demoted", &format!("budget {}/gpu is used up", poor.name())]);

    // A pod of a namespace that is in budget makes exactly one of them leave.
    let rich = town.ground.cluster.namespace("rich").unwrap();
    let spec = json!({
        "apiVersion": keys::GROUP_VERSION, "kind": "GpuBudget", "metadata": {"name": "gpu"}, "spec": {"gpuTime": "500h"},
    });
    rich.create(&spec.to_string()).unwrap();
    budget(&rich, "gpu", |s| s["state"] == "InBudget");
    wait_admitted(&rich, &whole("third", 1), "guarantee");
    rich.create(&whole("third", 1).to_string()).unwrap();
    wait_bound(&rich, "third");
    let left: Vec<String> =
        poor.list("pods").unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(left.len(), 1, "exactly one of them left: {left:?}");
    rich.say(&["delete", "pod", "third", "--wait=true"]).unwrap();
    let gone = if left[0] == "first" { "second" } else { "first" };
    poor.create(&whole(gone, 1).to_string()).unwrap();
    wait_bound(&poor, gone);

    // Top up: both are promoted.
    poor.create(&entry("deadline", "topUp", "20m", "the paper is due")).unwrap();
    budget(&poor, "gpu", |s| s["state"] == "InBudget");
    wait_class(&poor, "first", "guarantee");
    wait_class(&poor, "second", "guarantee");

    // Credit, as a person sees it; with another's name it is refused.
    poor.create(&entry("outage", "credit", "5m", "a node was down")).unwrap();
    budget(&poor, "gpu", |s| s["booked"] == "-25m");
    shows(
        &poor,
        &["get", "gpubudgetentries"],
        &["deadline", "20m", "the paper is due", "admin", "outage", "too-much", "50m"],
    );
    let forged = entry("forged", "credit", "99h", "because").replace("\"admin\"", "\"somebody-else\"");
    let refused = poor.create(&forged).unwrap_err().to_string();
    assert!(refused.contains("spec.author must be admin"), "{refused}");
    let refused =
        poor.say(&["patch", "gpubudgetentry", "outage", "--type=merge", "-p", r#"{"spec":{"credit":"99h"}}"#]);
    assert!(refused.unwrap_err().to_string().contains("an entry is not changed once it is made"));

    // Out again, half an hour later.
    town.move_clock(2_400_000);
    budget(&poor, "gpu", |s| s["state"] == "OutOfBudget");
    wait_class(&poor, "first", "opportunistic");
    wait_class(&poor, "second", "opportunistic");
    let before = budget(&poor, "gpu", |s| s["left"] == "0s");
    assert_eq!(before["carried"], "0s");

    // The audit trail names every pod, its class and who paid.
    let home = town.ground.cluster.admin().in_namespace("divvy-system");
    let account = format!("{}/gpu", poor.name());
    let parts = ["\"first\"", "\"second\"", "\"opportunistic\"", "\"guarantee\"", &account];
    shows(&home, &["get", "gpucharges", "-o", "json"], &parts);

    // The period turns: there is a whole hour again, nothing was left to carry, and everybody is promoted.
    town.move_clock(new_year(0));
    let status = budget(&poor, "gpu", |s| s["state"] == "InBudget" && s["booked"] == "0s");
    assert_eq!((&status["granted"], &status["carried"]), (&json!("1h"), &json!("0s")));
    wait_class(&poor, "first", "guarantee");
    wait_class(&poor, "second", "guarantee");
    shows(&poor, &["get", "events"], &["Promoted"]);

    // Carry over: half of what is left at the next turn, ten minutes at most.
    poor.say(&["delete", "pod", "first", "second", "--wait=true"]).unwrap();
    budget(&poor, "gpu", |s| s["pods"] == 0);
    town.move_clock(new_year(1));
    let status = budget(&poor, "gpu", |s| s["carried"] == "10m");
    assert_eq!(status["total"], "1h10m");

    // The read API shows balances to those who may see them.
    let token = poor.say(&["create", "token", "default", "--duration=1h"]).unwrap();
    let path = format!("/budget/{}", poor.name());
    let refused = curl(town.port, &path, Some(token.trim()));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    poor.say(&["create", "role", "reader", "--verb=get", "--resource=gpubudgets.divvy.dev"]).unwrap();
    poor.say(&[
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        &format!("--serviceaccount={}:default", poor.name()),
    ])
    .unwrap();
    let view = divvy_e2e::eventually("the balance is shown", PATIENCE, || {
        let reply = curl(town.port, &path, Some(token.trim()));
        anyhow::ensure!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        Ok(reply)
    })
    .unwrap();
    assert!(view.contains("\"budget_available\":true") && view.contains("\"budget_remaining\":70"), "{view}");
    assert!(curl(town.port, &path, None).starts_with("HTTP/1.1 401"));
}

/// A plain HTTP answer, headers and all.
fn curl(port: u16, path: &str, token: Option<&str>) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let bearer = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{bearer}\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}
