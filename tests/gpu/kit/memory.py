"""Stage 2: memory. A container of 10 GiB, and everything that tries to get more: programs in C, and three frameworks."""
import os
import re
import signal
import subprocess
import time

import nvml
from tenants import HERE, LIBRARY, Arbiter

GIB = 1 << 30
LIMIT = 10 * GIB
# What a context may take of the limit, and the frameworks' own buffers.
SLACK = 1.5 * GIB

TORCH = """
import torch
free, total = torch.cuda.mem_get_info()
told = torch.cuda.get_device_properties(0).total_memory
held, step = [], 256 << 20
try:
    while True:
        held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
        held[-1].fill_(1)
except torch.OutOfMemoryError:
    pass
most = len(held) * step
torch.cuda.synchronize()
held.clear(); torch.cuda.empty_cache()
again = torch.empty(most - step, dtype=torch.uint8, device="cuda")
print("total", total, "told", told, "most", most, "again", again.numel())
"""

CUPY = """
import cupy
pool = {pool}
held, step = [], 256 << 20
try:
    while True:
        held.append(cupy.zeros(step, dtype=cupy.uint8))
except cupy.cuda.memory.OutOfMemoryError:
    pass
except cupy.cuda.runtime.CUDARuntimeError as error:
    assert error.status == 2, error
print("total", cupy.cuda.runtime.memGetInfo()[1], "told", cupy.cuda.runtime.memGetInfo()[1], "most", len(held) * step, "again", 0)
"""

JAX = """
import jax, jax.numpy as jnp
held, step = [], 256 << 20
try:
    while True:
        held.append(jnp.zeros(step, dtype=jnp.uint8)); held[-1].block_until_ready()
except Exception as error:
    assert "RESOURCE_EXHAUSTED" in str(error) or "out of memory" in str(error).lower(), error
print("total 0 told 0 most", len(held) * step, "again 0")
"""

