//! From a manifest to what its user finds: every example is read, placed on a cluster that has room, audited, and shown what its
//! system promised. What a dialect says must be something the scheduler can do.

use std::collections::BTreeSet;

use divvy_core::ask::GpuAsk;
use divvy_core::audit::audit;
use divvy_core::grant::Grant;
use divvy_core::id::NodeName;
use divvy_core::keys::*;
use divvy_core::pod::Pod as Placed;
use divvy_core::policy::Policy;
use divvy_core::schedule::schedule;
use divvy_core::snapshot::Snapshot;
use divvy_core::testing::cluster;
use divvy_core::time::Time;
use divvy_dialects::emulate::Place;
use divvy_dialects::{DialectConfig, NvidiaFlavour, PodManifest, emulate, sentence};
use serde_json::Value;

use crate::examples::all_pods;
use crate::support::{Pod, bare};

/// Something for everybody.
fn everything() -> Snapshot {
    let mut snapshot = cluster(
        "node h200 gpu=8:141Gi:NVIDIA-H200 links=0..7:nv-link numa=0,0,0,0,1,1,1,1\n\
         node old gpu=4:8Gi:NVIDIA-GeForce-GTX-1080\n\
         node mlu mlu=2:24Gi:MLU370-X4",
    );
    let mut cut = divvy_core::testing::node("node cut gpu=2:40Gi:NVIDIA-A100-PCIE-40GB");
    for device in &mut cut.inventory.devices {
        device.isolation = vec![divvy_core::device::Isolation::Mig];
        device.attributes.insert("mig-profiles".into(), "1g.5gb:4864:1:0,1,2,3,4,5,6;2g.10gb:9856:2:0,2,4".into());
    }
    snapshot.put_node(cut);
    let mut named = divvy_core::testing::node("node named gpu=2:16Gi:NVIDIA-V100");
    for (device, id) in named.inventory.devices.iter_mut().zip(["GPU-1111", "GPU-2222"]) {
        device.id = id.into();
    }
    snapshot.put_node(named);
    snapshot
}

/// Waits for nothing but a place.
fn waiting(name: &str, ask: GpuAsk) -> Placed {
    Placed { uid: name.into(), ask: Some(ask.into()), ..Placed::new("default", name) }
}

/// Where a pod like this goes on the cluster of everything, as many of them as its gang needs.
fn place(name: &str, ask: &GpuAsk) -> (NodeName, Grant) {
    let mut snapshot = everything();
    let members = ask.gang.as_ref().map_or(1, |gang| gang.size.max(1));
    for n in 0..members {
        snapshot.put_pod(waiting(&format!("p{n}"), ask.clone()));
    }
    let plan = schedule(&snapshot, &Policy::default(), Time(1000));
    assert_eq!(audit(&snapshot, &plan), [], "{name}");
    let waits: Vec<String> = plan.waits.iter().map(|wait| format!("{:?}", wait.reason)).collect();
    assert_eq!(plan.binds.len(), members as usize, "{name}: {waits:?}");
    let bind = plan.binds.into_iter().next().unwrap();
    (bind.node, bind.grant.unwrap())
}

fn show(pod: &Value, ask: &GpuAsk, node: &NodeName, grant: &Grant) -> divvy_dialects::Emulation {
    let snapshot = everything();
    let inventory = &snapshot.node(node).unwrap().node().inventory;
    let place = Place { node: node.as_str(), inventory, ports_taken: &BTreeSet::new() };
    emulate(&PodManifest::new(pod), ask, grant, &place)
}

#[test]
fn every_example_finds_a_place_and_its_user_what_was_promised() {
    for (folder, name, pod) in all_pods() {
        let nvidia = if folder == "vgpu" { NvidiaFlavour::Vgpu } else { NvidiaFlavour::Hami };
        let config = DialectConfig { nvidia, ..DialectConfig::default() };
        let ask = Pod(pod.clone()).ask_with(&config);
        let (node, grant) = place(&name, &ask);
        for (want, granted) in ask.containers.iter().zip(&grant.containers) {
            let count: u32 = want.wants.iter().map(|want| want.count).sum();
            assert_eq!(granted.slices.len(), count as usize, "{name}: {}", want.name);
        }
        let shown = show(&pod, &ask, &node, &grant);
        assert_eq!(shown.annotations.is_empty(), folder == "native", "{name}");
    }
}

#[test]
fn containers_of_a_kubeshare_pod_share_one_slice_or_the_same_whole_devices() {
    for amount in ["0.5", "3"] {
        let pod = bare()
            .container("a", &[])
            .container("b", &[])
            .label(KUBESHARE_REQUEST, amount)
            .label(KUBESHARE_LIMIT, amount);
        let ask = pod.ask();
        let (_, grant) = place(amount, &ask);
        let devices =
            |n: usize| -> Vec<&str> { grant.containers[n].slices.iter().map(|slice| slice.device.as_str()).collect() };
        assert_eq!(devices(0), devices(1), "{amount}");
        assert!(
            grant.containers[1].slices.iter().all(|slice| slice.share.0 == 0 && slice.memory.0 == 0),
            "booked once"
        );
    }
}

#[test]
fn a_pod_whose_admission_was_passed_by_waits_with_the_same_sentence() {
    let broken = bare().container("a", &[]).label(KUBESHARE_REQUEST, "0.5").label(KUBESHARE_LIMIT, "0.3");
    let mistakes = broken.mistakes();
    let mut snapshot = everything();
    let mut pod = waiting("p", GpuAsk::of(Default::default(), Vec::new()));
    pod.ask = None;
    pod.mistakes = mistakes.iter().map(|mistake| mistake.to_string().into()).collect();
    snapshot.put_pod(pod);
    let plan = schedule(&snapshot, &Policy::default(), Time(1000));
    assert_eq!(plan.binds.len(), 0);
    assert!(plan.waits[0].reason.to_string().contains(&sentence(&mistakes)), "{}", plan.waits[0].reason);
}
