"""DistributedDataParallel on our backend, beside gloo's."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .distributed import GLOO, RANK, SIZE, random_tensor, same


def network():
    torch.manual_seed(RANK)  # differently on each rank: DDP has to give all the same
    return torch.nn.Sequential(
        torch.nn.Linear(64, 512),
        torch.nn.ReLU(),
        torch.nn.Linear(512, 512),
        torch.nn.BatchNorm1d(512),
        torch.nn.Linear(512, 10),
    )


def train(group, steps=6, **options):
    model = DistributedDataParallel(network(), process_group=group, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    g = torch.Generator().manual_seed(100 + RANK)
    for _ in range(steps):
        x = torch.randn(32, 64, generator=g)
        y = torch.randint(0, 10, (32,), generator=g)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return list(model.module.state_dict().items())


def case_ddp():
    """Two ranks: the same bits as gloo's, for a + b is b + a. More add up in another order: as
    close as float32 can be."""
    for options in (
        {},
        {"bucket_cap_mb": 0.1},
        {"gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
        {"static_graph": True},
    ):
        ours, theirs = train(None, **options), train(GLOO, **options)
        for (name, got), (_, want) in zip(ours, theirs):
            if SIZE <= 2:
                same(got, want, f"{name} with {options}")
            else:
                worst = (
                    (got.double() - want.double()).abs().max() / want.double().abs().max()
                ).item()
                assert worst < 1e-5, f"{name} with {options}: off by {worst}"
            gathered = [torch.empty_like(got) for _ in range(SIZE)]
            dist.all_gather(gathered, got.contiguous())
            if "num_batches" not in name and "running" not in name:
                for other in gathered:
                    same(other, got, f"{name} differs among ranks with {options}")


def case_ddp_compressed():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    model = DistributedDataParallel(network())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    model(torch.randn(8, 64)).sum().backward()
    for p in model.parameters():
        assert torch.isfinite(p.grad).all()


def case_ddp_built_in_hooks():
    """As torch's hooks in Python: the gradients are those of the group, in 16 bits or not."""
    for kind, tolerance in (
        (dist.BuiltinCommHookType.ALLREDUCE, 1e-6),
        (dist.BuiltinCommHookType.FP16_COMPRESS, 1e-2),
    ):
        grads = []
        for hook in (None, kind):
            model = DistributedDataParallel(network())
            if hook is not None:
                model._register_builtin_comm_hook(hook)
            for _ in range(2):  # buckets are made anew after the first
                model.zero_grad()
                model(random_tensor((6, 64), torch.float32)).pow(2).mean().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for want, got in zip(*grads):
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def case_ddp_uneven_inputs():
    """A rank whose batches have ended takes part in the operations of the others. The reducer, which
    is C++, gets a Work from Python for that."""
    from torch.distributed.algorithms.join import Join

    parallel = DistributedDataParallel(torch.nn.Linear(4, 2))
    with Join([parallel]):
        for _ in range(1 + RANK):
            parallel(torch.ones(3, 4)).sum().backward()
    last = random_tensor((5,), torch.float32)
    dist.all_reduce(last)
    same(last, sum(random_tensor((5,), torch.float32, rank=r) for r in range(SIZE)), "afterwards")
