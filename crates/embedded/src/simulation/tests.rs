use super::*;

fn after(hours: u64, options: Options) -> Simulation {
    let mut day = Simulation::new(options);
    day.advance(options.begin.plus_seconds(hours * 3_600));
    day
}

#[test]
fn a_morning_is_lively_and_nothing_is_promised_twice() {
    let mut day = after(5, Options::default());
    let summary = day.summary().clone();
    assert_eq!((summary.overcommitted, summary.violations), (0, 0), "{summary:?}");
    for dialect in ["native", "kubeshare", "gpu-manager", "gpushare", "hami", "kubegpu"] {
        assert!(summary.admitted.get(dialect).copied().unwrap_or(0) > 0, "nobody wrote {dialect}: {summary:?}");
    }
    assert!(summary.bound > 200 && summary.finished > 50 && summary.failed_cards > 0, "{summary:?}");
    assert!(summary.gangs > 0, "{summary:?}");
    assert!(summary.out_of_budget.contains("quant/daily"), "{summary:?}");
    assert!(summary.refused > 0 && summary.last_refusal.is_some(), "{summary:?}");
    assert!(day.used().iter().any(|used| used.throttled > 0), "nobody ever waits for a card");
    assert!(day.take_changes().len() > 1_000);
}

#[test]
fn the_same_seed_gives_the_same_day() {
    let options = Options { nodes: 6, ..Options::default() };
    let (one, other) = (after(3, options), after(3, options));
    assert_eq!(one.summary(), other.summary());
    assert_eq!(one.used(), other.used());
    let different = after(3, Options { seed: 8, ..options });
    assert_ne!(one.summary(), different.summary());
}

#[test]
fn a_card_that_fails_loses_its_pods_and_is_given_to_nobody_until_it_is_mended() {
    let mut day = after(2, Options { nodes: 3, ..Options::default() });
    let node = day.used()[0].node.clone();
    let device = day.used()[0].device.clone();
    let index = day.control().world().snapshot().node(&node).unwrap().node().device(&device).unwrap();
    let lost = day.summary().lost;
    assert_eq!(day.fail_card(node.as_str(), index), Some(device.clone()));
    assert_eq!(day.fail_card(node.as_str(), index), None, "it is broken already");
    assert!(day.summary().lost > lost);
    let book = |day: &Simulation| day.control().world().snapshot().node(&node).unwrap().books()[index];
    assert!(!book(&day).open && book(&day).pods == 0);
    day.advance(day.now().plus_seconds(1_800));
    assert_eq!(book(&day).pods, 0);
    day.advance(day.now().plus_seconds(2 * 3_600));
    assert!(book(&day).open, "it was mended");
}

#[test]
fn a_manifest_of_ones_own_is_admitted_or_refused_by_the_webhook() {
    let mut day = after(1, Options { nodes: 3, ..Options::default() });
    let pod = |share: &str| {
        json!({"metadata": {"name": format!("mine-{share}"), "namespace": "me"},
               "spec": {"containers": [{"name": "c", "resources": {"limits": {(divvy_core::keys::GPU_SHARE): share}}}]}})
    };
    let target = day.submit(pod("100")).unwrap();
    let bound = day.cluster().lock().pod(&target.uid).unwrap()["spec"]["nodeName"].clone();
    assert!(bound.is_string(), "{bound}");
    let refused = day.submit(pod("9000")).unwrap_err();
    assert!(refused.message.contains(divvy_core::keys::GPU_SHARE), "{refused:?}");
}

#[tokio::test]
async fn the_schedulers_own_loop_runs_on_it_too() {
    use divvy_api::reader::PodReader;
    use divvy_scheduler::metrics::Metrics;
    use divvy_scheduler::run::{Scheduler, always_leading, channel};

    let cluster = Embedded::default();
    let created = {
        let mut store = cluster.lock();
        fleet::nodes(2).into_iter().for_each(|node| store.put_node(node));
        let limits = json!({(divvy_core::keys::GPU_SHARE): "300"});
        let created = store.create(json!({"metadata": {"name": "a", "namespace": "t"},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}));
        store.complete();
        created.unwrap()
    };
    let (to, changes, relist) = channel();
    let (_ask, questions) = tokio::sync::mpsc::channel(1);
    let mut tasks = divvy_service::Tasks::new();
    let stop = tasks.stop();
    let scheduler = Scheduler {
        options: Default::default(),
        effects: cluster.clone(),
        changes,
        relist,
        reader: PodReader::default(),
        questions,
        memory: divvy_scheduler::memory::Memory::none(),
        standing: always_leading(),
        metrics: Metrics::register(&mut Default::default()),
        health: divvy_service::Health::new(),
    };
    tasks.add("scheduler", scheduler.run(stop.clone()));
    let (fed, seen) = (cluster.clone(), cluster.clone());
    tasks.add("feed", async move {
        loop {
            let changes = fed.lock().take_changes();
            for change in changes {
                to.send(change).await?;
            }
            tokio::task::yield_now().await;
            if stop.is_requested() {
                return Ok(());
            }
        }
    });
    let bound = async move {
        while seen.lock().pod(&created.uid).is_none_or(|pod| pod["spec"]["nodeName"].is_null()) {
            tokio::task::yield_now().await;
        }
        "bound"
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), tasks.run_until(bound)).await.unwrap().unwrap();
}

/// Every grant in the store was decided by the scheduler and fits what its node has, by the core's own ledger, folded anew.
#[test]
fn what_the_store_holds_is_what_the_scheduler_decided() {
    let day = after(3, Options { nodes: 6, ..Options::default() });
    let store = day.cluster().lock();
    let mut bound = 0;
    for node in fleet::nodes(6) {
        let name = node["metadata"]["name"].as_str().unwrap();
        let (node, _) = divvy_api::convert::node(serde_json::from_value(store.node(name).unwrap().clone()).unwrap());
        let mut ledger = divvy_core::ledger::Ledger::open(&node.inventory);
        for pod in store.all_pods().filter(|pod| pod["spec"]["nodeName"] == name) {
            let grant = pod["metadata"]["annotations"][divvy_core::keys::GRANT].as_str().unwrap();
            let grant: divvy_core::grant::Grant = serde_json::from_str(grant).unwrap();
            assert!(!grant.policy.is_empty());
            ledger.room(&node.inventory, &grant, true).unwrap();
            ledger.take(&node.inventory, &grant, true);
            let uid = PodUid::from(pod["metadata"]["uid"].as_str().unwrap());
            let known = day.control().world().snapshot().pod(&uid).unwrap().pod().bound().unwrap().grant.clone();
            assert_eq!(known.as_deref(), Some(&grant));
            bound += 1;
        }
    }
    assert!(bound > 20, "{bound}");
    assert_eq!(store.binds(), day.summary().bound, "somebody else binds pods");
}
