"""A tenant without PyTorch: kernels of a stated length through the driver itself. Speaks as work.py does; for the fake driver."""
import ctypes
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# Kernel length in microseconds, kernels per iteration, iterations between waits.
KINDS = {"mm": (209, 1, 20), "graph": (209, 20, 2), "long": (5000, 1, 4), "small": (4, 40, 5), "resnet": (40, 200, 1), "decode": (5, 100, 1)}

cuda = ctypes.CDLL("libcuda.so.1")


def must(status):
    if status:
        raise RuntimeError(f"the driver says {status}")


def begin():
    with open(os.path.join(HERE, "../c/spin.h")) as source:
        text = "".join(re.findall(r'^    "(.*)"', source.read(), re.M)).replace("\\n", "\n")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    must(cuda.cuInit(0))
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    must(cuda.cuCtxSetCurrent(context))
    must(cuda.cuModuleLoadData(ctypes.byref(module), text.encode()))
    must(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin_arg_us"))
    return function


def batch(function, kind):
    us, kernels, sync = KINDS[kind]
    length, nowhere = ctypes.c_uint32(us), ctypes.c_uint64(0)
    arguments = (ctypes.c_void_p * 2)(ctypes.addressof(length), ctypes.addressof(nowhere))
    for _ in range(kernels * sync):
        must(cuda.cuLaunchKernel(function, 132, 1, 1, 32, 1, 1, 0, None, arguments, None))
    must(cuda.cuCtxSynchronize())
    return sync


def run(function, kind, at, seconds, on=0.0, off=0.0):
    time.sleep(max(0.0, at - time.monotonic()))
    marks, count, fastest = [], 0, 1e9
    while (now := time.monotonic()) - at < seconds:
        if on and (now - at) % (on + off) >= on:
            time.sleep(min((on + off) - (now - at) % (on + off), at + seconds - now))
            continue
        done = batch(function, kind)
        fastest = min(fastest, (time.monotonic() - now) / done)
        count += done
        marks.append((round(time.monotonic() - at, 4), count))
    return {"ran": kind, "count": count, "seconds": time.monotonic() - at, "fastest": fastest, "marks": marks}


def main():
    function = begin()
    print(json.dumps({"begun": "plain"}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "prepare" in order:
                kind = order["prepare"]
                batch(function, kind)
                said = {"prepared": kind, "ms_per_iteration": KINDS[kind][0] * KINDS[kind][1] / 1000}
            else:
                said = run(function, order["run"], order["at"], order["seconds"], order.get("on", 0.0), order.get("off", 0.0))
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


main()
