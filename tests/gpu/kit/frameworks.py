"""Small programs of the frameworks, each telling facts as name=value lines. Run inside a container: frameworks.py NAME"""
import sys

GIB = 1 << 30


def torch_fill():
    import torch
    free, total = torch.cuda.mem_get_info()
    error = "none"

    def fill():
        nonlocal error
        held = []
        try:
            while len(held) < 4096:
                held.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
        except Exception as failure:
            error = type(failure).__name__
        return len(held) / 4

    got = fill()
    torch.cuda.empty_cache()
    again = fill()
    print(f"total={total / GIB}\nproperties={torch.cuda.get_device_properties(0).total_memory / GIB}\ngot={got}\nagain={again}\nerror={error}")


def torch_graph():
    import torch
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
    static = torch.randn(512, 2048, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        out = model(static)
    before = torch.cuda.mem_get_info()[0]
    for _ in range(100):
        graph.replay()
    torch.cuda.synchronize()
    with torch.no_grad():
        right = torch.allclose(out, model(static), atol=1e-3)
    drift = before - torch.cuda.mem_get_info()[0]
    print(f"right={right and abs(drift) <= 64 << 20}\ndrift={drift}")


class Numbers:
    def __len__(self):
        return 256

    def __getitem__(self, i):
        return float(i)


def child(tensor, queue):
    tensor += 1
    queue.put(float(tensor.sum()))
    queue.get()


def torch_processes():
    import torch
    import torch.multiprocessing as processes
    torch.zeros(1, device="cuda")
    total = sum(float(batch.sum()) for batch in torch.utils.data.DataLoader(Numbers(), batch_size=16, num_workers=16))
    context = processes.get_context("spawn")
    tensor, queue = torch.zeros(1000, device="cuda"), context.Queue()
    before = torch.cuda.mem_get_info()[0]
    worker = context.Process(target=child, args=(tensor, queue))
    worker.start()
    said = queue.get(timeout=90)
    shared = before - torch.cuda.mem_get_info()[0]
    queue.put(None)
    worker.join()
    print(f"right={total == 255 * 128 and said == 1000.0 and float(tensor.sum()) == 1000.0}\nshared_costs={shared}")


def cupy_fill():
    import cupy

    def fill():
        held = []
        try:
            while len(held) < 4096:
                held.append(cupy.empty(256 << 20, dtype=cupy.uint8))
        except cupy.cuda.memory.OutOfMemoryError:
            pass
        return len(held) / 4

    plain = fill()
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    ordered = fill()
    cupy.cuda.Device().synchronize()
    managed_pool = cupy.cuda.MemoryPool(cupy.cuda.malloc_managed)
    cupy.cuda.set_allocator(managed_pool.malloc)
    managed = fill()
    managed_pool.free_all_blocks()
    print(f"plain={plain}\nordered={ordered}\nmanaged={managed}")


def jax_start():
    import jax
    import jax.numpy as numpy
    a = numpy.ones((2048, 2048))
    right = float(jax.jit(lambda x: (x @ x).sum())(a)) == 2048.0 ** 3
    stats = jax.devices()[0].memory_stats() or {}
    print(f"reserved={stats.get('bytes_limit', 0) / GIB}\nright={right}")


def jax_fill():
    import jax.numpy as numpy
    held, error = [], "none"
    try:
        while len(held) < 100:
            held.append(numpy.ones((256 << 20,), dtype=numpy.uint8).block_until_ready())
    except Exception as failure:
        error = "RESOURCE_EXHAUSTED" if "RESOURCE_EXHAUSTED" in str(failure) else type(failure).__name__
    print(f"got={len(held) / 4}\nerror={error}")


def main():
    programs = {"torch": torch_fill, "torch_graph": torch_graph, "torch_processes": torch_processes, "cupy": cupy_fill, "jax": jax_start,
                "jax_fill": jax_fill}
    try:
        programs[sys.argv[1]]()
    except ModuleNotFoundError as missing:
        print(f"missing={missing.name}")


if __name__ == "__main__":
    main()
