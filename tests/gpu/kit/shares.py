"""Stage 1: shares of a card's time, held by divvy-agent's arbiter among PyTorch processes under libdivvy.so.

GPU time of a tenant is told three ways: as the arbiter booked it, as NVML's per-process utilisation has it, and, where the GPU is
the bottleneck, as iterations times what one takes (by events: products in the run itself, for alone they draw so much power that
clocks fall; longer ones, which a gate may cut, alone). Throughput is iterations, against the same loop native.
"""
import os
import signal
import statistics
import subprocess
import time
import typing

import costs
import nvml
from figures import clear, longest_gap, parts_of, rate_of, show, slashes, surely
from tenants import Arbiter, Gone, Tenant

GPU_BOUND = ("mm", "graph", "long")
TIMED_IN_COMPANY = ("mm",)  # one kernel, shorter than a chunk: a gate seldom falls between the events around it
SETTLE = 0.7  # seconds at the beginning of a run that are not judged
ROUNDS = int(os.environ.get("ROUNDS", "12"))  # at least so many, of unmanaged and shared one after the other, of 0.7 s each
MOST_ROUNDS = 30  # more of them until the median is clear
LONE_RATE = "each at least its request - 2 points of its lone rate"
FULL = 102.0  # percent of alone: who is no faster in all without Divvy than alone has the card as its bottleneck


class Rounds(typing.NamedTuple):
    """Short runs one after the other: all under the arbiter in percent of without it, and each of them in percent of alone."""
    sums: list
    lone: list


class Shared(typing.NamedTuple):
    """What came of some programs together. Lists are by tenant; time is in percent of the card."""
    asked: list  # in thousandths
    hard: bool  # limits are what was asked
    full: bool  # the card is the bottleneck
    alike: bool  # all run the same
    booked: list  # time, by the arbiter
    seen: list  # time, by NVML, if it says
    counted: list  # time, by iterations and what one takes
    lone: list  # speed in percent of alone
    worst: float  # points off in any second
    together: Rounds | None
    sum_asked: bool


