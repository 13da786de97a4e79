"""Stage 2: memory. Every way to allocate at its limit, frameworks that size themselves by it, processes that are killed, and tools
that should show the slice. Everything runs in one container of 10 GiB that `divvy-agent arbiter` made."""
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import nvml
from tenants import AGENT, HERE, KIT, LIBRARY

GIB = 1 << 30
LIMIT = 10 * GIB
FOLDER = "/dev/shm/divvy-gpu-memory"
C = os.path.join(HERE, "..", "c")


class Stage:
    def __init__(self, book, deadline, only):
        self.book, self.deadline, self.only = book, deadline, only
        self.card = nvml.Card()
        shutil.rmtree(FOLDER, ignore_errors=True)
        os.makedirs(FOLDER)
        self.log = open("/tmp/divvy-gpu-memory.log", "a")
        self.agent = subprocess.Popen([AGENT, "arbiter", "--dir", FOLDER, "--tenants", "a=1000/1000 b=1000/1000", "--device", self.card.uuid(),
                                       "--memory", str(LIMIT), "--keeper"], stdout=subprocess.PIPE, stderr=self.log, text=True,
                                      start_new_session=True)
        if "ready" not in self.agent.stdout.readline():
            sys.exit("the agent does not start; see /tmp/divvy-gpu-memory.log")

    def end(self):
        self.agent.send_signal(signal.SIGTERM)
        try:
            self.agent.wait(5)
        except subprocess.TimeoutExpired:
            self.agent.kill()
        shutil.rmtree(FOLDER, ignore_errors=True)  # the keeper ends with it

    def inside(self, **more):
        """The environment of the container."""
        own = {"LD_PRELOAD": LIBRARY, "DIVVY_DIR": os.path.join(FOLDER, "a"), "DIVVY_TEST_SETTLE": os.environ.get("SETTLE", "2.5")}
        return os.environ | own | more

    def trial(self, case, seconds, what):
        if self.book.has(case) or (self.only and not any(word in case for word in self.only)):
            return
        if time.monotonic() + seconds > self.deadline:
            print(f"   left out for lack of time: {case}", flush=True)
            return
        print(f"-- {case}", flush=True)
        try:
            measured, promised, holds = what()
        except Exception as error:
            measured, promised, holds = f"{type(error).__name__}: {error}", "", False
        self.book.add(case, measured, promised, holds)

    def said(self, command, seconds=120, env=None):
        done = subprocess.run(command, env=env or self.inside(), capture_output=True, text=True, timeout=seconds)
        return done.returncode, done.stdout + done.stderr

    def compiled(self, name):
        out = os.path.join(KIT, "c-" + name)
        source = os.path.join(C, name + ".c")
        if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(source):
            subprocess.run(["cc", "-std=gnu11", "-O2", "-o", out, source, "-ldl", "-lpthread"], check=True)
        return out

    # --- the cases

    def kit(self, name, arguments=(), seconds=60):
        def what():
            status, said = self.said([self.compiled(name), *arguments], seconds)
            last = said.strip().splitlines()[-1] if said.strip() else f"ended with {status}"
            wrong = [line for line in said.splitlines() if line.startswith("wrong")]
            return " | ".join([last, *wrong[:3]]), "0 wrong", status == 0
        self.trial(f"kit: {name}", seconds, what)

    def framework(self, name, script, promised, judge, seconds=90, **env):
        def what():
            status, said = self.said([sys.executable, os.path.join(HERE, "frameworks.py"), script], seconds, self.inside(**env))
            facts = dict(re.findall(r"^(\w+)=(.*)$", said, re.M))
            if "missing" in facts:
                return f"{facts['missing']} is not installed", promised, None
            if status != 0 or not facts:
                return f"ended with {status}: {said.strip()[-200:]}", promised, False
            return " ".join(f"{k}={v}" for k, v in facts.items()), promised, judge(facts)
        self.trial(f"framework: {name}", seconds, what)

    def storm(self):
        def what():
            program, env = self.compiled("storm"), self.inside(DIVVY_TEST_SETTLE="0")
            running = [subprocess.Popen([program, "60"], env=env, stdout=subprocess.DEVNULL) for _ in range(4)]
            most = 0
            try:
                time.sleep(3)
                for round in range(40):
                    victim = round % len(running)
                    running[victim].kill()
                    running[victim].wait()
                    running[victim] = subprocess.Popen([program, "60"], env=env, stdout=subprocess.DEVNULL)
                    time.sleep(0.25)
                    pids = {p.pid for p in running}
                    most = max(most, sum(used for pid, used in self.card.processes().items() if pid in pids))
            finally:
                for process in running:
                    process.kill()
                    process.wait()
            time.sleep(2)
            status, said = self.said([self.compiled("limit"), "plain"])
            whole = status == 0
            contexts = 4 * 600 * (1 << 20)
            return f"most {most / GIB:.2f} GiB on the card; afterwards: {said.strip().splitlines()[-1]}", "<= limit + contexts, all free after", \
                most <= LIMIT + contexts and whole
        self.trial("40 kills in an allocation storm of four", 60, what)

    def crowd(self):
        def what():
            program, env, count = self.compiled("crowd"), self.inside(DIVVY_TEST_SETTLE="0"), int(os.environ.get("CROWD", "100"))
            begun = time.monotonic()
            running = [subprocess.Popen([program], env=env, stdout=subprocess.PIPE, text=True) for _ in range(count)]
            said = [process.communicate()[0].split() for process in running]
            good = sum(words[:1] == ["0"] for words in said)
            refused = sum(words[:1] == ["2"] for words in said)
            return f"{good} got memory, {refused} were refused, {time.monotonic() - begun:.1f} s in all", "each answered", good + refused == count and good > 0
        self.trial("a crowd that starts at once", 90, what)

    def cost(self):
        def what():
            program = self.compiled("cost")
            rows = [{}, {}]
            for _ in range(3):  # in turns, and the best of each: a machine has worse moments
                for best, env in zip(rows, (dict(os.environ), None)):
                    for line in self.said([program, "100"], 100, env)[1].splitlines():
                        if "\t" in line:
                            name, took = line.split("\t")
                            best[name] = min(float(took), best.get(name, float("inf")))
            both = [k for k in rows[0] if k in rows[1]]
            told = ", ".join(f"{k} {rows[0][k] / 1000:.2f} -> {rows[1][k] / 1000:.2f}" for k in both)
            launch = rows[1]["launch"] <= 1.05 * rows[0]["launch"] + 100
            return told, "us per call, launch within 5 % + 0.1 us", launch
        self.trial("cost of single calls", 90, what)

    def audit(self):
        """A program without the library beside one with it, under an agent that compares the card's list of processes with its books."""
        def what():
            folder = FOLDER + "-audit"
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            agent = subprocess.Popen([AGENT, "arbiter", "--dir", folder, "--tenants", "a=1000/1000", "--device", self.card.uuid(), "--memory",
                                      str(LIMIT), "--audit"], stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True)
            found, running = [], []
            try:
                if "ready" not in agent.stdout.readline():
                    raise RuntimeError("the agent does not start; see /tmp/divvy-gpu-memory.log")
                reader = threading.Thread(target=lambda: found.extend((time.monotonic(), line) for line in agent.stdout if "finding" in line), daemon=True)
                reader.start()
                for env in (self.inside(DIVVY_DIR=os.path.join(folder, "a")), dict(os.environ)):
                    running.append(subprocess.Popen([self.compiled("load"), "1000", "30"], env=env, stdout=subprocess.PIPE, text=True))
                    running[-1].stdout.readline()
                begun = time.monotonic()
                honest, stranger = (f'"pid":{process.pid}}}' for process in running)
                while time.monotonic() < begun + 10 and not any(stranger in line for _, line in found):
                    time.sleep(0.05)
                took = next((at - begun for at, line in found if stranger in line), None)
                time.sleep(2)  # the other one would have been accused by now
                accused = any(honest in line for _, line in found)
            finally:
                for process in running:
                    process.kill()
                    process.wait()
                agent.terminate()
                agent.wait(10)
                shutil.rmtree(folder, ignore_errors=True)
            told = "never told" if took is None else f"told after {took:.2f} s"
            return f"{told}, the honest one {'accused' if accused else 'left alone'}", "within 2 s, and nobody else", took is not None and took <= 2 and not accused
        self.trial("a program without the library is told", 40, what)

    def tools(self):
        def smi():
            status, said = self.said(["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"])
            total = int(said.split(",")[0]) if status == 0 else -1
            return said.strip(), "total 10240 MiB", total == 10240
        if shutil.which("nvidia-smi"):
            self.trial("nvidia-smi", 20, smi)
        for tool, arguments in (("compute-sanitizer", []), ("ncu", ["--target-processes", "all", "-c", "1"])):
            path = shutil.which(tool) or next((p for p in (f"/usr/local/cuda/bin/{tool}",) if os.path.exists(p)), None)
            if path:
                def what(path=path, arguments=arguments):
                    status, said = self.said([path, *arguments, self.compiled("cost"), "100000"], 120)
                    return " ".join(said.split()[-12:]), "starts and lets the program through", "launch\t" in said
                self.trial(f"{tool} starts", 60, what)


