"""A tenant: PyTorch loops, told on standard input what to run. One line of JSON in, one out.

{"prepare": kind}                         makes ready, and says what an iteration costs the GPU (by events, while alone)
{"run": kind, "at": t, "seconds": s}      runs from t (CLOCK_MONOTONIC) for s seconds; with "on"/"off" in alternating spans; with "timed"
                                          says what an iteration takes the GPU there (by events, in the midst of a queue)
"""
import json
import statistics
import sys
import time

import torch

torch.backends.cudnn.benchmark = True


def mm(size=4096, sync=20):
    a = torch.randn(size, size, device="cuda", dtype=torch.bfloat16)
    b = torch.randn_like(a)
    out = torch.empty_like(a)
    return lambda: torch.mm(a, b, out=out), sync


def graph():
    step, _ = mm()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        for _ in range(20):
            step()
    return captured.replay, 2


def small():
    a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) / 23

    def step():
        x = a
        for _ in range(20):
            x = torch.relu(x @ a)

    return step, 5


def resnet():
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loss_of = torch.nn.CrossEntropyLoss()
    x = torch.randn(64, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (64,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    return step, 1


def decode(layers=16, width=1024, heads=16, past=256):
    """One token at a time through a small transformer, the next chosen on the host: launches, and a wait after each token."""
    f = torch.nn.functional
    new = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
    weights = [(new(3 * width, width), new(width, width), new(4 * width, width), new(width, 4 * width)) for _ in range(layers)]
    keys, values = new(layers, 1, heads, past, width // heads), new(layers, 1, heads, past, width // heads)
    norm, table = torch.ones(width, device="cuda", dtype=torch.bfloat16), new(8192, width)
    state = {"token": 1}

    @torch.no_grad()
    def step():
        x = table[state["token"]].view(1, 1, width)
        for i, (qkv, out, up, down) in enumerate(weights):
            q, k, v = f.linear(f.layer_norm(x, (width,), norm), qkv).view(1, 1, 3, heads, width // heads).unbind(2)
            keys[i, :, :, -1] = k[:, 0]
            values[i, :, :, -1] = v[:, 0]
            attended = f.scaled_dot_product_attention(q.transpose(1, 2), keys[i], values[i])
            x = x + f.linear(attended.transpose(1, 2).reshape(1, 1, width), out)
            x = x + f.linear(f.gelu(f.linear(f.layer_norm(x, (width,), norm), up)), down)
        state["token"] = int((x[0, 0] @ table.T).argmax())

    return step, 1


def model(build, shape, train):
    net = build().cuda()
    net.train(train)
    if shape[0] == 1:  # statistics of one image are none
        for part in net.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.eval()
    x = torch.randn(*shape, device="cuda")
    optimizer, loss_of = torch.optim.SGD(net.parameters(), 0.01), torch.nn.CrossEntropyLoss()

    def infer():
        with torch.no_grad():
            net(x)

    def learn():
        optimizer.zero_grad(set_to_none=True)
        out = net(x)
        out = out["out"] if isinstance(out, dict) else out
        loss_of(out, torch.zeros(out.shape[:1] + out.shape[2:], dtype=torch.long, device="cuda")).backward()
        optimizer.step()

    return (learn if train else infer), 1


class Lstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = torch.nn.LSTM(300, 1024, batch_first=True), torch.nn.Linear(1024, 10)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def vision(name):
    import torchvision

    return lambda: getattr(torchvision.models, name)(weights=None)


def deeplab():
    import torchvision

    return torchvision.models.segmentation.deeplabv3_resnet50(weights=None, weights_backbone=None, aux_loss=False)


# Batch and size as 4paradigm's benchmark has them: inference, training.
MODELS = {
    "resnet50": (vision("resnet50"), (50, 3, 346, 346), (20, 3, 346, 346)),
    "resnet152": (vision("resnet152"), (10, 3, 256, 256), (10, 3, 256, 256)),
    "vgg16": (vision("vgg16"), (20, 3, 224, 224), (2, 3, 224, 224)),
    "deeplab": (deeplab, (2, 3, 512, 512), (1, 3, 384, 384)),
    "lstm": (Lstm, (100, 1024, 300), (10, 1024, 300)),
}
KINDS = {f"{name}-{way}": (lambda build=build, shape=shape, way=way: model(build, shape, way == "t"))
         for name, (build, inference, training) in MODELS.items() for way, shape in (("i", inference), ("t", training))}
KINDS |= {"mm": mm, "graph": graph, "long": lambda: mm(12288, 4), "small": small, "resnet": resnet, "decode": decode}
ready = {}


def prepare(kind):
    if kind not in ready:
        ready[kind] = KINDS[kind]()
        step, sync = ready[kind]
        for _ in range(max(10, 2 * sync)):
            step()
        torch.cuda.synchronize()
    step, sync = ready[kind]
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = 1e9
    for _ in range(3):
        begin.record()
        for _ in range(sync):
            step()
        end.record()
        torch.cuda.synchronize()
        best = min(best, begin.elapsed_time(end) / sync)
    return {"prepared": kind, "ms_per_iteration": best}


def run(kind, at, seconds, on=0.0, off=0.0, timed=False):
    step, sync = ready[kind]
    begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    time.sleep(max(0.0, at - time.monotonic()))
    marks, count, fastest = [], 0, 1e9
    while (now := time.monotonic()) - at < seconds:
        if on and (now - at) % (on + off) >= on:
            time.sleep(min((on + off) - (now - at) % (on + off), at + seconds - now))
            continue
        for i in range(sync):
            if timed and i == sync // 2:
                begun.record()
                step()
                ended.record()
            else:
                step()
        torch.cuda.synchronize()
        count += sync
        done = time.monotonic()
        if timed:
            times.append(begun.elapsed_time(ended))
        fastest = min(fastest, (done - now) / sync)
        marks.append((round(done - at, 4), count))
    took = time.monotonic() - at
    # A mark per hundredth of the time is plenty.
    thin = max(1, len(marks) // (int(seconds * 50) + 1))
    said = {"ran": kind, "count": count, "seconds": took, "fastest": fastest, "marks": marks[::thin] + marks[-1:]}
    # A gate that was closed in between makes some of them long.
    return said | ({"ms_per_iteration": statistics.median(times)} if times else {})


def main():
    torch.zeros(1, device="cuda")
    print(json.dumps({"begun": torch.cuda.get_device_name()}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "prepare" in order:
                said = prepare(order["prepare"])
            else:
                said = run(order["run"], order["at"], order["seconds"], order.get("on", 0.0), order.get("off", 0.0), order.get("timed", False))
        except Exception as error:  # told, and the next order is taken
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


main()
