"""The card as NVML sees it, from outside all containers: identity, power, and who used how much of it."""
import ctypes
import threading
import time


class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("time", ctypes.c_ulonglong), ("sm", ctypes.c_uint), ("mem", ctypes.c_uint),
                ("enc", ctypes.c_uint), ("dec", ctypes.c_uint)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


class Metric(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("status", ctypes.c_uint), ("value", ctypes.c_double), ("names", ctypes.c_void_p * 3)]


class Metrics(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("count", ctypes.c_uint), ("first", ctypes.c_void_p), ("second", ctypes.c_void_p),
                ("metrics", Metric * 512)]


class Card:
    def __init__(self, index=0):
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.nvmlInit_v2()
        self.handle = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.handle))

    def text(self, what):
        buffer = ctypes.create_string_buffer(96)
        getattr(self.lib, what)(self.handle, buffer, 96)
        return buffer.value.decode()

    def uuid(self):
        return self.text("nvmlDeviceGetUUID")

    def name(self):
        return self.text("nvmlDeviceGetName")

    def driver(self):
        buffer = ctypes.create_string_buffer(96)
        self.lib.nvmlSystemGetDriverVersion(buffer, 96)
        return buffer.value.decode()

    def number(self, what, *arguments):
        value = ctypes.c_uint()
        getattr(self.lib, what)(self.handle, *arguments, ctypes.byref(value))
        return value.value

    def clock_mhz(self):
        return self.number("nvmlDeviceGetClockInfo", 1)

    def watts(self):
        return self.number("nvmlDeviceGetPowerUsage") / 1000

    def counters(self):
        """The card's performance counters as they stand; None where there are none."""
        sample = ctypes.c_void_p()
        try:
            if self.lib.nvmlGpmSampleAlloc(ctypes.byref(sample)) or self.lib.nvmlGpmSampleGet(self.handle, sample):
                return None
        except AttributeError:
            return None
        return sample

    def busy_between(self, first, second):
        """For how much of the time between two readings of the counters anything ran on the card, in percent."""
        asked = Metrics(version=1, count=1, first=first, second=second)
        asked.metrics[0].id = 1  # the part of the time in which the compute engine was not idle
        if self.lib.nvmlGpmMetricsGet(ctypes.byref(asked)) or asked.metrics[0].status:
            return None
        return asked.metrics[0].value

    def samples(self, since):
        count = ctypes.c_uint(0)
        self.lib.nvmlDeviceGetProcessUtilization(self.handle, None, ctypes.byref(count), ctypes.c_ulonglong(since))
        if count.value == 0:
            return []
        room = (Sample * (count.value + 16))()
        count = ctypes.c_uint(len(room))
        if self.lib.nvmlDeviceGetProcessUtilization(self.handle, room, ctypes.byref(count), ctypes.c_ulonglong(since)):
            return []
        return [room[i] for i in range(count.value)]

    def processes(self):
        """Bytes on the card by pid."""
        count, room = ctypes.c_uint(256), (Process * 256)()
        self.lib.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), room)
        return {room[i].pid: room[i].used for i in range(min(count.value, 256))}


class Watch:
    """Collects utilisation by process while it lives."""

    def __init__(self, card, counts=False):
        self.card, self.stop, self.seen, self.clocks, self.power = card, threading.Event(), {}, [], []
        self.counts, self.counted = counts, []
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.since = int(time.time() * 1e6)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.wait(0.1):
            for sample in self.card.samples(self.since):
                self.seen[(sample.pid, sample.time)] = sample.sm
            self.clocks.append(self.card.clock_mhz())
            self.power.append(self.card.watts())
            if self.counts:
                self.counted.append((time.monotonic(), self.card.counters()))

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    def share(self, pid, begin, end):
        """Mean utilisation of a process between two moments on the monotonic clock, in percent; None if the driver said nothing."""
        offset = time.time() - time.monotonic()
        first, last = (begin + offset) * 1e6, (end + offset) * 1e6
        found = [sm for (p, at), sm in self.seen.items() if p == pid and first < at <= last]
        return sum(found) / len(found) if found else None

    def card_share(self, begin, end):
        """For how much of the time between two moments anything ran on the card, by its counters, in percent."""
        counted = [counters for at, counters in self.counted if counters and begin <= at <= end]
        return self.card.busy_between(counted[0], counted[-1]) if len(counted) > 1 else None