def near(value, expected, tolerance):
    return abs(float(value) - expected) <= tolerance


def run(book, deadline, only):
    stage = Stage(book, deadline, only)
    gib = lambda facts, key: float(facts[key])
    # What a context and the code take is within the limit.
    filled = lambda facts: facts["error"] == "OutOfMemoryError" and 9.0 <= gib(facts, "got") <= 10.0 and near(facts["total"], 10, 0.01) \
        and near(facts["again"], gib(facts, "got"), 0.3)
    try:
        stage.kit("limit", seconds=90)
        for name, seconds in (("view", 20), ("vmm", 20), ("odd", 20), ("tamper", 20), ("children", 60), ("share", 20), ("threads", 60), ("overlap", 20)):
            stage.kit(name, ["500"] if name == "view" else (), seconds)
        stage.kit("cycles", ["2000"], 60)
        for backend, settings in (("native", ""), ("expandable segments", "expandable_segments:True"), ("cudaMallocAsync", "backend:cudaMallocAsync")):
            stage.framework(f"torch, {backend}", "torch", "total 10, OutOfMemoryError near 10 GiB, and again", filled, 90, PYTORCH_CUDA_ALLOC_CONF=settings)
        stage.framework("torch, graph with memory, 100 replays", "torch_graph", "right result, no drift", lambda f: f["right"] == "True", 90)
        stage.framework("torch, workers and shared tensors", "torch_processes", "right result", lambda f: f["right"] == "True", 120)
        stage.framework("cupy, three pools", "cupy", "OutOfMemoryError near 10 GiB each", lambda f: all(9.0 <= float(f[k]) <= 10.0 for k in ("plain", "ordered", "managed")), 90)
        stage.framework("jax, preallocation", "jax", "75 % of 10 GiB", lambda f: 6.5 <= float(f["reserved"]) <= 7.6 and f["right"] == "True", 120)
        stage.framework("jax, platform allocator", "jax_fill", "RESOURCE_EXHAUSTED", lambda f: f["error"] == "RESOURCE_EXHAUSTED", 120,
                        XLA_PYTHON_CLIENT_ALLOCATOR="platform")
        stage.storm()
        stage.crowd()
        stage.cost()
        stage.audit()
        stage.tools()
    finally:
        stage.end()
