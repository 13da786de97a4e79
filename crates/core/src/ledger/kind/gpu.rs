//! GPUs: shared by memory and time, or cut into hardware partitions.

use crate::ledger::kind::{DeviceScheduler, Want, memory_of, shared_slice};
use crate::model::device::{Device, DeviceKind, Inventory, Isolation};
use crate::model::grant::Slice;
use crate::model::mig;
use crate::model::reason::Obstacle;
use crate::model::units::Share;

/// The placing half of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Gpu;

impl DeviceScheduler for Gpu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Gpu
    }

    fn slice(&self, device: &Device, inventory: &Inventory, want: &Want<'_>, taken: u32) -> Result<Slice, Obstacle> {
        if device.isolation.first() == Some(&Isolation::Mig) {
            if !want.isolation.is_empty() && !want.isolation.contains(&Isolation::Mig) {
                return Err(Obstacle::Isolation { want: want.isolation.to_vec() });
            }
            return partition(device, inventory, want, taken);
        }
        if let Some(profile) = &want.ask.partition {
            return Err(Obstacle::Profile { want: profile.clone() });
        }
        if want.isolation == [Isolation::Mig] {
            return Err(Obstacle::Isolation { want: want.isolation.to_vec() });
        }
        shared_slice(device, inventory, want)
    }
}

