"""One rank of torch.distributed's part of the benchmark: the same loop as the other ranks."""
import sys
import time

import torch
import torch.distributed as dist

backend, rank, world, port, sizes, budget = sys.argv[1:7]
rank, world, budget = int(rank), int(world), float(budget)
if backend == "regroup":
    import regroup.torch.distributed  # noqa: F401  registers the backend
torch.set_num_threads(1)
dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)


def once(v):
    t = time.perf_counter()
    dist.all_reduce(v)
    return time.perf_counter() - t


for size in map(int, sizes.split(",")):
    v = torch.zeros(size // 4)
    for _ in range(4):
        d = once(v)
    count = torch.tensor([max(7, min(20000, int(budget / d)))])
    dist.broadcast(count, 0)
    times = sorted(once(v) for _ in range(int(count)))
    if rank == 0:
        print(size, *(f"{1e6 * x:.2f}" for x in (times[0], times[len(times) // 2], times[-1])), flush=True)
dist.barrier()
