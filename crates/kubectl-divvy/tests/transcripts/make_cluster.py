"""Writes cluster.json, the cluster that the transcripts are about: python3 make_cluster.py"""

import json
import pathlib

GiB = 1 << 30
NOW = 1_794_830_400_000  # 2026-11-16T12:00:00Z
HOUR = 3_600_000


def gpu(node, index, model, gib, **more):
    return {"id": f"GPU-{node}-{index}", "index": index, "model": model, "memory": gib * GiB, "numa": index // 2,
            "isolation": ["intercept"], **more}


def node(name, devices, **more):
    inventory = {"v": 1, "generation": 7, "devices": devices}
    if devices:
        inventory |= {"agent": "0.1.0", "driver": "570.124.06"}
    return {"name": name, "allocatable": {"cpu": 64000, "memory": 512 * GiB, "other": {"divvy.dev/slot": 64}},
            "inventory": inventory, **more}


def piece(device, gib, share, **more):
    return {"device": device, "memory": gib * GiB, "memoryLimit": gib * GiB, "share": share, "shareLimit": 1000,
            "isolation": "intercept", **more}


def want(count=1, gib=None, share=0, **more):
    memory = {"bytes": gib * GiB} if gib else "nothing"
    return {"count": count, "memory": memory, "share": share, "shareLimit": 1000, **more}


def pod(namespace, name, wants, hours, on=None, pieces=(), dialect="native", **ask):
    container = {"name": "main"}
    state = {"state": "waiting"}
    if on:
        grant = {"v": 1, "at": NOW - hours * HOUR, "policy": "frag", "containers": [container | {"slices": list(pieces)}]}
        state = {"state": "bound", "node": on, "since": NOW - hours * HOUR, "grant": grant, "initDone": True}
    return {"uid": f"uid-{namespace}-{name}", "key": {"namespace": namespace, "name": name},
            "created": NOW - hours * HOUR, "state": state,
            "ask": {"v": 1, "dialect": dialect, "containers": [container | {"wants": wants}], **ask}}


whole = {"memory": {"part": 1000}, "share": 1000, "exclusive": True}
nodes = [
    node("gpu-a", [gpu("a", 0, "NVIDIA-H200", 140), gpu("a", 1, "NVIDIA-H200", 140)]),
    node("gpu-b", [gpu("b", i, "NVIDIA-A100-SXM4-40GB", 40) for i in range(4)]),
    node("gpu-c", [
        gpu("c", 0, "Tesla-T4", 15, health={"state": "unhealthy", "reason": "XID 79: fell off the bus"}),
        gpu("c", 1, "Tesla-T4", 15, cordoned=True),
    ]),
    node("cpu-1", []),
]
pods = [
    pod("default", "notebook", [want(gib=20, share=300)], 3, "gpu-a", [piece("GPU-a-0", 20, 300)]),
    pod("default", "serving", [want(gib=60, share=500)], 30, "gpu-a", [piece("GPU-a-0", 60, 500)]),
    pod("team-a", "train", [want(2, **whole)], 7, "gpu-b",
        [piece(f"GPU-b-{i}", 40, 1000, exclusive=True) for i in (0, 1)]),
    pod("team-a", "legacy", [{"count": 1, "memory": {"nodeUnits": 8}, "shareLimit": 1000}], 1, "gpu-b",
        [piece("GPU-b-2", 8, 0)], dialect="gpushare"),
    pod("team-b", "four-h200", [want(4, **whole)], 2, models={"only": [{"part": "h200"}]}),
    pod("team-b", "huge", [want(gib=200)], 1),
    pod("team-b", "small", [want(gib=10, share=200)], 0),
    pod("team-c", "worker-0", [want(share=1000, gib=10)], 1, gang={"name": "ring", "size": 3, "min": 3}),
]
facts = {
    "server": "v1.36.3",
    "admission": "answers",
    "grantsGuarded": True,
    "leader": ["divvy-7d9c5", 3],
    "nodes": {n["name"]: {"kubelet": "v1.36.3", "runtime": "containerd://2.4.2", "platform": "linux/amd64",
                          "slots": 64 if n["inventory"]["devices"] else 0, "clockAhead": 8,
                          "saysGpu": bool(n["inventory"]["devices"])} for n in nodes},
    "daemonSets": {"divvy-system/divvy-agent": ["divvy-agent:0.1.0"],
                   "kube-system/nvdp": ["nvcr.io/nvidia/k8s-device-plugin:v0.17.0"]},
}
budgets = [
    {"metadata": {"namespace": "team-a", "name": "gpu"},
     "status": {"state": "InBudget", "left": "41h", "total": "100h", "perHour": "2h", "empty": "Tue 08:30", "renews": "2026-12-01",
                "pods": 2, "spent": "59h", "message": "2 pods run"}},
    {"metadata": {"namespace": "team-b", "name": "gpu"},
     "status": {"state": "Exhausted", "left": "0m", "total": "20h", "perHour": "0m", "empty": "now", "renews": "2026-12-01", "pods": 0,
                "spent": "20h"}},
    {"metadata": {"name": "everybody"}},
]
quotas = [
    {"metadata": {"namespace": "team-a", "name": "limits"},
     "spec": {"limits": [{"devices": 3, "share": 4000}, {"model": "H200", "memory": "100Gi"}]}},
]
cluster = {
    "v": 1,
    "takenAt": NOW,
    # What changes from release to release is left out: the transcripts are about the words, not about the default policy.
    "policy": {"placement": {"name": "binpack"}, "queue": {"reserveAfter": 0}, "defragment": {"propose": False}},
    "cluster": {"v": 1, "nodes": nodes, "pods": pods},
    "nodes": {name: {"address": f"10.0.0.{i}"} for i, name in enumerate(["gpu-a", "gpu-b", "gpu-c"], 1)},
    "facts": facts,
    "budgets": budgets,
    "quotas": quotas,
}
path = pathlib.Path(__file__).with_name("cluster.json")
path.write_text(json.dumps(cluster, indent=1) + "\n")
