//! Replays keep to the trace's rules, and the default policy does better than the published ones.

use std::collections::HashMap;

use super::*;
use crate::trace;
use crate::workload::workload;

/// A tenth of the trace: every tenth node, and demand to match.
fn small(list: &str, seed: u64) -> (Workload, Vec<Request>) {
    let nodes: Vec<_> = trace::nodes().into_iter().step_by(10).collect();
    let list = trace::list(list).unwrap();
    let few: Vec<Request> = list.iter().step_by(10).cloned().collect();
    (workload(&nodes, &few, seed), list)
}

/// What an outside referee would check: capacity, models, whole GPUs for those who want several.
fn referee(work: &Workload, outcome: &Outcome) {
    let mut left: HashMap<&str, (u64, u64, Vec<u32>)> =
        work.nodes.iter().map(|n| (&*n.name, (n.cpu, n.memory, vec![1000; n.gpus as usize]))).collect();
    let model: HashMap<&str, &str> = work.nodes.iter().map(|n| (&*n.name, &*n.model)).collect();
    for (pod, place) in work.pods.iter().zip(&outcome.placed) {
        let want = &pod.request;
        let fits = |name: &str, (cpu, memory, gpus): &(u64, u64, Vec<u32>)| {
            *cpu >= want.cpu
                && *memory >= want.memory
                && (want.gpus == 0 || want.models.is_empty() || want.models.iter().any(|m| **m == *model[name]))
                && gpus.iter().filter(|g| **g >= want.milli.max(1)).count() >= want.gpus as usize
        };
        let Some((node, gpus)) = place else {
            assert!(!left.iter().any(|(name, rest)| fits(name, rest)), "{} was refused and fits", pod.name);
            continue;
        };
        let rest = left.get_mut(&**node).unwrap();
        assert!(fits(node, rest), "{} does not fit on {node}", pod.name);
        assert_eq!(gpus.len(), want.gpus as usize);
        (rest.0, rest.1) = (rest.0 - want.cpu, rest.1 - want.memory);
        gpus.iter().for_each(|gpu| rest.2[*gpu as usize] -= want.milli);
    }
}

#[test]
fn every_contestant_keeps_to_the_rules_and_refuses_nobody_who_fits() {
    for contestant in Contestant::all() {
        let (work, list) = small("gpuspec33", 1);
        let outcome = replay(&contestant, &work, &list, || {});
        referee(&work, &outcome);
        assert!(outcome.placed.iter().any(Option::is_some), "{contestant}");
    }
}

#[test]
fn the_default_policy_leaves_less_unallocated_than_the_published_ones() {
    for list in ["default", "gpuspec33"] {
        let target = trace::list(list).unwrap();
        let work = workload(&trace::nodes(), &target, 3);
        let of = |name: &str| replay(&Contestant::named(name).unwrap(), &work, &target, || {}).unallocated;
        let (told, online) = (of("frag-told"), of("frag"));
        for rival in ["fgd", "best-fit", "first-fit"] {
            let theirs = of(rival);
            assert!(
                told < theirs && online < theirs,
                "{list}: told {told:.2}, online {online:.2}, {rival} {theirs:.2}"
            );
        }
    }
}

#[test]
fn names_of_contestants_are_read_as_they_are_written() {
    for contestant in Contestant::all() {
        assert_eq!(Contestant::named(&contestant.to_string()), Ok(contestant));
    }
    let mistake = Contestant::named("best").unwrap_err();
    assert!(mistake.contains("`best`") && mistake.contains("frag-told") && mistake.contains("kubeshare"), "{mistake}");
}

#[test]
fn pods_that_leave_make_room() {
    let nodes = crate::csv::nodes("sn,cpu_milli,memory_mib,gpu,model\nn,8000,8192,1,T4\n").unwrap();
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,event\n\
                a,1000,10,1,1000,,,add\nb,1000,10,1,500,,,add\na,1000,10,1,1000,,,del\nc,1000,10,1,500,,,add\nd,1,1,1,500,G2,,add\n";
    let work = Workload { nodes, pods: crate::csv::pods(pods).unwrap() };
    for name in ["frag", "fgd", "binpack"] {
        let outcome = replay(&Contestant::named(name).unwrap(), &work, &[], || {});
        let text = crate::csv::placements(&work.pods, &outcome.placed);
        assert_eq!(text, "pod,node,gpus\na,n,0\nb,,\nc,n,0\nd,,\n", "{name}");
    }
}
