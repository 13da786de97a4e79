//! From `kubectl apply` to a CUDA program that is held to its grant: the manifests of every dialect's users, as they are, through the
//! webhook, the scheduler, the real kubelet and the agent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "control_plane/ground.rs"]
mod ground;
#[path = "node/load.rs"]
mod load;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use divvy_core::budget::Page;
use divvy_core::keys;
use divvy_e2e::site::{SOON, Site};
use divvy_e2e::{Image, Kubectl, eventually, own};
use serde_json::{Value, json};

use load::{Load, await_shares, under_load};

/// Cards for everybody: KubeShare's README wants a GTX 1080, KubeGPU's a pair with 12 GiB each, HAMi's a whole one.
const MACHINE: &str = "GTX1080; T4; H200; H200; H200; H200; H200; H200; H200; H200";
/// Images that the manifests name.
const IMAGES: [&str; 5] = [
    "docker.io/riyazhu/mnist:test",
    "localhost:5000/usecase/mnist:latest",
    "docker.io/cheyang/gpu-player:v2",
    "docker.io/nvidia/cuda:latest",
    "docker.io/library/ubuntu:18.04",
];

struct Example {
    file: &'static str,
    /// The pod it makes.
    pod: &'static str,
    container: &'static str,
    /// Memory per card, in MiB; 0 for a whole card.
    memory: u64,
    /// A variable its images read, and what it says.
    variable: (&'static str, &'static str),
}

const EXAMPLES: [Example; 5] = [
    Example {
        file: "kubeshare/pod.yaml",
        pod: "mnist",
        container: "pytorch",
        memory: 4096,
        variable: ("POD_NAME", "dialects/mnist"),
    },
    Example {
        file: "gpu-manager/mnist.yaml",
        pod: "mnist-case",
        container: "nvidia",
        memory: 15 * 256,
        variable: ("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64"),
    },
    Example {
        file: "gpushare/binpack.yaml",
        pod: "binpack-1-0",
        container: "binpack-1",
        memory: 3072,
        variable: ("ALIYUN_COM_GPU_MEM_CONTAINER", "3"),
    },
    Example {
        file: "vgpu/pod.yaml",
        pod: "gpu-pod",
        container: "ubuntu-container",
        memory: 3000,
        variable: ("CUDA_DEVICE_MEMORY_LIMIT_0", "3000m"),
    },
    Example {
        file: "kubegpu/two-gpus.yaml",
        pod: "gpu2-pair",
        container: "main",
        memory: 0,
        variable: ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"),
    },
];

fn cuda_image() -> Image {
    let shell = "#!/bin/sh\nexec /bin/sh \"$@\"\n";
    let image = Image::busybox().unwrap().program("/bin/tenant", &own::tenant().unwrap()).unwrap();
    let splitter = "#!/bin/sh\n";
    image.bytes("/bin/bash", shell, 0o755).bytes("/usr/bin/smlu-containerd", splitter, 0o755)
}

/// Gives the node two MLUs: what Cambricon's tool printed on one, and device nodes that do nothing.
fn with_mlu(site: &Site) {
    let node = &site.cluster.nodes()[0];
    let table = ground::file("crates/agent/tests/fixtures/cnmon-mlu370-x4.txt");
    let script = format!(
        "set -e; mkdir -p /run/mlu; for n in dev0 dev1 ctl; do mknod /run/mlu/cambricon_$n c 1 3; done
        printf '#!/bin/sh\\ncat {}\\n' >/usr/local/bin/cnmon; chmod 755 /usr/local/bin/cnmon",
        table.display()
    );
    let done = node.shell(&script).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    site.flags(&["--cnmon=/usr/local/bin/cnmon", "--cambricon-dev=/run/mlu"]);
    let offered =
        |node: &Value| node["metadata"]["annotations"][keys::INVENTORY].as_str().is_some_and(|i| i.contains("MLU370"));
    site.cluster
        .admin()
        .wait("node", "node-0", SOON, offered)
        .unwrap_or_else(|e| panic!("{e:#}\n{}", site.agent_log()));
}

/// A node with Divvy's own control plane before it.
struct Ground {
    site: Site,
    /// Keeps running as long as the site does.
    _divvy: ground::Divvy,
}