class Stage:
    def __init__(self, book, deadline, only):
        self.book, self.deadline, self.only = book, deadline, only
        self.card = nvml.Card()
        self.names = ["a", "b", "c", "d"]
        self.arbiter = Arbiter(self.card.uuid(), self.names)
        self.held = [Tenant(name, i, os.path.join(self.arbiter.folder, name)) for i, name in enumerate(self.names)]
        self.free = [Tenant(f"n{i}", i) for i in range(4)]
        for tenant in self.held + self.free:
            tenant.hear(120)
        self.watch = None

    def end(self):
        for tenant in self.held + self.free:
            tenant.end()
        self.arbiter.end()
        subprocess.run(["rm", "-rf", self.arbiter.folder])  # the keeper ends when its folder does

    def wanted(self, case, seconds):
        if self.book.has(case) or (self.only and not any(word in case for word in self.only)):
            return False
        if not self.has_time(seconds):
            print(f"   left out for lack of time: {case}", flush=True)
            return False
        return True

    def has_time(self, seconds):
        return time.monotonic() + seconds + 6 <= self.deadline

    def together(self, tenants, kinds, seconds, spans=(), counts=False, timed=False):
        """Runs loops at the same time; what each said, and the window that is judged."""
        for tenant, kind in zip(tenants, kinds):
            tenant.prepare(kind)
        at = time.monotonic() + 0.3
        for i, (tenant, kind) in enumerate(zip(tenants, kinds)):
            on, off = spans[i] if i < len(spans) else (0, 0)
            tenant.tell({"run": kind, "at": at, "seconds": seconds, "on": on, "off": off, "timed": timed and kind in TIMED_IN_COMPANY})
        with nvml.Watch(self.card, counts) as self.watch:
            said = [tenant.hear(seconds + 30) for tenant in tenants]
        self.arbiter.await_books(at + seconds)
        return said, at + SETTLE, at + seconds

    def trial(self, case, seconds, what):
        """Runs a case; whatever goes wrong is written down, and the next one begins with whole tenants."""
        if not self.wanted(case, seconds):
            return
        print(f"-- {case}", flush=True)
        try:
            what()
        except Exception as error:
            self.book.add(case, f"{type(error).__name__}: {error}", "", False)
            for tenant in self.held + self.free:
                if isinstance(error, Gone) or tenant.process.poll() is not None:
                    try:
                        tenant.restart()
                    except Gone as again:
                        print(f"   {again}", flush=True)

    # --- the cases

    def native(self, kind, seconds=3):
        case = f"native {kind}"

        def what():
            (said,), begin, end = self.together(self.free[:1], [kind], seconds)
            rate = rate_of(said)
            ms = self.free[0].prepared[kind]
            clock = sum(self.watch.clocks) / max(1, len(self.watch.clocks))
            power = sum(self.watch.power) / max(1, len(self.watch.power))
            told = f"{rate:.1f} it/s, {ms:.3f} ms of GPU time each, NVML {show(self.watch.share(self.free[0].pid, begin, end))} %, {clock:.0f} MHz, {power:.0f} W"
            self.book.add(case, told, value=rate, ms=ms)

        self.trial(case, seconds, what)

    def unmanaged(self, kinds, seconds=4):
        case = f"unmanaged {' + '.join(kinds)}"

        def what():
            said, *_ = self.together(self.free[:len(kinds)], kinds, seconds)
            rates = [rate_of(s) for s in said]
            self.book.add(case, " + ".join(f"{r:.1f}" for r in rates) + f" it/s, {self.progress(kinds, rates):.1f} % of alone in all",
                          value=self.progress(kinds, rates))

        self.trial(case, seconds, what)

    def progress(self, kinds, rates):
        """How fast all are together, in percent of alone, summed."""
        return sum(100 * rate / (self.book.value(f"native {kind}") or rate) for kind, rate in zip(kinds, rates))

    def shared(self, parts, seconds=10, label="", sum_asked=True):
        """`parts`: kind, request, limit."""
        kinds = [kind for kind, *_ in parts]
        # Where more is promised than there is, everybody has the same part of it.
        promised = max(1000, sum(request for _, request, _ in parts))
        asked = [request * 1000 / promised for _, request, _ in parts]
        hard = all(request == limit for _, request, limit in parts)
        case = f"{label or ('hard' if hard else 'shared')} " + " + ".join(f"{kind} {request / 10:g}" for kind, request, _ in parts)

        def what():
            tenants = self.held[:len(parts)]
            self.arbiter.set({t.name: (request, limit) for t, (_, request, limit) in zip(tenants, parts)})
            said, begin, end = self.together(tenants, kinds, seconds, timed=True)
            booked = [100 * self.arbiter.busy(t.name, begin, end) / (end - begin) for t in tenants]
            seen = [self.watch.share(t.pid, begin, end) for t in tenants]
            rates = [rate_of(s) for s in said]
            counted = [rate * s.get("ms_per_iteration", self.free[0].prepare(kind)) for rate, s, kind in zip(rates, said, kinds)]
            full, turns = self.saturating(kinds), self.turns(tenants, end)
            worst = self.worst_second(tenants, asked, begin, end, hard)
            together = None if hard else self.interleaved(tenants, kinds, lone_too=not full)
            # Programs that wait for the CPU differ by a tenth from process to process, and by a third from second to second: each is held
            # against itself, a moment before or after.
            if together and together.lone:
                lone = [statistics.median(ratios) for ratios in together.lone]
            else:
                native = [self.book.value(f"native {kind}") or rate for kind, rate in zip(kinds, rates)]
                lone = [100 * rate / best for rate, best in zip(rates, native if full else self.each_alone(tenants, kinds))]
            told = (f"booked {slashes(booked)}, NVML {slashes(seen)}, throughput {slashes(lone)} % of alone"
                    f" = {slashes(parts_of(lone))}, worst second {worst:.1f} off; {turns}")
            alike = len(set(kinds)) == 1
            self.judge(case, told, Shared(asked, hard, full, alike, booked, seen, counted, lone, worst, together, sum_asked))

        self.trial(case, seconds + (0 if hard else ROUNDS * 2.2) + len(parts), what)

    def each_alone(self, tenants, kinds):
        """How fast each of these very processes is while the others rest, with shares that do not limit it."""
        self.arbiter.set({t.name: (1000 // len(tenants), 1000) for t in tenants})
        return [self.short([tenant], [kind], 1.0)[0] for tenant, kind in zip(tenants, kinds)]

    def saturating(self, kinds):
        known = self.book.value(f"unmanaged {' + '.join(kinds)}")
        return all(kind in GPU_BOUND for kind in kinds) or (known is not None and known <= FULL)

    def interleaved(self, tenants, kinds, lone_too):
        """All together under the arbiter and without, in many short rounds, and with `lone_too` each of those it holds alone. Programs
        that wait for the CPU are faster and slower by a tenth from second to second: they take more rounds, as many as make the answer
        clear, whatever it is."""
        free, found = self.free[:len(kinds)], Rounds([], [[] for _ in tenants] if lone_too else [])
        for tenant, kind in zip(free, kinds):
            tenant.prepare(kind)
        while len(found.sums) < ROUNDS or (len(found.sums) < MOST_ROUNDS and not clear(found.sums) and self.has_time(3)):
            sums, first = {}, len(found.sums) % 2 == 0
            for held in (first, not first):  # who goes first alternates
                rates = self.short(tenants if held else free, kinds, 0.7)
                sums[held] = self.progress(kinds, rates)
                for tenant, kind, rate, ratios in zip(tenants, kinds, rates, found.lone if held else []):
                    ratios.append(100 * rate / self.short([tenant], [kind], 0.4)[0])
            found.sums.append(100 * sums[True] / sums[False])
        return found

    def short(self, tenants, kinds, seconds):
        """How fast each is in a short run together."""
        at = time.monotonic() + 0.05
        for tenant, kind in zip(tenants, kinds):
            tenant.tell({"run": kind, "at": at, "seconds": seconds})
        return [rate_of(tenant.hear(30)) for tenant in tenants]

    def turns(self, tenants, moment):
        last = [self.arbiter.at(t.name, moment) for t in tenants]
        return "chunks of " + slashes([a.get("chunk_units", 0) * a.get("unit_ns", 0) / 1000 for a in last]) + " us"

    def worst_second(self, tenants, asked, begin, end, hard):
        worst, total = 0.0, sum(asked)
        second = begin
        while second + 1 <= end:
            busy = [self.arbiter.busy(t.name, second, second + 1) for t in tenants]
            parts = [100 * b for b in busy] if hard else parts_of(busy)
            wanted = [a / 10 for a in asked] if hard else [100 * a / total for a in asked]
            worst = max([worst] + [abs(p - w) for p, w in zip(parts, wanted)])
            second += 1
        return worst

    def judge(self, case, told, found):
        wanted = [a / 10 for a in found.asked] if found.hard else [100 * a / sum(found.asked) for a in found.asked]
        had = found.booked if found.hard else parts_of(found.booked)
        enough = all(l >= a / 10 - 2 for l, a in zip(found.lone, found.asked))
        off = max(abs(h - w) for h, w in zip(had, wanted))
        if found.hard:
            # Who is held up by launching may need less than its limit.
            beyond = off if found.full else max(max(0.0, h - w) for h, w in zip(had, wanted))
            self.book.add(case, told, "limits within 2 points of time", beyond <= 2.0)
        elif found.full:
            self.book.add(case, told, "time within 2 points over all, 5 in each second", off <= 2.0 and found.worst <= 5.0)
            if found.alike:
                through = max(abs(p - w) for p, w in zip(parts_of(found.lone), wanted))
                self.book.add(case + ", throughput", f"{slashes(parts_of(found.lone))}, off by {through:.1f}", "as exact as time: within 2 points", through <= 2.0)
            else:
                # One that draws so much power alone that its clocks fall is faster beside others, in the same time.
                self.book.add(case + ", throughput", f"{slashes(found.lone)} % of alone", LONE_RATE, enough)
        else:
            self.book.add(case, told, LONE_RATE, enough)
        if found.together is not None:
            middle, low, high = surely(found.together.sums)
            least = 99 if found.full else 98
            told = f"{middle:.1f} % of unmanaged in the median of {len(found.together.sums)} rounds, surely {low:.1f} to {high:.1f}"
            # Where the card is the bottleneck rounds are alike; elsewhere it fails if it is surely less.
            promise, holds = (f">= {least} %", (middle if found.full else high) >= least) if found.sum_asked else ("", None)
            self.book.add(case + ", sum", told, promise, holds)
        booked, counted = parts_of(found.booked), parts_of(found.counted)
        if found.full:
            gap = max(abs(b - k) for b, k in zip(booked, counted))
            self.book.add(case + ", cross-check", f"time booked and kernels counted ({slashes(counted)}) differ by {gap:.1f} points", "<= 3", gap <= 3.0)
        if None not in found.seen:
            # Only told: NVML says 73 to 85 % of a lone program that never leaves the card alone.
            seen = parts_of(found.seen)
            gap = max(abs(b - s) for b, s in zip(booked, seen))
            self.book.add(case + ", NVML", f"parts {slashes(seen)}, {gap:.1f} points from what was booked")

    def lone(self, kind, limit, seconds=6):
        case = f"alone {kind}, limit {limit / 10:g}"

        def what():
            self.arbiter.set({"a": (limit, limit)})
            (said,), begin, end = self.together(self.held[:1], [kind], seconds)
            booked = 100 * self.arbiter.busy("a", begin, end) / (end - begin)
            native = self.book.value(f"native {kind}") or 1
            seen = self.watch.share(self.held[0].pid, begin, end)
            told = f"booked {booked:.1f}, NVML {show(seen)}, throughput {100 * rate_of(said) / native:.1f} % of alone"
            # A program that is held up by launching may need less than its limit.
            off = abs(booked - limit / 10) if kind in GPU_BOUND else max(0.0, booked - limit / 10)
            # NVML says less than there is, never much more: then the books are wrong.
            self.book.add(case, told, "within 2 points of time", off <= 2.0 and (seen is None or seen <= booked + 5))

        self.trial(case, seconds, what)

    def metered(self, kind, seconds=6):
        """Alone and without a limit: what it is told it used, and for how much of the time the card's counters say it worked.

        Nobody else may be on the card, so that this ends whoever is there without the library.
        """
        case = f"metered {kind}"

        def what():
            for tenant in self.free:
                tenant.end()
            self.arbiter.set({"a": (500, 1000)})
            _, begin, end = self.together(self.held[:1], [kind], seconds, counts=True)
            end -= 1  # the card tells of tenths of a second, and of the last one it worked for a part only
            booked, counted = 100 * self.arbiter.busy("a", begin, end) / (end - begin), self.watch.card_share(begin, end)
            told = f"told {booked:.1f} %, the card's counters say {show(counted)}"
            # Not every card has such counters, and the fake driver has none.
            self.book.add(case, told, *(("within 3 points", abs(booked - counted) <= 3.0) if counted is not None else ()))

        self.trial(case, seconds, what)

    def elasticity(self, seconds=12):
        case = "elasticity, 30 (limit 80) beside 50 that sleeps and wakes"

        def what():
            self.arbiter.set({"a": (300, 800), "b": (500, 1000)})
            period = 3.0
            _, begin, _ = self.together(self.held[:2], ["mm", "mm"], seconds, spans=[(0, 0), (period / 2, period / 2)])
            at = begin - SETTLE
            grown, back = [], []
            for k in range(1, int(seconds / period)):
                wake, sleep = at + k * period, at + k * period + period / 2
                back.append(100 * self.arbiter.busy("b", wake + 0.2, wake + 1.2))
                grown.append(100 * self.arbiter.busy("a", sleep + 0.25, sleep + 1.25))
            told = f"the sleeper has {slashes(back)} % from 200 ms after waking, the other {slashes(grown)} % from 250 ms after"
            holds = min(back) >= 48 and min(grown) >= 75 and max(grown) <= 83
            self.book.add(case, told, ">= 48 and 80 +- 3 within 200 ms", holds)

        self.trial(case, seconds, what)

    def killed(self, how, seconds=8):
        case = f"the arbiter is {how} in the middle"

        def what():
            self.arbiter.set({"a": (300, 1000), "b": (700, 1000)})
            tenants = self.held[:2]
            for tenant in tenants:
                tenant.prepare("mm")
            at = time.monotonic() + 0.3
            for tenant in tenants:
                tenant.tell({"run": "mm", "at": at, "seconds": seconds})
            time.sleep(3.3)
            self.arbiter.process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            hit = time.monotonic() - at
            time.sleep(2.5)
            if how == "killed":
                self.arbiter.process.wait()
                self.arbiter.start()
            else:
                self.arbiter.process.send_signal(signal.SIGCONT)
            said = [tenant.hear(seconds + 30) for tenant in tenants]
            gap = max(longest_gap(s["marks"], hit - 0.2, hit + 2.5) for s in said)
            self.book.add(case, f"longest standstill {gap * 1000:.0f} ms, then {slashes([rate_of(s) for s in said])} it/s", "every stream moves within 1 s", gap <= 1.0)

        self.trial(case, seconds, what)


def run(book, deadline, only):
    stage = Stage(book, deadline, only)
    try:
        for kind in ("mm", "small", "resnet"):
            stage.native(kind)
        stage.unmanaged(["mm", "mm"])
        stage.shared([("mm", 300, 1000), ("mm", 700, 1000)])
        stage.shared([("mm", 100, 1000), ("mm", 900, 1000)])
        stage.unmanaged(["small", "small"])
        stage.shared([("small", 300, 1000), ("small", 700, 1000)], 8)
        stage.unmanaged(["resnet", "resnet"])
        stage.shared([("resnet", 300, 1000), ("resnet", 700, 1000)])
        stage.lone("mm", 250)
        stage.lone("mm", 500)
        stage.lone("mm", 750)
        stage.unmanaged(["mm"] * 4)
        stage.shared([("mm", 100, 1000), ("mm", 200, 1000), ("mm", 300, 1000), ("mm", 400, 1000)])
        for kind in ("mm", "small", "resnet"):
            costs.overhead(stage, kind)
        stage.killed("killed")
        stage.shared([("mm", 500, 1000), ("mm", 500, 1000)])
        for kind in ("graph", "long", "decode"):
            stage.native(kind)
            stage.unmanaged([kind, kind])
            stage.shared([(kind, 300, 1000), (kind, 700, 1000)], 8)
        stage.elasticity()
        stage.shared([("mm", 300, 300), ("mm", 700, 700)], 8)
        stage.shared([("resnet", 300, 300), ("resnet", 700, 700)], 8)
        stage.shared([("small", 300, 300), ("small", 700, 700)], 8)
        stage.unmanaged(["mm", "small"])
        stage.shared([("mm", 300, 1000), ("small", 700, 1000)], 8)
        stage.shared([("mm", 700, 1000), ("small", 300, 1000)], 8)
        stage.unmanaged(["resnet", "mm"])
        stage.shared([("resnet", 700, 1000), ("mm", 300, 1000)], 8)
        stage.shared([("graph", 100, 1000), ("graph", 900, 1000)], 8)
        stage.shared([("long", 100, 1000), ("long", 900, 1000)], 8)
        costs.launch_cost(stage)
        costs.boundary_cost(stage)
        for kind in ("mm", "small", "resnet"):
            stage.shared([(kind, 900, 1000), (kind, 600, 1000)], 8, label="promised 1.5 times")
        for kind in ("graph", "decode"):
            costs.overhead(stage, kind)
        stage.lone("small", 300)
        stage.lone("resnet", 300)
        stage.killed("stopped")
    finally:
        stage.end()


def rest(stage):
    """What the first stage has no time for; asked at the end of the third."""
    for kind in ("graph", "long", "decode"):
        # What the shares are held against; not asked again where the first stage has asked.
        stage.native(kind)
        stage.unmanaged([kind, kind])
        stage.shared([(kind, 500, 1000), (kind, 500, 1000)], 8)
        stage.shared([(kind, 300, 300), (kind, 700, 700)], 8)
    for kind in ("mm", "small", "resnet", "decode"):
        stage.metered(kind)
