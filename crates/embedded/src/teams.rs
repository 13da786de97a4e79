//! Who submits what: made-up teams, each writing manifests the way its last cluster taught it to.

use divvy_core::keys;
use serde_json::{Map, Value, json};

use crate::random::Random;

/// Work that somebody submits: one pod or several, and how long each runs.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) pods: Vec<Value>,
    /// Seconds of work per pod.
    pub(crate) seconds: u64,
    /// What each would use of a card if it were alone, in thousandths.
    pub(crate) appetite: u32,
    /// Part of its memory it really uses, in thousandths.
    pub(crate) fill: u32,
}

/// A team and its habits.
pub(crate) struct Team {
    pub(crate) namespace: &'static str,
    /// Jobs in a busy hour on the fleet of 24 nodes.
    pub(crate) per_hour: f64,
    /// GPU hours the team may spend a day, on that fleet.
    pub(crate) gpu_hours: Option<i64>,
    pub(crate) job: fn(&mut Random) -> Job,
}

/// All teams.
pub(crate) const TEAMS: &[Team] = &[
    Team { namespace: "search", per_hour: 26.0, gpu_hours: Some(700), job: ranker },
    Team { namespace: "speech", per_hour: 20.0, gpu_hours: None, job: transcription },
    Team { namespace: "vision", per_hour: 18.0, gpu_hours: Some(400), job: vision },
    Team { namespace: "robotics", per_hour: 14.0, gpu_hours: None, job: simulation },
    Team { namespace: "genomics", per_hour: 3.0, gpu_hours: None, job: alignment },
    Team { namespace: "llm", per_hour: 3.5, gpu_hours: Some(1_500), job: llm },
    Team { namespace: "notebooks", per_hour: 16.0, gpu_hours: None, job: notebook },
    Team { namespace: "quant", per_hour: 12.0, gpu_hours: Some(24), job: backtest },
    Team { namespace: "sweeps", per_hour: 30.0, gpu_hours: Some(300), job: sweep },
];

/// How busy people are at an hour of the day, in a busy hour's terms.
pub(crate) fn load(hour: f64) -> f64 {
    const BY_HOUR: [f64; 25] = [
        0.35, 0.3, 0.25, 0.25, 0.25, 0.3, 0.4, 0.6, 0.85, 1.0, 1.05, 1.05, 0.9, 0.95, 1.1, 1.1, 1.0, 0.9, 0.75, 0.65,
        0.6, 0.55, 0.45, 0.4, 0.35,
    ];
    let (low, part) = (hour.floor() as usize % 24, hour.fract());
    BY_HOUR[low] * (1.0 - part) + BY_HOUR[low + 1] * part
}

struct Words<'a> {
    namespace: &'a str,
    name: &'a str,
    labels: Value,
    annotations: Value,
    limits: Map<String, Value>,
    spec: Value,
}

impl<'a> Words<'a> {
    fn new(namespace: &'a str, name: &'a str) -> Words<'a> {
        Words { namespace, name, labels: json!({}), annotations: json!({}), limits: Map::new(), spec: json!({}) }
    }

    fn limit(mut self, name: &str, amount: impl ToString) -> Words<'a> {
        self.limits.insert(name.to_owned(), json!(amount.to_string()));
        self
    }

    fn label(mut self, name: &str, value: impl ToString) -> Words<'a> {
        self.labels[name] = json!(value.to_string());
        self
    }

    fn annotate(mut self, name: &str, value: impl ToString) -> Words<'a> {
        self.annotations[name] = json!(value.to_string());
        self
    }

    fn spec(mut self, field: &str, value: &str) -> Words<'a> {
        self.spec[field] = json!(value);
        self
    }

    fn pod(self, cpu: u32) -> Value {
        let mut spec = self.spec;
        let requests = json!({"cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4)});
        spec["containers"] =
            json!([{"name": "main", "image": "example", "resources": {"limits": self.limits, "requests": requests}}]);
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": format!("{}-", self.name), "namespace": self.namespace,
                         "labels": self.labels, "annotations": self.annotations},
            "spec": spec,
        })
    }
}

