//! The controller killed at random points.

use divvy_api::budget::length;
use divvy_core::budget::cost::held;
use divvy_core::budget::{Amount, CostRule, Prices};
use divvy_core::device::Inventory;
use divvy_core::keys;
use divvy_e2e::install::{CONTROLLER, NAMESPACE};
use divvy_e2e::{Cluster, Options, Program, eventually, own};
use serde_json::{Value, json};

use crate::ground::{Divvy, Ground, grant, share, wait_bound};
use crate::town::{PATIENCE, budget};

/// Milliseconds of a moment as the API server writes it.
fn moment(text: &str) -> u64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond().try_into().unwrap()
}

fn controller(cluster: &Cluster, round: usize) -> Program {
    let kubeconfig = cluster.kubeconfig_of(NAMESPACE, CONTROLLER, None).unwrap();
    let argv = vec![
        own::divvy().unwrap().display().to_string(),
        "budget".into(),
        "--kubeconfig".into(),
        kubeconfig.display().to_string(),
        "--ops-listen".into(),
        "127.0.0.1:0".into(),
        "--no-budget-election".into(),
    ];
    Program::new(&format!("budget-{round}"), cluster.folder(), argv)
}

#[test]
fn killed_at_random_points_the_balance_is_what_the_pods_held() {
    let ground = Ground::start(Options::control_plane(), "scheduler", &[]);
    let webhook = Divvy::new(&ground.cluster, "webhook", "webhook", &[]);
    webhook.start();
    ground.simulate("card", 1, 4);
    let space = ground.cluster.namespace("team").unwrap();
    let spec = json!({
        "apiVersion": keys::GROUP_VERSION, "kind": "GpuBudget", "metadata": {"name": "gpu"}, "spec": {"gpuTime": "100h"},
    });
    space.create(&spec.to_string()).unwrap();
    let created = moment(space.get("gpubudget", "gpu").unwrap()["metadata"]["creationTimestamp"].as_str().unwrap());

    // Twelve pods, one after another, each ended by its kubelet; the controller is killed after as many writes as it came to.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64 ^ u64::from(std::process::id());
    let mut random = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    let mut program = controller(&ground.cluster, 0);
    program.start().unwrap();
    for round in 1..=12 {
        let name = format!("p{round}");
        let thousandths = 100 + u32::try_from(random(300)).unwrap();
        space.create(&share(&name, thousandths).to_string()).unwrap();
        wait_bound(&space, &name);
        space.wait_phase(&name, "Running", PATIENCE).unwrap();
        if random(2) == 0 {
            // Wherever it is: between two writes, in the middle of opening its books, or asleep.
            program.kill().unwrap();
            program = controller(&ground.cluster, round);
            program.start().unwrap();
        }
        if round % 2 == 0 {
            finish(&space, &name);
        }
    }
    remembers(&ground, space.name());
    for name in space.list("pods").unwrap().iter().filter(|pod| pod["status"]["phase"] == "Running") {
        finish(&space, name["metadata"]["name"].as_str().unwrap());
    }
    program.kill().unwrap();
    program = controller(&ground.cluster, 99);
    program.start().unwrap();

    // What an undisturbed run would say follows from the pods: share, grant and end.
    let pods = space.list("pods").unwrap();
    assert_eq!(pods.len(), 12);
    let inventory = ground.cluster.admin().get("node", "card-0").unwrap();
    let inventory: Inventory =
        serde_json::from_str(inventory["metadata"]["annotations"][keys::INVENTORY].as_str().unwrap()).unwrap();
    let held: Amount = pods.iter().map(|pod| cost(pod, &inventory, created)).sum();
    let expected = length::text(u64::try_from(held.floor_micros()).unwrap() / 1000);
    budget(&space, "gpu", |s| s["pods"] == 0 && s["spent"] == expected.as_str());
}

/// A scheduler that starts anew goes on from what the namespace, which still holds something, has used.
fn remembers(ground: &Ground, namespace: &str) {
    let home = ground.cluster.admin().in_namespace("divvy-system");
    let used = || -> anyhow::Result<(u64, f64)> {
        let object = home.get("configmap", keys::FAIR_SHARE)?;
        let used: Value = serde_json::from_str(object["data"]["used"].as_str().unwrap_or_default())?;
        let average = used["averages"][namespace].as_f64();
        Ok((used["at"].as_u64().unwrap_or(0), average.ok_or_else(|| anyhow::anyhow!("{namespace} is not in {used}"))?))
    };
    eventually("something is kept", PATIENCE, used).unwrap();
    ground.divvy.program.stop().unwrap();
    let before = used().unwrap();
    ground.divvy.start();
    let after = eventually("the next scheduler keeps it", PATIENCE, || {
        let after = used()?;
        anyhow::ensure!(after.0 > before.0, "nothing was written since");
        Ok(after)
    })
    .unwrap();
    assert!(after.1 >= before.1 * 0.999, "{after:?} after {before:?}");
}

/// What a pod cost while the budget was there.
fn cost(pod: &Value, inventory: &Inventory, since: u64) -> Amount {
    let granted = grant(pod);
    let end = pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"].as_str().unwrap();
    let millis = moment(end).max(granted.at).saturating_sub(granted.at.max(since));
    let rule = CostRule { prices: Prices::time(), ..CostRule::default() };
    rule.tariff(&held(&granted, inventory, true)).rate(false).over(millis)
}

/// Ends a pod as its kubelet would.
fn finish(space: &divvy_e2e::Kubectl, name: &str) {
    let pod = space.get("pod", name).unwrap();
    let now = space.say(&["get", "pod", name, "-o", "jsonpath={.status.startTime}"]).unwrap();
    let end = now.trim().parse::<jiff::Timestamp>().unwrap() + jiff::SignedDuration::from_secs(5);
    let status = json!({"status": {"phase": "Succeeded", "containerStatuses": [{
        "name": pod["spec"]["containers"][0]["name"], "ready": false, "started": false, "restartCount": 0, "image": "", "imageID": "",
        "state": {"terminated": {"exitCode": 0, "startedAt": now.trim(), "finishedAt": end.to_string()}},
    }]}});
    space.say(&["patch", "pod", name, "--subresource=status", "--type=merge", "-p", &status.to_string()]).unwrap();
    assert!(pod["metadata"]["annotations"][keys::GRANT].is_string());
}
