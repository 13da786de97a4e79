//! `divvy dashboard` on a real API server: who signs in with which token sees what, and budgets as the controller keeps them.

use divvy_core::keys;
use divvy_e2e::browser::Page;
use divvy_e2e::install::NAMESPACE;
use divvy_e2e::{Options, Program, eventually, own};
use serde_json::{Value, json};

use crate::ground::{Ground, SOON, file, free_ports, http_get, share, wait_bound};
use crate::turn;

const ACCOUNT: &str = "divvy-dashboard";
/// Everything the viewer is shown.
const PICTURE: &str = "fetch('/api/cluster').then((r) => r.text())";

/// Namespaces `red` and `blue` with a pod and a budget each. `ada` may list the pods of `red`, `stranger` nothing.
fn people(ground: &Ground) {
    let admin = ground.cluster.admin();
    admin.say(&["apply", "-f", &file("deploy/dashboard-rbac.yaml").display().to_string()]).unwrap();
    ground.simulate("big", 1, 2);
    let budget = json!({
        "apiVersion": keys::GROUP_VERSION, "kind": "GpuBudget", "metadata": {"name": "time"},
        "spec": {"gpuTime": "20h", "period": {"every": "month"}},
    });
    for (namespace, account) in [("red", "ada"), ("blue", "stranger")] {
        admin.say(&["create", "namespace", namespace]).unwrap();
        let space = admin.in_namespace(namespace);
        space.say(&["create", "serviceaccount", account]).unwrap();
        space.create(&budget.to_string()).unwrap();
        space.create(&share("held", 300).to_string()).unwrap();
        wait_bound(&space, "held");
        space.wait("gpubudget", "time", SOON, |budget| budget["status"]["left"].is_string()).unwrap();
    }
    let red = admin.in_namespace("red");
    red.say(&["create", "role", "look", "--verb=list", "--resource=pods"]).unwrap();
    red.say(&["create", "rolebinding", "ada", "--role=look", "--serviceaccount=red:ada"]).unwrap();
}

/// `divvy dashboard` under its own account, ready, and its port.
fn serve(ground: &Ground) -> (Program, u16) {
    let kubeconfig = ground.cluster.kubeconfig_of(NAMESPACE, ACCOUNT, None).unwrap();
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
    (dashboard, port)
}

/// Types a token into the form and sends it off; what it said before is wiped away.
fn send(page: &mut Page, token: &str) {
    page.until("document.getElementById('login').open").unwrap();
    let typed = format!(
        "document.getElementById('login-error').textContent = ''; document.getElementById('token').value = {}; \
         document.querySelector('#login form').requestSubmit()",
        json!(token)
    );
    page.value(&typed).unwrap();
}

/// Signs in as an account that may look. The API server's authorizer learns of new rights a little after they were given, and a refusal
/// is believed for a while: each attempt brings a token of its own.
fn sign_in(page: &mut Page, token: impl Fn() -> String) {
    eventually("the viewer is let in", SOON, || {
        send(page, &token());
        page.until("!document.getElementById('login').open || document.getElementById('login-error').textContent")?;
        let said =
            page.value("document.getElementById('login').open && document.getElementById('login-error').textContent")?;
        anyhow::ensure!(said == Value::Bool(false), "{said}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn viewers_sign_in_with_a_kubernetes_token_and_see_the_namespaces_they_may() {
    let _turn = turn();
    let ground = Ground::start(Options::control_plane(), "controller", &[]);
    people(&ground);
    let admin = ground.cluster.admin();
    let token = |namespace: &str, name: &str| {
        admin.in_namespace(namespace).say(&["create", "token", name]).unwrap().trim().to_owned()
    };
    let (_dashboard, port) = serve(&ground);
    assert!(!http_get(port, "/api/cluster").unwrap().contains("held"), "without a token nothing is shown");

    let address = format!("http://127.0.0.1:{port}/");
    let mut page = Page::open(&address).unwrap();
    send(&mut page, "not-a-token");
    page.until("document.getElementById('login-error').textContent.includes('sign in with a Kubernetes token')")
        .unwrap();
    send(&mut page, &token("blue", "stranger"));
    page.until("document.getElementById('login-error').textContent.includes('may list pods in no namespace')").unwrap();
    sign_in(&mut page, || token("red", "ada"));
    page.until("document.getElementById('legend').innerText.includes('red')").unwrap();
    page.until("document.getElementById('legend').innerText.includes('other namespaces')").unwrap();
    page.until("document.getElementById('only').textContent == 'sees red'").unwrap();
    let seen = page.value(PICTURE).unwrap().as_str().unwrap().to_owned();
    assert!(seen.contains("red/held") && !seen.contains("blue"), "{seen}");
    assert_eq!(page.value("fetch('/api/pods/blue/held').then((r) => r.status)").unwrap(), 404);
    assert_eq!(page.value("fetch('/api/pods/red/held').then((r) => r.status)").unwrap(), 200);
    // Budgets of the namespaces that may be seen, with what is left of them.
    page.press("3").unwrap();
    page.until("document.getElementById('budgets').innerText.includes('red/time')").unwrap();
    page.until("/of 20(\\.0)? GPU hours/.test(document.getElementById('budgets').innerText)").unwrap();
    assert_eq!(page.value("document.getElementById('budgets').innerText.includes('blue')").unwrap(), false);
    // What changes comes by itself.
    page.press("1").unwrap();
    admin.in_namespace("red").say(&["delete", "pod", "held", "--wait=false"]).unwrap();
    page.until("!document.getElementById('legend').innerText.includes('red')").unwrap();
    assert_eq!(page.value("document.body.dataset.errors || ''").unwrap(), "");
    drop(page);

    // A right for the whole cluster shows all of it.
    admin.say(&["create", "clusterrole", "look", "--verb=list", "--resource=pods"]).unwrap();
    admin
        .say(&["create", "clusterrolebinding", "all", "--clusterrole=look", "--serviceaccount=blue:stranger"])
        .unwrap();
    let mut page = Page::open(&address).unwrap();
    sign_in(&mut page, || token("blue", "stranger"));
    page.until("document.getElementById('legend').innerText.includes('blue')").unwrap();
    assert_eq!(page.value("document.getElementById('only').hidden").unwrap(), true);
    assert_eq!(page.value("document.body.dataset.errors || ''").unwrap(), "");
}