/// Online ranking, written for 4paradigm's vGPU scheduler.
fn ranker(random: &mut Random) -> Job {
    let (memory, cores) = *random.pick(&[(4000, 20), (6000, 25), (8000, 30), (12000, 40)]);
    let words = Words::new("search", "ranker")
        .limit(keys::VGPU_COUNT, 1)
        .limit(keys::VGPU_MEMORY, memory)
        .limit(keys::VGPU_CORES, cores)
        .spec("priorityClassName", "production");
    let replicas = random.between(1, 4) as usize;
    Job {
        pods: vec![words.pod(2); replicas],
        seconds: random.between(2_400, 9_000),
        appetite: random.between(100, 500) as u32,
        fill: random.between(700, 950) as u32,
    }
}

/// Speech to text, written for Aliyun's gpushare: memory only.
fn transcription(random: &mut Random) -> Job {
    let words = Words::new("speech", "transcribe").limit(keys::GPUSHARE_MEMORY, random.pick(&[3, 5, 7, 10, 14]));
    Job {
        pods: vec![words.pod(2); random.between(1, 3) as usize],
        seconds: random.between(1_200, 5_400),
        appetite: random.between(200, 700) as u32,
        fill: random.between(500, 950) as u32,
    }
}

/// Training of vision models, written for KubeShare; some as a group that starts together.
fn vision(random: &mut Random) -> Job {
    let (request, limit) = *random.pick(&[("0.3", "0.6"), ("0.5", "1.0"), ("0.25", "0.5"), ("0.7", "1.0")]);
    let group = random.between(0, 3) == 0;
    let mut words = Words::new("vision", if group { "detector" } else { "classify" })
        .label(keys::KUBESHARE_REQUEST, request)
        .label(keys::KUBESHARE_LIMIT, limit)
        .label(keys::KUBESHARE_PRIORITY, random.pick(&[0, 50, 50, 100]))
        .spec("schedulerName", keys::SCHEDULER_ALIASES[0]);
    let mut members = 1;
    if group {
        members = random.between(3, 5);
        words = words
            .label(keys::KUBESHARE_GROUP, format!("g{}", random.between(1, 99_999)))
            .label(keys::KUBESHARE_HEADCOUNT, members)
            .label(keys::KUBESHARE_THRESHOLD, "1.0");
    }
    Job {
        pods: vec![words.pod(4); members as usize],
        seconds: random.between(1_500, 6_000),
        appetite: random.between(700, 1000) as u32,
        fill: random.between(600, 950) as u32,
    }
}

/// Robots in simulation, written for gpu-manager: hundredths of a card, memory in blocks of 256 MiB.
fn simulation(random: &mut Random) -> Job {
    let core = *random.pick(&[10, 20, 30, 50, 80]);
    let mut words = Words::new("robotics", "gym")
        .limit(keys::VCUDA_CORE, core)
        .limit(keys::VCUDA_MEMORY, random.pick(&[8, 16, 24, 40, 56]));
    if random.between(0, 2) == 0 {
        words = words.annotate(keys::VCUDA_CORE_LIMIT, core + 20);
    }
    Job {
        pods: vec![words.pod(3); random.between(1, 4) as usize],
        seconds: random.between(600, 3_600),
        appetite: random.between(400, 1000) as u32,
        fill: random.between(300, 900) as u32,
    }
}

/// Sequence alignment on pairs of cards, written for KubeGPU.
fn alignment(random: &mut Random) -> Job {
    let mut requests = Map::new();
    for card in 0..2 {
        let place = format!("{}/gpugrp1/A/gpugrp0/A/gpu/{card}", keys::KUBEGPU_GROUP);
        requests.insert(format!("{place}/cards"), json!(1));
        requests.insert(format!("{place}/memory"), json!(12u64 << 30));
    }
    let device_info =
        json!({"requests": {(keys::KUBEGPU_TOPOLOGY): 0}, "runningcontainer": {"main": {"requests": requests}}});
    let words =
        Words::new("genomics", "align").annotate(keys::KUBEGPU_DEVICE_INFO, device_info).limit(keys::VGPU_COUNT, 2);
    Job {
        pods: vec![words.pod(8)],
        seconds: random.between(2_400, 7_200),
        appetite: random.between(500, 950) as u32,
        fill: 900,
    }
}

