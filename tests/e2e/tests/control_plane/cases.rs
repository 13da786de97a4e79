//! Random nodes and pods with every ordinary rule among them. The same seed makes the same case.

use serde_json::{Value, json};

/// A case: what is there, and who wants to be placed.
pub(crate) struct Case {
    /// Nodes and volumes.
    pub(crate) surroundings: Vec<Value>,
    /// Pods, those that run first.
    pub(crate) pods: Vec<Value>,
}

/// A generator of numbers that is the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % sides
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.roll(list.len() as u64) as usize]
    }
}

const ZONES: [&str; 3] = ["a", "b", "c"];
const APPS: [&str; 4] = ["web", "db", "job", "cache"];
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

impl Case {
    pub(crate) fn make(seed: u64, namespace: &str, waiting: usize) -> Case {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let nodes: Vec<String> = (0..8 + dice.roll(6)).map(|n| format!("r{seed}-n{n}")).collect();
        let mut surroundings: Vec<Value> = nodes.iter().map(|name| node(&mut dice, name)).collect();
        surroundings.extend(nodes.iter().map(|name| csi_node(&mut dice, name)));
        surroundings.extend(storage(&mut dice, seed, namespace, &nodes));
        let mut pods = Vec::new();
        for n in 0..14 {
            let mut pod = pod(&mut dice, seed, &format!("r{seed}-runs-{n}"), &nodes);
            pod["spec"]["nodeName"] = json!(dice.of(&nodes));
            // What runs is there, whatever it wanted.
            if let Some(spec) = pod["spec"].as_object_mut() {
                spec.remove("volumes");
                spec.remove("schedulingGates");
            }
            pods.push(pod);
        }
        pods.extend((0..waiting).map(|n| pod(&mut dice, seed, &format!("r{seed}-waits-{n}"), &nodes)));
        Case { surroundings, pods }
    }
}

fn node(dice: &mut Dice, name: &str) -> Value {
    let mut labels = json!({HOSTNAME: name, "gen": dice.roll(9).to_string()});
    if !dice.once_in(6) {
        labels[ZONE] = json!(dice.of(&ZONES));
    }
    if dice.once_in(2) {
        labels["disk"] = json!(dice.of(&["ssd", "hdd"]));
    }
    let mut taints = Vec::new();
    if dice.once_in(4) {
        let effect = dice.of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        taints.push(json!({"key": dice.of(&["team", "gpu"]), "value": dice.of(&["x", "y"]), "effect": effect}));
    }
    let amounts = json!({
        "cpu": dice.of(&["1", "2", "4", "8"]), "memory": dice.of(&["1Gi", "4Gi", "16Gi"]), "ephemeral-storage": dice.of(&["1Gi", "10Gi"]),
        "pods": dice.of(&["2", "4", "110"]), "vendor.example/widget": dice.of(&["0", "1", "4"]), "hugepages-2Mi": dice.of(&["0", "64Mi"]),
    });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": dice.once_in(10)},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn csi_node(dice: &mut Dice, name: &str) -> Value {
    let driver =
        json!({"name": "disk.example", "nodeID": name, "topologyKeys": [], "allocatable": {"count": dice.roll(3)}});
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": [driver]}})
}

