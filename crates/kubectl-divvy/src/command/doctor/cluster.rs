//! Checks of the cluster.

use std::collections::BTreeSet;

use divvy_api::managed;
use divvy_api::policy::{ClusterPolicy, GpuPolicySpec};
use divvy_core::keys;

use super::Finding;
use super::facts::{Admission, Facts};
use crate::cluster::View;

/// Names in images of programs that hand out the same GPUs.
const OTHERS: [(&str, &str); 9] = [
    ("k8s-device-plugin", "NVIDIA's device plugin"),
    ("nvidia-device-plugin", "NVIDIA's device plugin"),
    ("k8s-dra-driver", "NVIDIA's DRA driver"),
    ("gpushare-device-plugin", "Aliyun's gpushare device plugin"),
    ("k8s-gpushare-plugin", "Aliyun's gpushare device plugin"),
    ("gpu-manager", "gpu-manager"),
    ("k8s-vdevice", "4paradigm's vGPU device plugin"),
    ("hami", "HAMi's device plugin"),
    ("kubeshare", "KubeShare"),
];

/// Clocks this far apart, in milliseconds, make ages and budgets wrong.
const SKEW: i64 = 10_000;
/// The oldest Kubernetes that Divvy was tried on (docs/design/control-plane.md, "Kubernetes").
const OLDEST: (u32, u32) = (1, 34);
/// The oldest kubelet that Kubernetes supports beside such an API server. Older ones know no CDI devices from device plugins, or have
/// them behind a feature gate.
const OLDEST_KUBELET: (u32, u32) = (1, 31);

/// All of them.
pub(super) fn check(view: &anyhow::Result<View>, policy: &GpuPolicySpec, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![policy_is_followed(view, facts), server_is_new_enough(facts), admission_answers(facts)];
    findings.push(grants_are_guarded(facts));
    findings.push(somebody_leads(facts));
    if let Ok(view) = view {
        findings.push(nodes_have_inventories(view));
        findings.push(labels_agree(view, facts));
        findings.push(kubelets_count_slots(view, facts));
        findings.push(agents_are_of_one_version(view));
        findings.push(devices_are_fit(view));
        findings.push(shared_cards_are_isolated(view));
    }
    findings.push(nobody_else_owns_the_devices(facts));
    findings.push(no_class_owns_our_names(policy, facts));
    findings.push(clocks_agree(facts));
    findings
}

fn policy_is_followed(view: &anyhow::Result<View>, facts: &Facts) -> Finding {
    let check = "policy";
    match (view, &facts.policy_problem) {
        (Err(error), _) => {
            Finding::wrong(check, format!("{error:#}"), "edit the GpuPolicy: kubectl edit gpupolicy default")
        }
        (Ok(_), Some(problem)) => {
            Finding::wrong(check, format!("the GpuPolicy is not followed: {problem}"), "kubectl edit gpupolicy default")
        }
        (Ok(_), None) => Finding::well(check, "the GpuPolicy is followed"),
    }
}

fn server_is_new_enough(facts: &Facts) -> Finding {
    let check = "versions";
    let mut parts = facts.server.trim_start_matches('v').split('.').map(|n| n.parse::<u32>().ok());
    let Some((major, minor)) = parts.next().flatten().zip(parts.next().flatten()) else {
        return Finding::unknown(check, "the API server's version is not known");
    };
    if (major, minor) < OLDEST {
        let found = format!("the API server is {}, on which Divvy was never tried", facts.server);
        return Finding::wrong(check, found, format!("Divvy needs Kubernetes {}.{} or newer", OLDEST.0, OLDEST.1));
    }
    let old = facts.nodes.iter().find(|(_, node)| {
        let mut parts = node.kubelet.trim_start_matches('v').split('.').filter_map(|n| n.parse::<u32>().ok());
        parts.next().zip(parts.next()).is_some_and(|kubelet| kubelet < OLDEST_KUBELET)
    });
    let newer = format!("{}.{} or newer", OLDEST_KUBELET.0, OLDEST_KUBELET.1);
    match old {
        Some((name, node)) => Finding::wrong(
            check,
            format!("the kubelet of {name} is {}, which may not pass on CDI devices of device plugins", node.kubelet),
            format!("upgrade it to {newer}, or run the agent there with --carrier=cri-shim"),
        ),
        None => Finding::well(check, format!("API server {}, kubelets {newer}", facts.server)),
    }
}

fn admission_answers(facts: &Facts) -> Finding {
    let check = "webhook";
    let mend_reach = "kubectl -n divvy-system get pods,endpoints; without kube-proxy the API server needs --enable-aggregator-routing";
    match &facts.admission {
        Admission::Answers => Finding::well(check, "a fraction is read and normalized"),
        Admission::Untried => Finding::unknown(check, "it was not tried"),
        Admission::Forbidden => {
            Finding::unknown(check, "you may not create pods in namespace default, not even as a dry run")
        }
        Admission::Silent => Finding::wrong(
            check,
            "a pod with a fraction is stored unread: the webhook is not registered",
            "kubectl get mutatingwebhookconfiguration divvy; is Divvy's controller running?",
        ),
        Admission::Fails(message) if message.contains("x509") || message.contains("certificate") => Finding::wrong(
            check,
            format!("the API server does not believe the webhook's certificate: {message}"),
            "the CA in mutatingwebhookconfiguration divvy is not the one that signed it: restart the controller, which writes it anew",
        ),
        Admission::Fails(message) => {
            Finding::wrong(check, format!("a pod with a fraction fails: {message}"), mend_reach)
        }
    }
}

