"""What the library costs: a program that is alone, a launch, and a boundary between two chunks."""
import os
import statistics
import subprocess
import time

from figures import rate_of, surely
from tenants import HERE, LIBRARY

TURNS = 10  # of each process, native and held, one after the other
LAUNCH_RUNS, BOUNDARY_RUNS = 15, 5  # processes, each of many pairs of its own


def overhead(stage, kind, seconds=6):
    """Native and held in turns, so that clocks and temperature are the same for both, in several processes of each: one may be faster
    than the next by a fiftieth for good, with or without the library, and a pair of them tells of the processes."""
    case = f"overhead {kind}"

    def what():
        stage.arbiter.set({tenant.name: (250, 1000) for tenant in stage.held})
        everybody, fastest = [t for pair in zip(stage.held, stage.free) for t in pair], {}
        speeds = {tenant: [] for tenant in everybody}
        for tenant in everybody:
            tenant.prepare(kind)
        for turn in range(TURNS):
            rates = {}
            for tenant in everybody[::1 if turn % 2 else -1]:
                tenant.tell({"run": kind, "at": time.monotonic() + 0.02, "seconds": 2 * seconds / TURNS / len(everybody)})
                said = tenant.hear(30)
                rates[tenant], fastest[tenant] = rate_of(said), min(said["fastest"], fastest.get(tenant, said["fastest"]))
            for tenant, rate in rates.items():
                speeds[tenant].append(rate / statistics.mean(rates.values()))
        held, free = ([statistics.median(speeds[t]) for t in tenants] for tenants in (stage.held, stage.free))
        less = 100 * (1 - statistics.mean(held) / statistics.mean(free))
        # Twice and a half the error of the difference of the two means: 95 of 100 cases, with so few processes.
        sure = 2.5 * 100 * sum(statistics.variance(way) / len(way) for way in (held, free)) ** 0.5
        best = 100 * (1 - min(fastest[t] for t in stage.free) / min(fastest[t] for t in stage.held))
        told = (f"{less:+.2f} % in {len(held)} processes each way, surely {less - sure:+.2f} to {less + sure:+.2f}; native ones differ by"
                f" {100 * (max(free) / min(free) - 1):.2f} %; the fastest iterations of all {best:+.2f} %")
        stage.book.add(case, told, "<= 1 %", less - sure <= 1.0)

    stage.trial(case, 2 * seconds + TURNS * 0.4, what)


def launch_cost(stage):
    case = "launch cost"

    def what():
        program = "/tmp/divvy-gpu-launch"
        subprocess.run(["cc", "-std=gnu11", "-O2", "-o", program, os.path.join(HERE, "../c/launch.c"), "-ldl", "-lpthread"], check=True)
        own_core = lambda: os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        held = {"LD_PRELOAD": LIBRARY, "DIVVY_DIR": os.path.join(stage.arbiter.folder, "a")}

        def measure(env):
            out = subprocess.run([program], env={**os.environ, **env}, capture_output=True, text=True, timeout=60, preexec_fn=own_core)
            words = out.stdout.split()
            return dict(zip(words[::2], map(float, words[1::2])))

        # Without the library both halves of a pair are the driver's: what this says is how exact the others are.
        ways = [("without the library", None), ("alone and unlimited", (500, 1000)), ("limited", (500, 999))]
        runs = {label: [] for label, _ in ways}
        for _ in range(LAUNCH_RUNS):
            for label, shares in ways:  # in turns, for what a machine does to a process it does for a while
                if shares:
                    stage.arbiter.set({"a": shares})
                    time.sleep(0.3)
                runs[label].append(measure(held if shares else {}))
        for label, shares in ways:
            said = runs[label]
            more, least, most = surely([run["more"] for run in said])
            told = (f"{more:+.1f} ns in the median of {LAUNCH_RUNS} processes, surely {least:+.1f} to {most:+.1f};"
                    f" {statistics.median(run['native'] for run in said):.0f} native")
            # Who is left out on one side only is no boundary: the library made it slow.
            quick = all(run["library"] == 1 and run["quick"] > run["native-quick"] - 0.1 for run in said)
            stage.book.add(f"{case}, {label}", told, *(("<= 25 ns between boundaries", quick and more <= 25) if shares else ()))

    stage.trial(case, 4 * LAUNCH_RUNS, what)


def boundary_cost(stage):
    case = "boundary cost"

    def what():
        program = "/tmp/divvy-gpu-boundary"
        subprocess.run(["cc", "-std=gnu11", "-O2", "-o", program, os.path.join(HERE, "../c/boundary.c"), "-ldl", "-lpthread"], check=True)
        runs = []
        for _ in range(BOUNDARY_RUNS):
            words = subprocess.run([program], capture_output=True, text=True, timeout=60).stdout.split()
            runs.append([float(us) for us in words[1:3] + words[4:6]])
        each = list(zip(*runs))
        alone_gpu, alone_cpu, beside_gpu, beside_cpu = middle = [statistics.median(us) for us in each]
        told = (f"{alone_gpu:.2f} us of the GPU and {alone_cpu:.1f} of the CPU; beside somebody who waits {beside_gpu:.2f} and {beside_cpu:.1f};"
                f" medians of {BOUNDARY_RUNS} processes, of the GPU from {min(each[0] + each[2]):.2f} to {max(each[0] + each[2]):.2f}")
        stage.book.add(case, told, "<= 3 us of each", max(middle) <= 3.0)

    stage.trial(case, 3 * BOUNDARY_RUNS, what)