/// The ground, for one test at a time.
fn ground() -> MutexGuard<'static, Ground> {
    static GROUND: OnceLock<Mutex<Ground>> = OnceLock::new();
    GROUND.get_or_init(|| Mutex::new(Ground::start())).lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ground {
    fn start() -> Ground {
        let site = Site::start_with(MACHINE, "divvy-agent");
        for image in IMAGES {
            site.cluster.offer_image(image, &cuda_image()).unwrap();
        }
        with_mlu(&site);
        let admin = site.cluster.admin();
        admin.say(&["label", "node", "node-0", &format!("{}=true", keys::NODE_OPT_IN)]).unwrap();
        let divvy = ground::Divvy::new(&site.cluster, "divvy", "controller", &[]);
        divvy.start();
        Ground { site, _divvy: divvy }
    }

    fn namespace(&self, name: &str) -> Kubectl {
        let admin = self.site.cluster.admin();
        admin.say(&["create", "namespace", name]).unwrap();
        let kubectl = admin.in_namespace(name);
        kubectl.wait("serviceaccount", "default", SOON, |_| true).unwrap();
        kubectl
    }

    fn wait_running(&self, kubectl: &Kubectl, pod: &str) -> Value {
        kubectl
            .wait_phase(pod, "Running", SOON)
            .unwrap_or_else(|e| panic!("{pod}: {e:#}\n{}\n{}", self.site.agent_log(), self.site.cluster.report()))
    }
}

/// Tells the CUDA program in a container what to do; its answers.
fn tenant(kubectl: &Kubectl, pod: &str, container: &str, commands: &str) -> Vec<String> {
    let words = ["exec", "-i", pod, "-c", container, "--", "tenant"];
    kubectl.feed(&words, commands).unwrap().lines().map(str::to_owned).collect()
}

fn native(name: &str, share: u32, memory: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {keys::GPU_MODEL: "T4", keys::GPU_SHARE_LIMIT: "1000"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": IMAGES[0], "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
            "resources": {"limits": {keys::GPU_SHARE: share.to_string(), keys::GPU_MEMORY: memory}}}]},
    })
}

#[test]
fn two_pods_on_one_card_have_their_memory_and_their_shares_and_the_node_writes_it_down() {
    let ground = ground();
    let kubectl = ground.namespace("slice");
    kubectl.apply(&native("thirty", 300, "4Gi").to_string()).unwrap();
    kubectl.apply(&native("seventy", 700, "6Gi").to_string()).unwrap();
    let mut cards = Vec::new();
    for (pod, gib) in [("thirty", 4u64), ("seventy", 6)] {
        let running = ground.wait_running(&kubectl, pod);
        cards.extend(ground::devices(&ground::grant(&running)));
        let over = (gib << 30) + 1;
        let said = tenant(&kubectl, pod, "main", &format!("ctx 0\ninfo\nalloc {over}\nalloc 1048576\nquit\n"));
        assert!(said[1].ends_with(&format!(" {}", gib << 30)), "{pod} sees its slice: {said:?}");
        assert_eq!(said[2], "error 2", "{pod} is refused a byte above its grant: {said:?}");
        assert!(said[3].starts_with("ok "), "{pod}: {said:?}");
    }
    assert_eq!(cards[0], cards[1], "they share a card");
    let loads = [("thirty", 100), ("seventy", 200)].map(|(pod, mark)| Load { pod, container: "main", mark });
    let held = |shares: &[f64]| {
        let (part, sum) = (100.0 * shares[0] / (shares[0] + shares[1]), shares[0] + shares[1]);
        let good = (part - 30.0).abs() <= 5.0 && sum > 90.0;
        good.then_some(()).ok_or_else(|| format!("{shares:.1?} is {part:.1} points for 30, and {sum:.1} of the card"))
    };
    under_load(&kubectl, &ground.site, &loads, || await_shares("30 and 70", &ground.site, &loads, held));

    // The same is on the agent's port.
    let metrics = ground.site.ask("/metrics");
    let series = |name: &str, pod: &str| -> f64 {
        let of = format!("{name}{{namespace=\"slice\",pod=\"{pod}\",container=\"main\",device=\"{}\"}} ", cards[0]);
        let line = metrics
            .lines()
            .find_map(|line| line.strip_prefix(&of))
            .unwrap_or_else(|| panic!("{of} is not in {metrics}"));
        line.parse().unwrap()
    };
    assert_eq!(series("divvy_container_memory_limit_bytes", "thirty"), f64::from(4 << 10) * 1_048_576.0);
    assert!(series("divvy_container_busy_seconds_total", "seventy") > 2.5, "{metrics}");
    assert!(series("divvy_container_refused_allocations_total", "thirty") >= 1.0, "{metrics}");

    // And in the journal, once the pods are gone, with their end.
    kubectl.say(&["delete", "pods", "--all", "--wait=false"]).unwrap();
    let ends = eventually("the journal has their ends", SOON, || {
        let page: Page = serde_json::from_str(&ground.site.ask("/journal"))?;
        let ended: Vec<_> =
            page.records.into_iter().filter(|r| r.pod.namespace.as_str() == "slice" && r.until.is_some()).collect();
        anyhow::ensure!(ended.len() == 2, "{ended:?}");
        Ok(ended)
    })
    .unwrap();
    let busy = |pod: &str| ends.iter().find(|r| r.pod.name.to_string() == pod).unwrap().busy;
    assert!(busy("seventy") >= 2500 && busy("thirty") >= 1000, "{ends:?}");
    assert!(busy("seventy") > busy("thirty"), "{ends:?}");
}