fn grants_are_guarded(facts: &Facts) -> Finding {
    let check = "grants";
    match facts.grants_guarded {
        Some(true) => Finding::well(check, "only Divvy writes grants"),
        Some(false) => Finding::wrong(
            check,
            "anybody who may patch pods may write grants: the ValidatingAdmissionPolicy divvy-grants is missing",
            "install it again: helm upgrade, or kubectl apply -f deploy/divvy.yaml",
        ),
        None => Finding::unknown(check, "you may not see admission policies"),
    }
}

fn somebody_leads(facts: &Facts) -> Finding {
    let check = "scheduler";
    match &facts.leader {
        Some((who, age)) if *age <= 60 => Finding::well(check, format!("{who} leads")),
        Some((who, age)) => Finding::wrong(
            check,
            format!("{who} led, and was last heard of {age} seconds ago: nobody places pods"),
            "kubectl -n divvy-system get pods; kubectl -n divvy-system logs deploy/divvy",
        ),
        None => Finding::warning(
            check,
            "no leader is seen",
            "harmless with --no-leader-election; else see the controller's logs",
        ),
    }
}

fn nodes_have_inventories(view: &View) -> Finding {
    let check = "inventory";
    let problems: Vec<String> =
        view.notes.iter().filter_map(|(node, note)| Some(format!("{node}: {}", note.problem.as_ref()?))).collect();
    if !problems.is_empty() {
        return Finding::wrong(check, problems.join("; "), "kubectl -n divvy-system logs ds/divvy-agent on that node");
    }
    let devices: usize = view.snapshot.nodes().map(|(_, state)| state.node().inventory.devices.len()).sum();
    let nodes = view.snapshot.nodes().filter(|(_, state)| !state.node().inventory.devices.is_empty()).count();
    if devices == 0 {
        return Finding::wrong(
            check,
            "no node offers a GPU",
            "does the agent run there? kubectl -n divvy-system get pods -o wide; `kubectl divvy doctor --host` on the node",
        );
    }
    Finding::well(check, format!("{nodes} nodes offer {devices} devices"))
}

fn labels_agree(view: &View, facts: &Facts) -> Finding {
    let check = "labels";
    let without: Vec<&str> = facts
        .nodes
        .iter()
        .filter(|(name, node)| {
            let offers =
                view.snapshot.node(&name.as_str().into()).is_some_and(|s| !s.node().inventory.devices.is_empty());
            node.says_gpu && !offers
        })
        .map(|(name, _)| name.as_str())
        .collect();
    if without.is_empty() {
        return Finding::well(check, "every node that says it has GPUs offers them");
    }
    let opted = if view.policy.devices.only_opted_in {
        format!("the policy takes opted-in nodes only: kubectl label node {} {}=on", without[0], keys::NODE_OPT_IN)
    } else {
        format!("does the agent run there? is it labelled {}=off?", keys::NODE_OPT_IN)
    };
    Finding::warning(check, format!("labelled as GPU nodes, and not offered: {}", without.join(", ")), opted)
}

fn kubelets_count_slots(view: &View, facts: &Facts) -> Finding {
    let check = "slots";
    let none: Vec<&str> = facts
        .nodes
        .iter()
        .filter(|(name, node)| {
            let state = view.snapshot.node(&name.as_str().into());
            node.slots == 0 && state.is_some_and(|s| s.node().inventory.devices.iter().any(|d| d.is_open()))
        })
        .map(|(name, _)| name.as_str())
        .collect();
    if none.is_empty() {
        return Finding::well(check, format!("kubelets count {}", keys::SLOT));
    }
    Finding::wrong(
        check,
        format!("no {} on {}: pods will be bound and not started", keys::SLOT, none.join(", ")),
        "the device plugin is not registered: restart the agent there, and see the kubelet's log for device-plugins",
    )
}

fn agents_are_of_one_version(view: &View) -> Finding {
    let check = "agents";
    let mut versions: Vec<&str> = view
        .snapshot
        .nodes()
        .map(|(_, state)| state.node().inventory.agent.as_str())
        .filter(|v| !v.is_empty())
        .collect();
    versions.sort_unstable();
    versions.dedup();
    let own = env!("CARGO_PKG_VERSION");
    match versions.as_slice() {
        [] => Finding::unknown(check, "no agent says its version"),
        [one] if *one == own => Finding::well(check, format!("all are {one}, like this program")),
        [one] => {
            Finding::warning(check, format!("all are {one}, this program is {own}"), "use the same version of both")
        }
        several => Finding::warning(
            check,
            format!("versions differ: {}", several.join(", ")),
            "kubectl -n divvy-system rollout status ds/divvy-agent",
        ),
    }
}