/// A card that is cut up gives the smallest partition with enough memory, or one of the profile that was named, and all of that
/// partition's time. A device that is such a partition already gives itself.
fn partition(device: &Device, inventory: &Inventory, want: &Want<'_>, taken: u32) -> Result<Slice, Obstacle> {
    let need = memory_of(want.ask.memory, device, inventory);
    let named = want.ask.partition.as_ref();
    // Who wants a card for itself gets a seventh of one only where the pod says that partitions will do.
    if want.ask.exclusive && named.is_none() && !want.isolation.contains(&Isolation::Mig) {
        return Err(Obstacle::CutUp);
    }
    if let Some(profile) = named.filter(|profile| !mig::offers(device, profile)) {
        return Err(Obstacle::Profile { want: profile.clone() });
    }
    let chosen = mig::choose(device, need, named.map(|name| &**name), taken);
    let (name, memory, _) = chosen.ok_or_else(|| Obstacle::Partition { want: named.cloned() })?;
    Ok(Slice {
        device: device.id.clone(),
        kind: device.kind,
        memory,
        memory_limit: memory,
        share: Share::ZERO,
        share_limit: Share::WHOLE,
        exclusive: false,
        isolation: Isolation::Mig,
        partition: Some(name),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::Snapshot;
    use crate::model::ask::{DeviceAsk, GpuAsk, MemoryAsk};
    use crate::model::device::{Device, Isolation};
    use crate::model::mig;
    use crate::model::pod::{Pod, State};
    use crate::model::policy::Policy;
    use crate::model::time::Time;
    use crate::model::units::Bytes;
    use crate::plan::Plan;
    use crate::plan::audit::audit;
    use crate::schedule::schedule;
    use crate::testing::{self, describe};

    const A100: &str = "1g.5gb:4864:1:0,1,2,3,4,5,6;2g.10gb:9856:2:0,2,4;3g.20gb:20096:4:0,4;7g.40gb:40192:8:0";

    /// A card in MIG mode that is cut as pods come.
    fn cut(device: &mut Device) {
        device.isolation = vec![Isolation::Mig];
        device.attributes.insert(mig::PROFILES.into(), A100.into());
    }

    /// What an agent tells of an instance that somebody made.
    fn instance(device: &mut Device, profile: &str, mib: u64) {
        device.isolation = vec![Isolation::Mig];
        device.memory = Bytes::mib(mib);
        device.max_tasks = Some(1);
        device.attributes.insert(mig::PARENT.into(), "GPU-0".into());
        device.attributes.insert(mig::PROFILE.into(), profile.into());
    }

    /// A node with so many devices, each as `change` leaves it.
    fn node(cards: usize, change: impl Fn(usize, &mut Device)) -> Snapshot {
        let mut node = testing::node(&format!("node n gpu={cards}:40Gi:A100"));
        node.inventory.devices.iter_mut().enumerate().for_each(|(i, device)| change(i, device));
        let mut snapshot = Snapshot::new();
        snapshot.put_node(node);
        snapshot
    }

    fn partition(profile: &str) -> DeviceAsk {
        DeviceAsk { partition: Some(profile.into()), memory: MemoryAsk::Nothing, ..DeviceAsk::default() }
    }

    fn memory(mib: u64) -> DeviceAsk {
        DeviceAsk { memory: MemoryAsk::Bytes(Bytes::mib(mib)), ..DeviceAsk::default() }
    }

    /// Pods that want these, one after another, and say nothing about isolation or that partitions will do.
    fn plan(mut snapshot: Snapshot, wants: &[DeviceAsk], isolation: &[Isolation]) -> (Snapshot, Plan) {
        for (n, want) in wants.iter().enumerate() {
            let ask = GpuAsk { isolation: isolation.to_vec(), ..testing::ask(want.clone()) };
            let mut pod: Pod = testing::pod(&format!("wait p{n} share=100 at={n}"), &snapshot);
            assert_eq!(pod.state, State::Waiting);
            pod.ask = Some(Arc::new(ask));
            snapshot.put_pod(pod);
        }
        let plan = schedule(&snapshot, &Policy::default(), Time::seconds(1000));
        assert_eq!(audit(&snapshot, &plan), []);
        (snapshot, plan)
    }

    fn given(plan: &Plan) -> Vec<String> {
        let slices = plan.binds.iter().flat_map(|b| b.grant.iter()).flat_map(|g| &g.containers).flat_map(|c| &c.slices);
        slices.map(|s| format!("{} {}", s.device, s.partition.as_deref().unwrap_or("shared"))).collect()
    }

    #[test]
    fn a_partition_is_of_the_profile_that_was_asked_for() {
        let (_, plan) = plan(node(1, |_, d| cut(d)), &[partition("3g.20gb"), partition("3g.20gb")], &[Isolation::Mig]);
        assert_eq!(given(&plan), ["n-0 3g.20gb@4", "n-0 3g.20gb@0"]);
    }

    #[test]
    fn a_profile_that_no_card_has_or_none_has_left_is_waited_for_by_its_name() {
        let (_, one) = plan(node(1, |_, d| cut(d)), &[partition("1g.10gb")], &[Isolation::Mig]);
        assert!(describe(&one).contains("without a GPU that has 1g.10gb partitions"), "{}", describe(&one));
        let both = [partition("7g.40gb"), partition("7g.40gb")];
        let (_, two) = plan(node(1, |_, d| cut(d)), &both, &[Isolation::Mig]);
        assert_eq!(given(&two), ["n-0 7g.40gb@0"]);
        assert!(describe(&two).contains("without a free 7g.40gb partition"), "{}", describe(&two));
    }

    #[test]
    fn who_names_a_partition_is_never_put_on_an_ordinary_card() {
        for isolation in [&[][..], &[Isolation::Mig, Isolation::Intercept]] {
            let (_, plan) = plan(node(1, |_, _| {}), &[partition("1g.5gb")], isolation);
            assert_eq!(given(&plan), [""; 0]);
        }
    }

    #[test]
    fn the_audit_sees_a_partition_of_another_profile() {
        let (snapshot, mut plan) = plan(node(1, |_, d| cut(d)), &[partition("3g.20gb")], &[Isolation::Mig]);
        plan.binds[0].grant.as_mut().unwrap().containers[0].slices[0].partition = Some("1g.5gb@6".into());
        let said = format!("{:?}", audit(&snapshot, &plan));
        assert!(said.contains("not the 3g.20gb partition it asks for"), "{said}");
    }

    #[test]
    fn the_audit_sees_a_part_of_a_card_without_isolation() {
        let (snapshot, mut plan) = plan(node(1, |_, _| {}), &[memory(3000)], &[]);
        plan.binds[0].grant.as_mut().unwrap().containers[0].slices[0].isolation = Isolation::None;
        let said = format!("{:?}", audit(&snapshot, &plan));
        assert!(said.contains("no isolation on a card that others may use"), "{said}");
    }

    #[test]
    fn a_pod_that_accepts_no_isolation_only_gets_a_whole_card_or_waits() {
        let offers = |_: usize, d: &mut Device| d.isolation = vec![Isolation::Intercept, Isolation::None];
        let all_of_its_time = DeviceAsk { share: crate::model::units::Share::WHOLE, ..memory(1024) };
        let (_, waits) = plan(node(1, offers), &[memory(1024), all_of_its_time], &[Isolation::None]);
        assert_eq!(given(&waits), [""; 0]);
        assert!(describe(&waits).contains("that can be isolated as wanted"), "{}", describe(&waits));
        let (_, alone) = plan(node(1, offers), &[DeviceAsk::whole(1)], &[Isolation::None]);
        assert_eq!(alone.binds[0].grant.as_ref().unwrap().containers[0].slices[0].isolation, Isolation::None);
    }

    #[test]
    fn an_instance_that_is_there_already_is_given_to_one_pod() {
        let instances = |i: usize, d: &mut Device| {
            let (profile, mib) = [("1g.5gb", 4864), ("2g.10gb", 9856)][i];
            instance(d, profile, mib);
        };
        let wants = [partition("2g.10gb"), memory(3000), memory(3000)];
        let (_, by_name_and_size) = plan(node(2, instances), &wants, &[Isolation::Mig]);
        assert_eq!(given(&by_name_and_size), ["n-1 2g.10gb", "n-0 1g.5gb"]);
        let (_, silent) = plan(node(2, instances), &[memory(5000)], &[]);
        assert_eq!(given(&silent), ["n-1 2g.10gb"], "also who says nothing about isolation");
        let (_, wrong) = plan(node(2, instances), &[partition("3g.20gb"), memory(9857)], &[]);
        assert_eq!(given(&wrong), [""; 0]);
        let (_, shared) = plan(node(2, instances), &[memory(3000)], &[Isolation::Intercept]);
        assert_eq!(given(&shared), [""; 0]);
    }

    #[test]
    fn a_container_that_wants_two_partitions_gets_two_instances() {
        let two = DeviceAsk { count: 2, ..partition("1g.5gb") };
        let (_, both) =
            plan(node(2, |_, d| instance(d, "1g.5gb", 4864)), std::slice::from_ref(&two), &[Isolation::Mig]);
        assert_eq!(given(&both), ["n-0 1g.5gb", "n-1 1g.5gb"]);
        let (_, one) = plan(node(1, |_, d| instance(d, "1g.5gb", 4864)), &[two], &[Isolation::Mig]);
        assert_eq!(given(&one), [""; 0]);
    }

    #[test]
    fn who_wants_a_whole_card_is_not_given_a_part_of_one() {
        let whole = DeviceAsk { exclusive: true, memory: MemoryAsk::Nothing, ..DeviceAsk::default() };
        let mixed = |i: usize, d: &mut Device| match i {
            0 => cut(d),
            1 => instance(d, "1g.5gb", 4864),
            _ => {}
        };
        let (_, on_the_card) = plan(node(3, mixed), std::slice::from_ref(&whole), &[]);
        assert_eq!(given(&on_the_card), ["n-2 shared"]);
        let (_, waits) = plan(node(2, mixed), std::slice::from_ref(&whole), &[]);
        assert!(describe(&waits).contains("with every GPU cut into partitions"), "{}", describe(&waits));
        let (_, a_part_will_do) = plan(node(2, mixed), &[whole], &[Isolation::Mig]);
        assert_eq!(a_part_will_do.binds.len(), 1);
    }
}