/// The memory a node's T4 may promise, in MiB, as 4paradigm's register and our own inventory tell it.
fn t4_offered(node: &Value) -> Option<(u64, u64)> {
    let annotation = |key: &str| node["metadata"]["annotations"][key].as_str();
    let cards = annotation(keys::VGPU_NODE_REGISTER)?.split(':').map(|card| card.split(',').collect::<Vec<_>>());
    let registered = cards.into_iter().find(|card| card.get(4).is_some_and(|kind| kind.ends_with("T4")))?[2].parse();
    let inventory: Value = serde_json::from_str(annotation(keys::INVENTORY)?).ok()?;
    let card =
        inventory["devices"].as_array()?.iter().find(|d| d["model"].as_str().is_some_and(|m| m.ends_with("T4")))?;
    Some((registered.ok()?, card["bookableMemory"].as_u64()? >> 20))
}

#[test]
fn fp_11_a_card_is_promised_as_often_as_the_policy_says_and_what_runs_stays_when_it_says_less() {
    let ground = ground();
    let kubectl = ground.namespace("twice");
    let admin = ground.site.cluster.admin();
    let policy = |devices: Value| {
        let object = json!({"apiVersion": "divvy.dev/v1alpha1", "kind": "GpuPolicy", "metadata": {"name": "default"},
            "spec": {"devices": devices}});
        admin.apply(&object.to_string()).unwrap();
    };
    let offers = |mib: u64| {
        let as_said = |node: &Value| t4_offered(node) == Some((mib, mib));
        admin.wait("node", "node-0", SOON, as_said).unwrap_or_else(|e| panic!("{e:#}\n{}", ground.site.agent_log()));
    };
    let asker = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": {"nvidia.com/use-gputype": "T4"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{
                "name": "main", "image": IMAGES[0], "imagePullPolicy": "IfNotPresent", "command": ["sleep", "3600"],
                "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10000", "nvidia.com/gpucores": "70"}}}]},
        })
    };
    offers(15360);
    kubectl.apply(&asker("first").to_string()).unwrap();
    ground.wait_running(&kubectl, "first");
    let environment = |pod: &str| kubectl.say(&["exec", pod, "--", "env"]).unwrap();
    assert!(!environment("first").contains("CUDA_OVERSUBSCRIBE"), "{}", environment("first"));
    kubectl.apply(&asker("second").to_string()).unwrap();
    let waits = |pod: &Value| pod["status"]["conditions"][0]["reason"] == "Unschedulable";
    kubectl.wait("pod", "second", SOON, waits).unwrap();

    policy(json!({"memoryOversubscription": 1800, "shareOversubscription": 1500}));
    offers(27648);
    ground.wait_running(&kubectl, "second");
    assert!(environment("second").contains("CUDA_OVERSUBSCRIBE=true\n"), "{}", environment("second"));
    // Each sees all it was promised. The card gives what it has, to who asks first, and says so as a full card does.
    let mut first = ground.site.session(&kubectl, "first");
    let mut second = ground.site.session(&kubectl, "second");
    for program in [&mut first, &mut second] {
        assert_eq!(program.tell("ctx 0"), "ok");
        assert!(program.tell("info").ends_with(&format!(" {}", 10000u64 << 20)));
    }
    let nine = format!("alloc {}", 9000u64 << 20);
    assert!(first.tell(&nine).starts_with("ok "));
    assert_eq!(second.tell(&nine), "error 2", "the card is full");
    drop(first);
    eventually("what the first had is the second's", SOON, || {
        let said = second.tell(&nine);
        anyhow::ensure!(said.starts_with("ok "), "{said}");
        Ok(())
    })
    .unwrap();
    drop(second);
    // Seventy twice are one hundred and forty: each has half.
    let loads = [("first", 100), ("second", 200)].map(|(pod, mark)| Load { pod, container: "main", mark });
    let halves = |shares: &[f64]| {
        let good = shares.iter().all(|share| (share - 50.0).abs() <= 5.0);
        good.then_some(()).ok_or_else(|| format!("{shares:.1?} for halves"))
    };
    under_load(&kubectl, &ground.site, &loads, || await_shares("halves", &ground.site, &loads, halves));

    policy(json!({"memoryOversubscription": 1800, "byNode": {"node-0": {"memoryOversubscription": 500}}}));
    offers(7680);
    kubectl.apply(&asker("third").to_string()).unwrap();
    kubectl.wait("pod", "third", SOON, waits).unwrap();
    admin.say(&["delete", "gpupolicy", "default"]).unwrap();
    offers(15360);
    for pod in ["first", "second"] {
        let now = kubectl.get("pod", pod).unwrap();
        assert_eq!((&now["status"]["phase"], &now["metadata"]["deletionTimestamp"]), (&json!("Running"), &Value::Null));
    }
    kubectl.say(&["delete", "pods", "--all", "--grace-period=1", "--wait=false"]).unwrap();
}

