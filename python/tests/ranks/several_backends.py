"""Groups with one backend for tensors in the host's memory, and another one for those on GPUs. No
tensor is on a GPU here: it is looked at which backend is there for it."""

import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regroup.torch.distributed  # noqa: F401: registers the backend

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def use(group):
    for n in (4, 300_000):  # the longer one goes on in the background
        t = torch.full((n,), RANK + 1.0)
        dist.all_reduce(t, group=group)
        assert t[0] == t[-1] == SIZE * (SIZE + 1) / 2, t
        dist.all_reduce(t, group=group, async_op=True).wait()
        assert t[0] == t[-1] == SIZE * SIZE * (SIZE + 1) / 2, t
    rows = [torch.zeros(4) for _ in range(SIZE)]
    dist.all_gather(rows, torch.full((4,), float(RANK)), group=group)
    assert [r[0].item() for r in rows] == list(range(SIZE)), rows
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.ones(2 * SIZE), group=group)
    assert part.tolist() == [SIZE, SIZE], part
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK}, group=group)
    assert [o["rank"] for o in objects] == list(range(SIZE)), objects
    net = DistributedDataParallel(torch.nn.Linear(3, 3), process_group=group)
    net(torch.full((2, 3), float(RANK))).sum().backward()
    assert net.module.weight.grad[0, 0] == SIZE - 1, net.module.weight.grad  # the average of twice the ranks
    dist.barrier(group=group)


def case_ours_beside_anothers():
    for backend in ("cpu:regroup,cuda:gloo", "cpu:gloo,cuda:regroup", "cpu:regroup,cuda:regroup"):
        group = dist.new_group(backend=backend)
        got = ",".join(f"{d}:{group._get_backend(torch.device(d)).name()}" for d in ("cpu", "cuda"))
        assert got == backend, f"{got}, want {backend}"
        use(group)
        dist.destroy_process_group(group)