/// Storage classes, volumes that can be reached from some nodes, and claims: bound, waiting for a consumer, or lost in thought.
fn storage(dice: &mut Dice, seed: u64, namespace: &str, nodes: &[String]) -> Vec<Value> {
    let class = |name: &str, mode: &str| {
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
               "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": mode})
    };
    let wait = format!("r{seed}-wait");
    let mut all = vec![class(&wait, "WaitForFirstConsumer")];
    let claim = |name: &str, spec: Value| json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}, "spec": spec});
    let on = |names: &[&String]| json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": names}]}]}});
    for n in 0..4 {
        // A volume of a driver, bound to its claim, reachable from half the nodes or from a zone.
        let name = format!("r{seed}-bound-{n}");
        let some: Vec<&String> = nodes.iter().filter(|_| dice.once_in(2)).collect();
        let some = if some.is_empty() { vec![&nodes[0]] } else { some };
        let mode = if n == 3 { "ReadWriteOncePod" } else { "ReadWriteOnce" };
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": [mode], "storageClassName": "",
                     "claimRef": {"namespace": namespace, "name": name},
                     "csi": {"driver": "disk.example", "volumeHandle": name}},
        });
        if dice.once_in(2) {
            volume["spec"]["nodeAffinity"] = on(&some);
        } else {
            volume["metadata"]["labels"] = json!({ZONE: dice.of(&ZONES)});
        }
        all.push(volume);
        all.push(claim(
            &name,
            json!({"accessModes": [mode], "storageClassName": "", "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}),
        ));
    }
    for n in 0..5 {
        // Local volumes that wait for their first consumer.
        let mut volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("r{seed}-local-{n}")},
            "spec": {"capacity": {"storage": dice.of(&["1Gi", "5Gi"])}, "accessModes": ["ReadWriteOnce"], "storageClassName": wait,
                     "local": {"path": "/mnt"}},
        });
        volume["spec"]["nodeAffinity"] = on(&[dice.of(nodes)]);
        all.push(volume);
    }
    for n in 0..3 {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": wait,
                          "resources": {"requests": {"storage": dice.of(&["1Gi", "3Gi"])}}});
        all.push(claim(&format!("r{seed}-unbound-{n}"), spec));
    }
    all
}

fn selector(dice: &mut Dice) -> Value {
    match dice.roll(4) {
        0 => json!({"matchLabels": {"app": dice.of(&APPS)}}),
        1 => {
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": [dice.of(&APPS), dice.of(&APPS)]}]})
        }
        2 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [dice.of(&APPS)]}]}),
        _ => json!({"matchExpressions": [{"key": "tier", "operator": dice.of(&["Exists", "DoesNotExist"])}]}),
    }
}

/// The API server wants a label to be in the selector or among the keys, not in both.
fn mentions_tier(term: &Value) -> bool {
    term["labelSelector"].to_string().contains("tier")
}

fn expression(dice: &mut Dice) -> Value {
    match dice.roll(6) {
        0 => json!({"key": ZONE, "operator": "In", "values": [dice.of(&ZONES), dice.of(&ZONES)]}),
        1 => json!({"key": ZONE, "operator": "NotIn", "values": [dice.of(&ZONES)]}),
        2 => json!({"key": "disk", "operator": "Exists"}),
        3 => json!({"key": "disk", "operator": "DoesNotExist"}),
        4 => json!({"key": "gen", "operator": "Gt", "values": [dice.roll(6).to_string()]}),
        _ => json!({"key": "gen", "operator": "Lt", "values": [(dice.roll(7) + 2).to_string()]}),
    }
}

fn pod_term(dice: &mut Dice) -> Value {
    let mut term = json!({"labelSelector": selector(dice), "topologyKey": dice.of(&[ZONE, HOSTNAME, "disk"])});
    match dice.roll(5) {
        0 => term["namespaceSelector"] = json!({}),
        1 => term["namespaces"] = json!(["default", "elsewhere"]),
        2 if !mentions_tier(&term) => term["matchLabelKeys"] = json!(["tier"]),
        _ => {}
    }
    term
}

