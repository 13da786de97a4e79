//! `kubectl divvy` on a real API server, found by kubectl as its plugin.

use std::process::Output;

use divvy_core::keys;
use divvy_e2e::{Kubectl, eventually, own};
use serde_json::{Value, json};

use crate::ground::{SHARED, SOON, grant, pod, share, wait_bound};

/// Runs `kubectl divvy ...`.
fn divvy(kubectl: &Kubectl, words: &[&str]) -> Output {
    let folder = own::kubectl_divvy().unwrap().parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    // kubectl takes no flags before a plugin's name; a plugin hears of the cluster by the environment.
    let mut command = std::process::Command::new(kubectl.command(&[]).get_program());
    command.arg("divvy").args(words).env("PATH", path).env("KUBECONFIG", kubectl.kubeconfig());
    command.output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn yes(kubectl: &Kubectl, words: &[&str]) -> String {
    let output = divvy(kubectl, words);
    assert!(output.status.success(), "{words:?}: {}{}", out(&output), String::from_utf8_lossy(&output.stderr));
    out(&output)
}

#[test]
fn the_command_line_tells_what_the_scheduler_did() {
    let space = SHARED.cluster.namespace("cli").unwrap();
    let name = space.name();
    space.create(&share("third", 300).to_string()).unwrap();
    let bound = wait_bound(&space, "third");
    let node = bound["spec"]["nodeName"].as_str().unwrap();
    let card = grant(&bound).containers[0].slices[0].device.to_string();

    let shown: Value = serde_json::from_str(&yes(&space, &["inspect", "-o", "json"])).unwrap();
    let cards = shown.as_array().unwrap().iter().flat_map(|n| n["devices"].as_array().unwrap());
    let ours = cards.flat_map(|c| c["pods"].as_array().unwrap()).filter(|p| p["namespace"] == name);
    assert_eq!(ours.map(|p| p["share"].as_u64().unwrap()).collect::<Vec<_>>(), [300]);

    let said = yes(&space, &["why", &format!("{name}/third")]);
    assert!(said.contains(&format!("has its place on {node}")) && said.contains(&card), "{said}");

    // One that cannot be placed: the same sentence the pod's event carries.
    space.create(&pod("huge", json!({(keys::GPU_MEMORY): "900Gi"})).to_string()).unwrap();
    space.wait("pod", "huge", SOON, |p| p["status"]["conditions"][0]["reason"] == "Unschedulable").unwrap();
    // Other tests use the same nodes meanwhile: which one serves as the example, in brackets, may change between two looks.
    let plain = |text: &str| -> String {
        text.split(" (").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect()
    };
    eventually("the command line says what the pod's condition says", SOON, || {
        let waits = space.get("pod", "huge")?;
        let message = plain(waits["status"]["conditions"][0]["message"].as_str().unwrap_or("?"));
        let output = divvy(&space, &["why", "-n", name, "huge"]);
        anyhow::ensure!(output.status.code() == Some(1), "{output:?}");
        anyhow::ensure!(plain(&out(&output)).contains(&message), "{}\n{message}", out(&output));
        Ok(())
    })
    .unwrap();
    space.say(&["delete", "pod", "huge"]).unwrap();

    // A snapshot answers the same without a cluster.
    let file = SHARED.cluster.folder().join("snapshot.json");
    yes(&space, &["snapshot", &file.display().to_string()]);
    let replayed = yes(&space, &["why", &format!("{name}/third"), "--snapshot", &file.display().to_string()]);
    assert_eq!(replayed.lines().skip(1).collect::<Vec<_>>(), said.lines().skip(1).collect::<Vec<_>>());

    // What does not exist yet.
    let manifest = SHARED.cluster.folder().join("whatif.yaml");
    std::fs::write(&manifest, share("another", 100).to_string()).unwrap();
    let tried: Value =
        serde_json::from_str(&yes(&space, &["whatif", "-f", &manifest.display().to_string(), "-o", "json"])).unwrap();
    assert!(tried[0]["node"].is_string(), "{tried}");
    assert!(space.list("pods").unwrap().len() == 1);

    assert_eq!(divvy(&space, &["why", "nobody"]).status.code(), Some(3));
}

#[test]
fn a_card_is_cordoned_and_nothing_new_comes() {
    let space = SHARED.cluster.namespace("cordon").unwrap();
    SHARED.simulate_as("cordoned", 1, 1, &[]);
    let node = "cordoned-0";
    let shown: Value = serde_json::from_str(&yes(&space, &["inspect", node, "-o", "json"])).unwrap();
    let card = shown[0]["devices"][0]["id"].as_str().unwrap();
    let said = yes(&space, &["cordon", &format!("{node}/0")]);
    assert!(said.contains(&format!("{card} on {node} is out of service")), "{said}");
    assert!(yes(&space, &["cordon", card]).contains("already"));
    let mut pod = share("stays-out", 50);
    pod["metadata"]["annotations"] = json!({(keys::GPU_UUID): card});
    space.create(&pod.to_string()).unwrap();
    let waits = |p: &Value| p["status"]["conditions"][0]["reason"] == "Unschedulable";
    space.wait("pod", "stays-out", SOON, waits).unwrap();
    let said = out(&divvy(&space, &["why", "-n", space.name(), "stays-out", "-o", "wide"]));
    assert!(said.contains("cordoned"), "{said}");
    yes(&space, &["uncordon", &format!("{node}/0")]);
    wait_bound(&space, "stays-out");
}

#[test]
fn a_resize_is_checked_written_once_and_told() {
    let space = SHARED.cluster.namespace("resize").unwrap();
    let name = space.name();
    space.create(&pod("grows", json!({(keys::GPU_SHARE): 300, (keys::GPU_MEMORY): "4Gi"})).to_string()).unwrap();
    wait_bound(&space, "grows");
    let target = format!("{name}/grows");

    // Refused by the books: nothing is written.
    let refused = divvy(&space, &["resize", &target, "--memory", "9000Gi"]);
    assert_eq!(refused.status.code(), Some(1), "{}", out(&refused));
    assert!(out(&refused).contains("cannot be resized"), "{}", out(&refused));
    let note =
        |key: &str| space.get("pod", "grows").unwrap()["metadata"]["annotations"][key].as_str().map(str::to_owned);
    assert_eq!(note(keys::GRANT_OVERRIDE), None);

    // Wished: the whole grant with other amounts, and an event that says who.
    let said = yes(&space, &["resize", &target, "--share", "0.4", "--memory", "6Gi", "--wait", "0"]);
    assert!(said.contains("0.4 + 6 GiB"), "{said}");
    let changed: Value = serde_json::from_str(&note(keys::GRANT_OVERRIDE).unwrap()).unwrap();
    assert_eq!(changed["containers"][0]["slices"][0]["share"], 400);
    let events = space.list("events").unwrap();
    let told = events.iter().find(|e| e["reason"] == "ResizeRequested").expect("an event tells of it");
    assert!(told["message"].as_str().unwrap().contains("changed the grant"), "{told}");
    // The scheduler admits it, and the books follow.
    let holds = |share: u64| {
        divvy_e2e::eventually("the books follow", SOON, || {
            let shown: Value = serde_json::from_str(&yes(&space, &["quota", "-n", name, "-o", "json"]))?;
            anyhow::ensure!(shown[0]["held"]["share"] == share, "{shown}");
            Ok(())
        })
        .unwrap();
    };
    holds(400);

    // Who lacks the verb may not, and is told so; who has it may.
    let user = format!("user-of-{name}");
    space.say(&["create", "rolebinding", "user", "--clusterrole=admin", &format!("--user={user}")]).unwrap();
    let admin = SHARED.cluster.admin();
    let reader = format!("{user}-reads");
    admin.say(&["create", "clusterrolebinding", &reader, "--clusterrole=view", &format!("--user={user}")]).unwrap();
    let nodes = format!("{user}-nodes");
    admin.say(&["create", "clusterrole", &nodes, "--verb=get,list", "--resource=nodes"]).unwrap();
    admin
        .say(&["create", "clusterrolebinding", &nodes, &format!("--clusterrole={nodes}"), &format!("--user={user}")])
        .unwrap();
    let tenant = space.with_kubeconfig(&SHARED.cluster.kubeconfig_for(&user, None).unwrap());
    let words = ["resize", target.as_str(), "--share", "0.2", "--wait", "0"];
    let denied = divvy(&tenant, &words);
    assert_eq!(denied.status.code(), Some(4), "{}", out(&denied));
    assert!(String::from_utf8_lossy(&denied.stderr).contains("only Divvy writes"), "{denied:?}");
    space.say(&["create", "role", "resizer", "--verb=resize", "--resource=grants.divvy.dev"]).unwrap_or_else(|_| {
        // kubectl looks the resource up; this one exists for rights alone.
        space
            .apply(
                &json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "resizer"},
                "rules": [{"apiGroups": ["divvy.dev"], "resources": ["grants"], "verbs": ["resize"]}]})
                .to_string(),
            )
            .unwrap()
    });
    space.say(&["create", "rolebinding", "resizer", "--role=resizer", &format!("--user={user}")]).unwrap();
    divvy_e2e::eventually("the new right counts", SOON, || {
        let allowed = divvy(&tenant, &words);
        anyhow::ensure!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
        Ok(())
    })
    .unwrap();
    holds(200);

    // The verb is for amounts: who has it can write the wish, and nothing comes of one for more than amounts, or for more than the quota.
    let quota = json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuQuota", "metadata": {"name": "small"},
        "spec": {"limits": [{"share": 500}]}});
    space.apply(&quota.to_string()).unwrap();
    let granted: Value = serde_json::from_str(&note(keys::GRANT).unwrap()).unwrap();
    let wish = |change: &dyn Fn(&mut Value)| {
        let mut wish = granted.clone();
        change(&mut wish["containers"][0]["slices"][0]);
        let patch = json!({"metadata": {"annotations": {(keys::GRANT_OVERRIDE): wish.to_string()}}}).to_string();
        tenant.say(&["patch", "pod", "grows", "--type=merge", "--patch", &patch]).unwrap();
    };
    let refused = |what: &str| {
        let says = |p: &Value| {
            let conditions = p["status"]["conditions"].as_array();
            let said = conditions.and_then(|all| all.iter().find(|c| c["type"] == keys::CONDITION_RESIZED));
            said.is_some_and(|c| c["status"] == "False" && c["message"].as_str().is_some_and(|m| m.contains(what)))
        };
        space.wait("pod", "grows", SOON, says).unwrap();
    };
    wish(&|slice| slice["device"] = json!("GPU-of-somebody-else"));
    refused("containers[0].slices[0].device");
    wish(&|slice| slice["isolation"] = json!("none"));
    refused("containers[0].slices[0].isolation");
    wish(&|slice| (slice["share"], slice["shareLimit"]) = (json!(900), json!(1000)));
    refused("quota small: 0.7 of share wanted, 0.2 held, 0.5 allowed");
    holds(200);
    let forged = json!({"metadata": {"annotations": {(keys::GRANT_ADMITTED): granted.to_string()}}}).to_string();
    let error = tenant.say(&["patch", "pod", "grows", "--type=merge", "--patch", &forged]).unwrap_err().to_string();
    assert!(error.contains("only Divvy writes divvy.dev/grant-admitted"), "{error}");
}

#[test]
fn the_doctor_finds_the_webhook_answering_and_grants_guarded() {
    let output = divvy(SHARED.cluster.admin(), &["doctor", "-o", "json"]);
    let findings: Vec<Value> = serde_json::from_str(&out(&output)).unwrap();
    let verdict = |check: &str| findings.iter().find(|f| f["check"] == check).unwrap()["verdict"].clone();
    for check in ["policy", "versions", "webhook", "grants", "scheduler", "inventory", "owners", "device classes"] {
        assert_eq!(verdict(check), "well", "{check}: {findings:#?}");
    }
}
