//! `divvy dashboard` on a real API server: who signs in with which token sees what, and budgets as the controller keeps them.

use std::time::Duration;

use divvy_core::keys;
use divvy_e2e::browser::Page;
use divvy_e2e::{Options, Program, eventually, own};
use serde_json::{Value, json};

use crate::ground::{Ground, file, free_ports, http_get, pod};
use crate::turn;

const SOON: Duration = Duration::from_secs(120);
const ACCOUNT: &str = "system:serviceaccount:divvy-system:divvy-dashboard";

fn budget() -> Value {
    json!({
        "apiVersion": keys::GROUP_VERSION, "kind": "GpuBudget", "metadata": {"name": "time"},
        "spec": {"gpuTime": "20h", "period": {"every": "month"}},
    })
}

fn sign_in(page: &mut Page, token: &str) {
    page.until("document.getElementById('login').open").unwrap();
    let typed = format!("document.getElementById('token').value = {}", json!(token));
    page.value(&typed).unwrap();
    page.click("#login button").unwrap();
}

#[test]
fn viewers_sign_in_with_a_kubernetes_token_and_see_the_namespaces_they_may() {
    let _turn = turn();
    let ground = Ground::start(Options::control_plane(), "controller", &[]);
    let admin = ground.cluster.admin();
    admin.say(&["apply", "-f", &file("deploy/dashboard-rbac.yaml").display().to_string()]).unwrap();
    ground.simulate("big", 1, 2);
    for namespace in ["red", "blue"] {
        admin.say(&["create", "namespace", namespace]).unwrap();
        let of = admin.in_namespace(namespace);
        of.create(&pod("held", json!({(keys::GPU_SHARE): "300"})).to_string()).unwrap();
        of.wait("pod", "held", SOON, |pod| pod["spec"]["nodeName"].is_string()).unwrap();
        of.create(&budget().to_string()).unwrap();
        of.wait("gpubudget", "time", SOON, |budget| budget["status"]["left"].is_string()).unwrap();
    }
    admin.say(&["create", "serviceaccount", "ada", "--namespace", "red"]).unwrap();
    let red = admin.in_namespace("red");
    red.say(&["create", "role", "look", "--verb=list", "--resource=pods"]).unwrap();
    red.say(&["create", "rolebinding", "ada", "--role=look", "--serviceaccount=red:ada"]).unwrap();
    admin.say(&["create", "serviceaccount", "stranger", "--namespace", "blue"]).unwrap();
    let token = |namespace: &str, name: &str| {
        admin.in_namespace(namespace).say(&["create", "token", name]).unwrap().trim().to_owned()
    };

    let kubeconfig = ground.cluster.kubeconfig_for(ACCOUNT, Some("system:serviceaccounts")).unwrap();
    let [ops, port] = free_ports();
    let argv = [
        &own::divvy().unwrap().display().to_string(),
        "dashboard",
        "--kubeconfig",
        &kubeconfig.display().to_string(),
        "--ops-listen",
        &format!("127.0.0.1:{ops}"),
        "--dashboard-listen",
        &format!("127.0.0.1:{port}"),
    ];
    let dashboard = Program::new("dashboard", ground.cluster.folder(), argv.map(str::to_owned).to_vec());
    dashboard.start().unwrap();
    eventually("the dashboard is ready", SOON, || {
        dashboard.must_run()?;
        anyhow::ensure!(http_get(ops, "/readyz")? == "ok\n");
        Ok(())
    })
    .unwrap();
    let address = format!("http://127.0.0.1:{port}/");
    assert!(!http_get(port, "/api/cluster").unwrap().contains("held"), "without a token nothing is shown");

    let mut page = Page::open(&address).unwrap();
    sign_in(&mut page, "not-a-token");
    page.until("document.getElementById('login-error').textContent.includes('token')").unwrap();
    sign_in(&mut page, &token("blue", "stranger"));
    page.until("document.getElementById('login-error').textContent.includes('may list pods in no namespace')").unwrap();
    sign_in(&mut page, &token("red", "ada"));
    page.until("document.getElementById('legend').innerText.includes('red')").unwrap();
    page.until("document.getElementById('legend').innerText.includes('other namespaces')").unwrap();
    let picture = "fetch('/api/cluster').then((r) => r.text())";
    let seen = page.value(picture).unwrap();
    assert!(seen.as_str().unwrap().contains("red/held") && !seen.as_str().unwrap().contains("blue"), "{seen}");
    let other = "fetch('/api/pods/blue/held').then((r) => r.status)";
    assert_eq!(page.value(other).unwrap(), 404);
    assert_eq!(page.value("fetch('/api/pods/red/held').then((r) => r.status)").unwrap(), 200);
    // Budgets of the namespaces that may be seen, with what is left of them.
    page.press("3").unwrap();
    page.until("document.getElementById('budgets').innerText.includes('red/time')").unwrap();
    page.until("/of 20(\\.0)? GPU hours/.test(document.getElementById('budgets').innerText)").unwrap();
    page.until("!document.getElementById('budgets').innerText.includes('blue')").unwrap();
    page.press("1").unwrap();
    // What changes comes by itself.
    red.say(&["delete", "pod", "held", "--wait=false"]).unwrap();
    page.until("!document.getElementById('legend').innerText.includes('red')").unwrap();

    admin
        .say(&["create", "clusterrolebinding", "all", "--clusterrole=view", "--serviceaccount=blue:stranger"])
        .unwrap();
    let mut page = Page::open(&address).unwrap();
    // A refusal is believed for half a minute.
    eventually("the stranger is let in", SOON, || {
        let seen = page.value(picture)?;
        if !seen.as_str().unwrap_or_default().contains("blue/held") {
            if page.value("document.getElementById('login').open")? == true {
                sign_in(&mut page, &token("blue", "stranger"));
            }
            anyhow::bail!("{seen}");
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(page.value("document.body.dataset.errors || ''").unwrap(), "");
}