fn devices_are_fit(view: &View) -> Finding {
    let check = "devices";
    let devices =
        || view.snapshot.nodes().flat_map(|(_, s)| s.node().inventory.devices.iter().map(move |d| (s.node(), d)));
    let ill: Vec<String> = devices()
        .filter_map(|(node, device)| match &device.health {
            divvy_core::device::Health::Unhealthy { reason } => {
                Some(format!("{} on {} ({reason})", device.id, node.name))
            }
            divvy_core::device::Health::Healthy => None,
        })
        .collect();
    let foreign: Vec<String> = view
        .snapshot
        .nodes()
        .flat_map(|(_, s)| s.node().inventory.foreign.iter().map(move |(id, bytes)| (s.node(), id, *bytes)))
        .filter(|(_, _, bytes)| bytes.0 > 0)
        .map(|(node, id, bytes)| format!("{bytes} of {id} on {}", node.name))
        .collect();
    if !ill.is_empty() {
        return Finding::wrong(
            check,
            format!("unfit for work: {}", ill.join(", ")),
            "docs/guides/operations.md, \"A card fails\"",
        );
    }
    if !foreign.is_empty() {
        let found = format!("processes without a grant hold {}", foreign.join(", "));
        return Finding::warning(check, found, "nvidia-smi on the node names them; that memory is not offered");
    }
    Finding::well(check, "all are fit for work, and nobody uses them past Divvy")
}

/// Earlier versions granted parts of cards without isolation.
fn shared_cards_are_isolated(view: &View) -> Finding {
    let check = "isolation";
    let unprotected: Vec<String> = view
        .snapshot
        .pods()
        .filter_map(|(_, state)| {
            let bound = state.pod().bound()?;
            let devices: BTreeSet<&str> =
                bound.grant.as_ref()?.unprotected().map(|(_, slice)| slice.device.as_str()).collect();
            let devices = devices.into_iter().collect::<Vec<_>>().join(", ");
            (!devices.is_empty()).then(|| format!("{} on {} ({devices})", state.pod().key, bound.node))
        })
        .collect();
    if unprotected.is_empty() {
        return Finding::well(check, "every pod on a shared device is held to its part");
    }
    Finding::wrong(
        check,
        format!("nothing holds these pods to their part of a shared device: {}", unprotected.join(", ")),
        format!(
            "delete them and create them again with whole devices or without {}: none; until then their devices take no further pods",
            keys::ISOLATION
        ),
    )
}

fn nobody_else_owns_the_devices(facts: &Facts) -> Finding {
    let check = "owners";
    let mut found = Vec::new();
    for (set, images) in &facts.daemon_sets {
        let names = |image: &String| {
            let last = image.rsplit('/').next().unwrap_or(image);
            if last.contains("divvy") { None } else { OTHERS.iter().find(|(word, _)| last.contains(word)) }
        };
        if let Some((_, who)) = images.iter().find_map(names) {
            found.push(format!("{who} (DaemonSet {set})"));
        }
    }
    if found.is_empty() {
        return Finding::well(check, "nobody else hands out the same GPUs");
    }
    Finding::wrong(
        check,
        format!("{} hands out the same GPUs: containers would be counted twice or not at all", found.join(", ")),
        "keep it off Divvy's nodes by a node selector, or remove it (docs/guides/install.md, \"Beside others\")",
    )
}

fn no_class_owns_our_names(policy: &GpuPolicySpec, facts: &Facts) -> Finding {
    let check = "device classes";
    let dialects = ClusterPolicy::read(policy).map(|p| p.dialects).unwrap_or_default();
    let names = managed::names(&dialects);
    let clash: Vec<String> = facts
        .device_classes
        .iter()
        .filter(|(_, resource)| managed::is_managed(&names, resource) || **resource == keys::SLOT)
        .map(|(class, resource)| format!("{class} ({resource})"))
        .collect();
    if clash.is_empty() {
        return Finding::well(check, "no DeviceClass stands for a resource that Divvy reads");
    }
    Finding::wrong(
        check,
        format!("the scheduler would turn these into resource claims: {}", clash.join(", ")),
        "remove extendedResourceName from the DeviceClass, or switch that dialect off in the GpuPolicy",
    )
}

fn clocks_agree(facts: &Facts) -> Finding {
    let check = "clocks";
    let known: Vec<(&String, i64)> = facts.nodes.iter().filter_map(|(name, n)| Some((name, n.clock_ahead?))).collect();
    let off: Vec<String> = known
        .iter()
        .filter(|(_, ahead)| ahead.abs() > SKEW)
        .map(|(name, ahead)| {
            format!("{name} is {} s {}", ahead.abs() / 1000, if *ahead > 0 { "ahead" } else { "behind" })
        })
        .collect();
    match (known.is_empty(), off.is_empty()) {
        (true, _) => Finding::unknown(check, "no node's clock can be seen"),
        (false, true) => Finding::well(check, "within 10 s of the API server's"),
        (false, false) => Finding::wrong(check, off.join(", "), "run chrony or systemd-timesyncd on these nodes"),
    }
}