/// Language models: gangs of whole nodes, and servers with a part of a card. The one team that writes our own dialect and means it.
fn llm(random: &mut Random) -> Job {
    if random.between(0, 2) == 0 {
        let words = Words::new("llm", "chat")
            .limit(keys::GPU_MEMORY, "48Gi")
            .limit(keys::GPU_SHARE, 400)
            .annotate(keys::GPU_SHARE_LIMIT, 700)
            .annotate(keys::GPU_MODEL, "H200,A100")
            .spec("priorityClassName", "production");
        return Job {
            pods: vec![words.pod(8); random.between(2, 6) as usize],
            seconds: random.between(6_000, 15_000),
            appetite: random.between(300, 800) as u32,
            fill: 920,
        };
    }
    let (members, seconds) = (*random.pick(&[2u64, 2, 3, 4]), random.between(3_600, 10_800));
    let cards = *random.pick(&[4, 8, 8]);
    let words = Words::new("llm", "pretrain")
        .limit(keys::GPU, cards)
        .annotate(keys::GPU_MODEL, random.pick(&["H200", "H200", "A100"]))
        .annotate(keys::TOPOLOGY, "nvlink")
        .annotate(keys::GANG, format!("run-{}", random.between(100, 99_999)))
        .annotate(keys::GANG_SIZE, members)
        .annotate(keys::EXPECTED_DURATION, format!("{seconds}s"))
        .spec("priorityClassName", "research");
    Job {
        pods: vec![words.pod(cards * 8); members as usize],
        seconds,
        appetite: random.between(850, 1000) as u32,
        fill: 950,
    }
}

/// People who look at things: opportunistic, mostly idle.
fn notebook(random: &mut Random) -> Job {
    let words = Words::new("notebooks", "jupyter")
        .limit(keys::GPU_MEMORY, format!("{}Gi", random.pick(&[4, 6, 8, 12])))
        .annotate(keys::CLASS, "opportunistic");
    Job {
        pods: vec![words.pod(2)],
        seconds: random.between(3_600, 14_400),
        appetite: *random.pick(&[5, 20, 50, 300]),
        fill: random.between(100, 700) as u32,
    }
}

/// Backtests: more than the team's budget lasts for.
fn backtest(random: &mut Random) -> Job {
    let words = Words::new("quant", "backtest")
        .limit(keys::GPU_MEMORY, "10Gi")
        .limit(keys::GPU_SHARE, 500)
        .annotate(keys::EXPECTED_DURATION, "45m");
    Job {
        pods: vec![words.pod(4); random.between(2, 6) as usize],
        seconds: random.between(1_800, 3_600),
        appetite: random.between(800, 1000) as u32,
        fill: 850,
    }
}

/// Parameter sweeps on whole cards nobody needs: they fill the gaps and make room.
fn sweep(random: &mut Random) -> Job {
    let words = Words::new("sweeps", "trial")
        .limit(keys::GPU, 1)
        .annotate(keys::CLASS, "opportunistic")
        .annotate(keys::EXPECTED_DURATION, "1h");
    Job {
        pods: vec![words.pod(6); random.between(2, 6) as usize],
        seconds: random.between(1_800, 5_400),
        appetite: random.between(900, 1000) as u32,
        fill: 900,
    }
}

/// A manifest with mistakes in it, as everybody writes one now and then.
pub(crate) fn mistaken(random: &mut Random) -> Value {
    let words = Words::new("quant", "typo");
    match random.between(0, 2) {
        0 => words.limit(keys::GPU_SHARE, 1500).limit(keys::GPU_MEMORY, "8 GB").pod(2),
        1 => words.label(keys::KUBESHARE_REQUEST, "0.8").label(keys::KUBESHARE_LIMIT, "0.5").pod(2),
        _ => words.limit(keys::VCUDA_CORE, 150).limit(keys::GPU, 1).pod(2),
    }
}