FRAMEWORKS = [
    ("torch", TORCH, {}),
    ("torch, expandable segments", TORCH, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ("torch, cudaMallocAsync", TORCH, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    ("cupy", CUPY.format(pool="None"), {}),
    ("cupy, async pool", CUPY.format(pool="cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)"), {}),
    ("cupy, managed pool", CUPY.format(pool="cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)"), {}),
    ("jax", JAX, {}),
    ("jax, platform allocator", JAX, {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}),
    ("jax, cuda_async", JAX, {"XLA_PYTHON_CLIENT_ALLOCATOR": "cuda_async"}),
]

PROGRAMS = [("limit", []), ("vmm", []), ("odd", []), ("tamper", []), ("children", []), ("cycles", ["300"]), ("ways", [])]


class Stage:
    def __init__(self, book, deadline, only):
        self.book, self.deadline, self.only = book, deadline, only
        self.card = nvml.Card()
        self.arbiter = Arbiter(self.card.uuid(), ["m"], memory=LIMIT)
        self.arbiter.set({"m": (500, 1000)})
        self.programs = {}

    def inside(self):
        return {**os.environ, "LD_PRELOAD": LIBRARY, "DIVVY_DIR": os.path.join(self.arbiter.folder, "m")}

    def trial(self, case, what, seconds=60):
        if self.book.has(case) or (self.only and not any(word in case for word in self.only)):
            return
        if time.monotonic() + seconds > self.deadline:
            print(f"   left out for lack of time: {case}", flush=True)
            return
        print(f"-- {case}", flush=True)
        try:
            what(case)
        except Exception as error:
            said = getattr(error, "stdout", None) or getattr(error, "output", None) or ""
            said = said.decode() if isinstance(said, bytes) else said
            self.book.add(case, f"{type(error).__name__}: {str(error)[:200]} {said[-300:]}".strip(), "", False)

    def built(self, name):
        out = f"/tmp/divvy-gpu-{name}"
        if name not in self.programs:
            subprocess.run(["cc", "-std=gnu11", "-O1", "-o", out, os.path.join(HERE, f"../c/{name}.c"), "-ldl", "-lpthread"], check=True)
            self.programs[name] = out
        return out

    def program(self, name, arguments):
        def what(case):
            done = subprocess.run([self.built(name), *arguments], env=self.inside(), capture_output=True, text=True, timeout=120)
            lines = done.stdout.strip().splitlines()
            wrong = [line for line in lines if line.startswith("wrong")][:3]
            self.book.add(case, "; ".join([lines[-1] if lines else "", *wrong]), "no check fails", done.returncode == 0)

        self.trial(f"program {name}", what)

    def framework(self, name, source, env):
        def what(case):
            done = subprocess.run(["python3", "-c", source], env={**self.inside(), **env}, capture_output=True, text=True, timeout=150)
            found = re.search(r"total (\d+) told (\d+) most (\d+) again (\d+)", done.stdout)
            if not found:
                self.book.add(case, done.stderr.strip().splitlines()[-1:] or "nothing said", "", False)
                return
            total, told, most, _ = map(int, found.groups())
            holds = LIMIT - SLACK <= most <= LIMIT and total in (0, LIMIT) and told in (0, LIMIT)
            told_text = f"{most / GIB:.2f} GiB before the framework's own out-of-memory error; total {total / GIB:.2f} GiB"
            self.book.add(case, told_text, f"at most 10 GiB, at least {(LIMIT - SLACK) / GIB:.1f}", holds)

        self.trial(f"memory limit, {name}", what, 90)

    def smi(self, case):
        done = subprocess.run(["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"], env=self.inside(),
                              capture_output=True, text=True, timeout=60)
        self.book.add(case, done.stdout.strip() + " MiB", "10240 MiB", done.stdout.strip() == "10240")

    def crowd(self, case):
        """Many processes at once: what the library adds to each."""
        program, count = self.built("crowd"), 300
        def all_at_once(env):
            begun = time.monotonic()
            running = [subprocess.Popen([program], env=env, stdout=subprocess.PIPE, text=True) for _ in range(count)]
            said = [r.communicate(timeout=180)[0].split() for r in running]
            return time.monotonic() - begun, sum(s[:1] == ["0"] for s in said)
        native, _ = all_at_once(dict(os.environ))
        held, fine = all_at_once(self.inside())
        each = 1000 * (held - native) / count
        self.book.add(case, f"{fine} of {count} allocate; {held:.1f} s, {native:.1f} s native: {each:+.1f} ms each", "all, <= 10 ms each", fine == count and each <= 10)

    def storm(self, case):
        """Processes killed in the middle of allocating leave nothing behind."""
        for _ in range(10):
            running = [subprocess.Popen([self.built("storm"), "30"], env=self.inside(), stdout=subprocess.PIPE, text=True) for _ in range(3)]
            for r in running:
                r.stdout.readline()
            time.sleep(0.3)
            for r in running:
                r.send_signal(signal.SIGKILL)
                r.wait()
        time.sleep(1.5)
        left = self.arbiter.last("m").get("memory", -1)
        self.book.add(case, f"{left} bytes booked after 30 were killed", "0 within 1 s", left == 0)

    def tool(self, name, arguments):
        def what(case):
            done = subprocess.run([name, *arguments, self.built("crowd")], env=self.inside(), capture_output=True, text=True, timeout=120)
            self.book.add(case, f"ended with {done.returncode}", "starts under the library", done.returncode == 0)

        self.trial(f"{name} starts", what, 60)

    def unregistered(self, case):
        """A program that goes around the library uses the card without a slot: the audit's business, told here."""
        done = subprocess.run([self.built("crowd")], env={**os.environ, "DIVVY_DIR": os.path.join(self.arbiter.folder, "m")},
                              capture_output=True, text=True, timeout=60)
        self.book.add(case, f"without LD_PRELOAD the driver gives memory ({done.stdout.split()[:1]})", "told, not prevented", None)


def run(book, deadline, only):
    stage = Stage(book, deadline, only)
    try:
        for name, arguments in PROGRAMS:
            stage.program(name, arguments)
        for name, source, env in FRAMEWORKS:
            stage.framework(name, source, env)
        stage.trial("nvidia-smi in the container", stage.smi, 30)
        stage.trial("a storm of allocations, killed", stage.storm, 60)
        stage.trial("300 processes at once", stage.crowd, 180)
        stage.tool("compute-sanitizer", [])
        stage.tool("ncu", ["--target-processes", "all"])
        stage.trial("around the library", stage.unregistered, 30)
    finally:
        stage.arbiter.end()
        subprocess.run(["rm", "-rf", stage.arbiter.folder])