fn pod(dice: &mut Dice, seed: u64, name: &str, nodes: &[String]) -> Value {
    let mut labels = json!({"app": dice.of(&APPS)});
    if dice.once_in(2) {
        labels["tier"] = json!(dice.of(&["front", "back"]));
    }
    let mut requests =
        json!({"cpu": dice.of(&["0", "100m", "500m", "1500m"]), "memory": dice.of(&["0", "64Mi", "1Gi", "3Gi"])});
    let mut limits = json!({});
    if dice.once_in(8) {
        requests["ephemeral-storage"] = json!(dice.of(&["500Mi", "5Gi"]));
    }
    if dice.once_in(8) {
        limits["vendor.example/widget"] = json!(dice.of(&["1", "3"]));
    }
    let mut container = json!({"name": "c", "image": "none", "resources": {"requests": requests, "limits": limits}});
    if dice.once_in(8) {
        container["ports"] = json!([{"containerPort": 80, "hostPort": 8080 + dice.roll(2), "protocol": dice.of(&["TCP", "UDP"]),
                                     "hostIP": dice.of(&["", "127.0.0.1", "10.0.0.1"])}]);
    }
    let mut spec = json!({"terminationGracePeriodSeconds": 0, "containers": [container]});
    if dice.once_in(6) {
        let cpu = dice.of(&["2", "5", "300m"]);
        let mut init = json!({"name": "i", "image": "none", "resources": {"requests": {"cpu": cpu}}});
        if dice.once_in(2) {
            init["restartPolicy"] = json!("Always");
        }
        spec["initContainers"] =
            json!([init, {"name": "j", "image": "none", "resources": {"requests": {"memory": "2Gi"}}}]);
    }
    if dice.once_in(10) {
        // Never less than what its containers ask for in all.
        spec["resources"] = json!({"requests": {"cpu": dice.of(&["7", "8"])}});
    }
    if dice.once_in(4) {
        spec["nodeSelector"] = json!({"disk": dice.of(&["ssd", "hdd"])});
    }
    if dice.once_in(3) {
        let key = dice.of(&["team", "gpu", ""]);
        spec["tolerations"] = match dice.roll(3) {
            0 => json!([{"operator": "Exists", "key": key}]),
            1 if !key.is_empty() => json!([{"operator": "Equal", "key": key, "value": "x", "effect": "NoSchedule"}]),
            _ => json!([{"operator": "Exists", "effect": dice.of(&["NoSchedule", "NoExecute"])}]),
        };
    }
    let mut affinity = json!({});
    if dice.once_in(3) {
        let mut terms: Vec<Value> =
            (0..=dice.roll(2)).map(|_| json!({"matchExpressions": [expression(dice)]})).collect();
        if dice.once_in(4) {
            let operator = dice.of(&["In", "NotIn"]);
            terms.push(
                json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": [dice.of(nodes)]}]}),
            );
        }
        affinity["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    }
    if dice.once_in(4) {
        affinity["podAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [pod_term(dice)]});
    }
    if dice.once_in(4) {
        affinity["podAntiAffinity"] = json!({"requiredDuringSchedulingIgnoredDuringExecution": [pod_term(dice)]});
    }
    spec["affinity"] = affinity;
    if dice.once_in(4) {
        let mut rule = json!({"maxSkew": dice.roll(2) + 1, "topologyKey": dice.of(&[ZONE, HOSTNAME]), "labelSelector": selector(dice),
                              "whenUnsatisfiable": dice.of(&["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"])});
        if rule["whenUnsatisfiable"] == "DoNotSchedule" && dice.once_in(3) {
            rule["minDomains"] = json!(dice.roll(4) + 1);
        }
        if dice.once_in(3) {
            rule["nodeAffinityPolicy"] = json!("Ignore");
        }
        if dice.once_in(3) {
            rule["nodeTaintsPolicy"] = json!("Honor");
        }
        if dice.once_in(4) && !mentions_tier(&rule) {
            rule["matchLabelKeys"] = json!(["tier"]);
        }
        spec["topologySpreadConstraints"] = json!([rule]);
    }
    if dice.once_in(4) {
        let claim = match dice.roll(5) {
            0 | 1 => format!("r{seed}-bound-{}", dice.roll(4)),
            2 | 3 => format!("r{seed}-unbound-{}", dice.roll(3)),
            _ => format!("r{seed}-nobody"),
        };
        spec["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec})
}