#[test]
fn fp_26_a_part_of_an_mlu_goes_through_scheduler_and_node_into_the_container() {
    let ground = ground();
    let kubectl = ground.namespace("mlu");
    let file = ground::file("examples/vgpu/mlu.yaml");
    kubectl.say(&["apply", "-f", &file.display().to_string()]).unwrap();
    let running = ground.wait_running(&kubectl, "mlu");
    let slice = ground::grant(&running).containers[0].slices[0].clone();
    assert!(slice.device.as_str().starts_with("MLU-"), "{slice:?}");
    assert_eq!(slice.memory.0, 10 << 30);
    let say = |words: &[&str]| kubectl.say(&[&["exec", "mlu", "--"], words].concat()).unwrap();
    let env = say(&["env"]);
    assert!(env.contains("CAMBRICON_SPLIT_ENABLE=1\n") && env.contains("CAMBRICON_SPLIT_MEMS=10\n"), "{env}");
    assert!(env.contains("NVIDIA_VISIBLE_DEVICES=void\n"), "{env}");
    let devices = say(&["ls", "/dev"]);
    assert_eq!(devices.matches("cambricon_dev").count(), 1, "{devices}");
    assert!(devices.contains("cambricon_ctl"), "{devices}");
    kubectl.say(&["delete", "pod", "mlu", "--grace-period=1", "--wait=false"]).unwrap();
}

#[test]
fn the_manifests_of_every_dialects_users_run_and_are_held_to_their_grants() {
    let ground = ground();
    let kubectl = ground.namespace("dialects");
    for example in &EXAMPLES {
        let file = ground::file("examples").join(example.file);
        kubectl.say(&["apply", "-f", &file.display().to_string()]).unwrap();
    }
    let mut granted_shares = Vec::new();
    for example in &EXAMPLES {
        let running = ground.wait_running(&kubectl, example.pod);
        let (name, value) = example.variable;
        let environment = kubectl.say(&["exec", example.pod, "-c", example.container, "--", "env"]).unwrap();
        assert!(environment.contains(&format!("{name}={value}\n")), "{}: {environment}", example.file);
        let grant = ground::grant(&running);
        let slice = &grant.containers[0].slices[0];
        granted_shares.push((f64::from(slice.share.0) / 10.0, f64::from(slice.share_limit.0) / 10.0));
        let granted = ground::devices(&grant).join(",");
        assert!(
            environment.contains(&format!("NVIDIA_VISIBLE_DEVICES={granted}\n")),
            "{}: {environment}",
            example.file
        );
        if example.memory > 0 {
            let over = (example.memory << 20) + 1;
            let commands = format!("ctx 0\ninfo\nalloc {over}\nalloc 1048576\nquit\n");
            let said = tenant(&kubectl, example.pod, example.container, &commands);
            let total = format!(" {}", example.memory << 20);
            assert!(said[1].ends_with(&total), "{}: {said:?}", example.file);
            assert_eq!(said[2], "error 2", "{}: {said:?}", example.file);
            assert!(said[3].starts_with("ok "), "{}: {said:?}", example.file);
        }
    }
    let load =
        |(n, e): (usize, &'static Example)| Load { pod: e.pod, container: e.container, mark: 100 + 10 * n as u64 };
    let loads: Vec<Load<'_>> = EXAMPLES.iter().enumerate().map(load).collect();
    let held = |shares: &[f64]| {
        let wrong = |((example, share), (request, limit)): ((&Example, &f64), &(f64, f64))| {
            let good = (request - 5.0..=limit + 5.0).contains(share);
            (!good).then(|| format!("{}: {share:.1} points for {request} to {limit}", example.file))
        };
        let wrong: Vec<String> = EXAMPLES.iter().zip(shares).zip(&granted_shares).filter_map(wrong).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
    };
    under_load(&kubectl, &ground.site, &loads, || await_shares("each its share", &ground.site, &loads, held));
    let pods: Vec<Value> = kubectl.list("pods").unwrap();
    assert!(pods.iter().all(|p| p["status"]["phase"] == "Running"), "{}", json!(pods));
    kubectl.say(&["delete", "-f", &ground::file("examples/gpushare/binpack.yaml").display().to_string()]).unwrap();
    kubectl.say(&["delete", "pods", "--all", "--grace-period=1", "--wait=false"]).unwrap();
}
