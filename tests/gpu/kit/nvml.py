"""The card as NVML sees it, from outside all containers: identity, power, and who used how much of it."""
import ctypes
import threading
import time


class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("time", ctypes.c_ulonglong), ("sm", ctypes.c_uint), ("mem", ctypes.c_uint),
                ("enc", ctypes.c_uint), ("dec", ctypes.c_uint)]


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


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

    def number(self, what, *arguments):
        value = ctypes.c_uint()
        getattr(self.lib, what)(self.handle, *arguments, ctypes.byref(value))
        return value.value

    def clock_mhz(self):
        return self.number("nvmlDeviceGetClockInfo", 1)

    def watts(self):
        return self.number("nvmlDeviceGetPowerUsage") / 1000

    def busy(self):
        """For how much of the last moments anything ran on the card, in percent."""
        both = (ctypes.c_uint * 2)()
        self.lib.nvmlDeviceGetUtilizationRates(self.handle, both)
        return both[0]

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

    def __init__(self, card):
        self.card, self.stop, self.seen, self.clocks, self.power, self.busy = card, threading.Event(), {}, [], [], []
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
            self.busy.append((time.monotonic(), self.card.busy()))

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
        """For how much of the time between two moments anything ran on the card, in percent."""
        found = [busy for at, busy in self.busy if begin < at <= end]
        return sum(found) / len(found) if found else None
