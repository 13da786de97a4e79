"""Tenants that stay: PyTorch processes with and without the library, and the arbiter between them."""
import json
import os
import shutil
import signal
import subprocess
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
KIT = os.path.abspath(os.environ["GPU_KIT"])
# plain.py for machines without PyTorch.
WORK = os.environ.get("GPU_WORK", "work.py")
AGENT, LIBRARY = os.path.join(KIT, "divvy-agent"), os.path.join(KIT, "libdivvy.so")


class Gone(Exception):
    """A tenant did not answer in time, or ended."""


def cores(place):
    """Cores of its own for a tenant: programs that wait for the CPU are compared on the same ones, with nobody beside them.

    The tenants with the library and those without never run at the same time, so they share places. The first cores are the arbiter's.
    """
    every = sorted(os.sched_getaffinity(0))
    each = (len(every) - 2) // 4
    return set(every[2 + place * each:2 + (place + 1) * each]) if each > 0 else set(every)


class Tenant:
    """A worker process; restarted when it breaks."""

    def __init__(self, name, place, folder=None):
        self.name, self.place, self.folder, self.prepared = name, place, folder, {}
        self.start()

    def start(self):
        env = dict(os.environ)
        if self.folder:
            env.update(LD_PRELOAD=LIBRARY, DIVVY_DIR=self.folder)
        self.errors = open(f"/tmp/divvy-gpu-{self.name}.log", "w")
        self.process = subprocess.Popen(["python3", os.path.join(HERE, WORK)], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, start_new_session=True,
                                        preexec_fn=lambda: os.sched_setaffinity(0, cores(self.place)))
        self.prepared, self.answers, self.ready = {}, [], threading.Condition()
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            if line.startswith("{"):
                with self.ready:
                    self.answers.append(json.loads(line))
                    self.ready.notify_all()

    @property
    def pid(self):
        return self.process.pid

    def tell(self, order):
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Gone(f"{self.name} ended with {self.process.poll()}")

    def hear(self, seconds):
        deadline = time.monotonic() + seconds
        with self.ready:
            while not self.answers:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise Gone(f"{self.name} said nothing for {seconds:.0f} s, ended: {self.process.poll()}")
                self.ready.wait(0.2)
            said = self.answers.pop(0)
        if "error" in said:
            raise Gone(f"{self.name}: {said['error']}")
        return said

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except OSError:
            pass
        self.process.wait()

    def restart(self):
        self.end()
        self.start()
        self.hear(60)

    def prepare(self, kind):
        if kind not in self.prepared:
            self.tell({"prepare": kind})
            self.prepared[kind] = self.hear(90)["ms_per_iteration"]
        return self.prepared[kind]


class Arbiter:
    """`divvy-agent arbiter` with some tenants, whose shares are changed by writing a file."""

    def __init__(self, uuid, names, folder="/dev/shm/divvy-gpu", memory=None):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        self.folder, self.names, self.uuid, self.memory = folder, names, uuid, memory
        self.file = os.path.join(folder, "tenants")
        self.set({})
        self.books, self.start_time = [], 0.0
        self.start()

    def start(self):
        self.log = open("/tmp/divvy-gpu-arbiter.log", "a")
        self.process = subprocess.Popen([AGENT, "arbiter", "--dir", self.folder, "--tenants", "@" + self.file, "--device",
                                         self.uuid, "--keeper", "--audit", "--report", "100"] + (["--record", os.environ["RECORD"]] if "RECORD" in os.environ else [])
                                        + (["--memory", str(self.memory)] if self.memory else []), stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2]))
        if "ready" not in self.process.stdout.readline():
            raise SystemExit("the arbiter does not start; see /tmp/divvy-gpu-arbiter.log")
        threading.Thread(target=self.read, args=(self.process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            accounts = json.loads(line).get("accounts") if line.startswith("{") else None
            if accounts:
                self.books.append((time.monotonic(), {key.split()[0]: account for key, account in accounts.items()}))

    def set(self, shares):
        """Shares of the named tenants; all others keep nothing and need nothing."""
        every = {name: (0, 1000) for name in self.names} | shares
        text = " ".join(f"{name}={request}/{limit}" for name, (request, limit) in every.items())
        with open(self.file + ".new", "w") as file:
            file.write(text)
        os.rename(self.file + ".new", self.file)

    def busy(self, name, begin, end):
        """Booked GPU time of a tenant between two moments, in seconds."""
        # What is known comes late where the card has to say it.
        known = [(t - b[name]["behind_ns"] / 1e9, b[name]["busy_ns"]) for t, b in self.books if name in b]

        def at(moment):
            before = [(t, busy) for t, busy in known if t <= moment]
            after = [(t, busy) for t, busy in known if t > moment]
            if not before or not after:
                return (before[-1:] or after[:1] or [(0, 0)])[0][1]
            (t0, b0), (t1, b1) = before[-1], after[0]
            return b0 + (b1 - b0) * (moment - t0) / (t1 - t0)
        return (at(end) - at(begin)) / 1e9

    def await_books(self, moment, seconds=3):
        """Waits until what everybody used by a moment is known, or for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            last = self.books[-1] if self.books else (0.0, {})
            if min((last[0] - account["behind_ns"] / 1e9 for account in last[1].values()), default=0.0) > moment:
                return
            time.sleep(0.02)

    def at(self, name, moment):
        """A tenant's account as it was told last before a moment."""
        return next((books.get(name, {}) for told, books in reversed(self.books) if told <= moment), {})

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
