"""DistributedOptimizer, against one process that sees the whole batch."""

import gc
import os
import weakref

import torch

import regroup.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 50),
        torch.nn.Tanh(),
        torch.nn.Linear(50, 50),
        torch.nn.Tanh(),
        torch.nn.Linear(50, 1),
    ).double()


def batch(rank, step, n=4):
    g = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(n, 6, generator=g).double(), torch.randn(n, 1, generator=g).double()


def loss(model, x, y):
    return torch.nn.functional.mse_loss(model(x), y)


def close(model, want, what, tolerance=1e-12):
    for (name, got), w in zip(model.named_parameters(), want.parameters()):
        worst = (got - w).abs().max().item()
        assert worst <= tolerance, f"{what}: {name} is off by {worst}"


def alike(model, what):
    for state in hvd.allgather_object(model.state_dict()):
        for key, value in model.state_dict().items():
            assert torch.equal(value, state[key]), f"{what}: {key} differs among ranks"


def trained(make, steps=4, **options):
    """One model trained by all ranks, and one by this process alone with the batches of all."""
    model, alone = network(), network()
    ours, theirs = make(model.parameters()), make(alone.parameters())
    ours = hvd.DistributedOptimizer(ours, model.named_parameters(), **options)
    for step in range(steps):
        ours.zero_grad()
        loss(model, *batch(RANK, step)).backward()
        ours.step()
        theirs.zero_grad()
        xs, ys = zip(*(batch(r, step) for r in range(SIZE)))
        loss(alone, torch.cat(xs), torch.cat(ys)).backward()
        theirs.step()
    return model, alone, ours


def case_average():
    for make in (
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda p: torch.optim.Adam(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    ):
        model, alone, ours = trained(make)
        close(model, alone, type(ours).__name__)
        alike(model, type(ours).__name__)
        assert (
            isinstance(ours, torch.optim.Optimizer)
            and type(ours).__name__ == type(make(model.parameters())).__name__
        )


def case_predivide():
    model, alone, _ = trained(lambda p: torch.optim.SGD(p, lr=0.1), gradient_predivide_factor=4.0)
    close(model, alone, "predivided")


def case_sum():
    model, _, _ = trained(lambda p: torch.optim.SGD(p, lr=0.1 / SIZE), op=hvd.Sum)
    want, _, _ = trained(lambda p: torch.optim.SGD(p, lr=0.1))
    close(model, want, "the sum at a smaller rate")


def case_compression():
    for how in (hvd.Compression.fp16, hvd.Compression.bf16):
        model, alone, _ = trained(lambda p: torch.optim.SGD(p, lr=0.1), compression=how)
        close(model, alone, how.__name__, 0.02)
        alike(model, how.__name__)


def case_several_backward_passes():
    model, alone = network(), network()
    ours = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), backward_passes_per_step=3
    )
    theirs = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(2):
        ours.zero_grad()
        theirs.zero_grad()
        for i in range(3):
            loss(model, *batch(RANK, 3 * step + i)).backward()
            xs, ys = zip(*(batch(r, 3 * step + i) for r in range(SIZE)))
            loss(alone, torch.cat(xs), torch.cat(ys)).backward()
        ours.step()
        theirs.step()
    close(model, alone, "three passes")


def case_too_many_passes():
    model = network()
    ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    if SIZE == 1:
        return
    loss(model, *batch(RANK, 0)).backward()
    try:
        loss(model, *batch(RANK, 1)).backward()
    except hvd.RegroupError as e:
        assert "backward_passes_per_step" in str(e)
    else:
        raise AssertionError("a second backward pass went unnoticed")
    try:
        ours.zero_grad()
    except hvd.RegroupError as e:
        assert "on their way" in str(e)
    ours.synchronize()


def case_clipping():
    model, alone = network(), network()
    ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    theirs = torch.optim.SGD(alone.parameters(), lr=0.1)
    for step in range(3):
        ours.zero_grad()
        theirs.zero_grad()
        loss(model, *batch(RANK, step)).backward()
        ours.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        with ours.skip_synchronize():
            ours.step()
        xs, ys = zip(*(batch(r, step) for r in range(SIZE)))
        loss(alone, torch.cat(xs), torch.cat(ys)).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.1)
        theirs.step()
    close(model, alone, "clipped")


class Forked(torch.nn.Module):
    """Takes a branch by rank: gradients of the other one are missing there."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.branches = torch.nn.ModuleList([torch.nn.Linear(6, 1).double() for _ in range(2)])
        self.unused = torch.nn.Linear(2, 2).double()

    def forward(self, x, branch):
        return self.branches[branch](x)


def case_missing_gradients():
    model = Forked()
    ours = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    )
    for step in range(3):
        ours.zero_grad()
        x, y = batch(RANK, step)
        torch.nn.functional.mse_loss(model(x, (RANK + step) % 2), y).backward()
        ours.step()
    alike(model, "branches by rank")


class Shuffled(torch.nn.Module):
    """Uses its layers in another order on each rank and in each step, so gradients become ready in
    another order."""

    def __init__(self, n=12):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(200, 200).double() for _ in range(n)])

    def forward(self, x, seed):
        order = torch.randperm(len(self.layers), generator=torch.Generator().manual_seed(seed))
        for i in order.tolist():
            x = torch.tanh(self.layers[i](x))
        return x


def case_gradients_in_any_order():
    os.environ["REGROUP_BUCKET_BYTES"] = "300000"
    model = Shuffled()
    ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(5):
        ours.zero_grad()
        model(torch.ones(2, 200).double(), 10 * step + RANK).sum().backward()
        ours.step()
    alike(model, "layers in any order")
    if SIZE > 1:
        assert len(ours._rg_reducer._buckets) > 3
    del os.environ["REGROUP_BUCKET_BYTES"]


def case_reductions_during_the_backward_pass():
    """When the backward pass is at the first layer, the gradients of the last ones are on their
    way, or have come."""
    os.environ["HOROVOD_FUSION_THRESHOLD"] = "100000"  # about two layers of the eight
    torch.manual_seed(0)
    layers = [torch.nn.Linear(100, 100) for _ in range(8)]
    model = torch.nn.Sequential(*layers)
    ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    seen = []

    def look(*_):
        if SIZE > 1 and ours._rg_reducer._buckets:  # not in the first step
            seen.append([b.launched for b in ours._rg_reducer._buckets])

    layers[1].weight.register_hook(look)
    for _ in range(3):
        ours.zero_grad()
        model(torch.full((2, 100), float(RANK))).sum().backward()
        ours.step()
    alike(model, "overlapped")
    if SIZE > 1:
        assert len(seen) == 2, seen
        for launched in seen:
            assert launched == sorted(launched, reverse=True), f"not in order: {launched}"
            assert launched[:2] == [True, True] and not launched[-1], launched
    os.environ["HOROVOD_FUSION_THRESHOLD"] = "0"
    alone = hvd.DistributedOptimizer(torch.optim.SGD(network().parameters(), lr=0.1))
    alone.synchronize()  # the first step: gradients of zeros
    if SIZE > 1:
        assert [len(b.members) for b in alone._rg_reducer._buckets] == [1] * 6
    del os.environ["HOROVOD_FUSION_THRESHOLD"]


def case_mixed_types():
    torch.manual_seed(0)
    model = torch.nn.ModuleList(
        [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3).double(), torch.nn.Linear(3, 3)]
    )
    ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    x = torch.full((2, 3), float(RANK))
    model[2](model[1](model[0](x).double()).float()).sum().backward()
    ours.step()
    alike(model, "float and double")


def case_sparse_gradients():
    def embedding():
        torch.manual_seed(0)
        return torch.nn.Embedding(10, 4, sparse=True)

    model = embedding()
    ours = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), sparse_as_dense=True
    )
    model(torch.tensor([RANK, RANK + 1])).sum().backward()
    ours.step()
    alike(model, "dense")
    for op in (hvd.Average, hvd.Sum):
        model = embedding()
        ours = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=op)
        for _ in range(2):
            ours.zero_grad()
            if RANK > 0 or SIZE == 1:  # rank 0 has none in either step
                model(torch.tensor([RANK, 9])).sum().backward()
            ours.step()
        factor = 1.0 if op == hvd.Sum else 1 / SIZE
        want = embedding().weight.detach().clone()
        for rank in range(SIZE):
            if rank > 0 or SIZE == 1:
                want[rank] -= 2 * 0.1 * factor
                want[9] -= 2 * 0.1 * factor
        assert torch.allclose(model.weight.detach(), want, atol=1e-6), (model.weight, want)


def case_scheduler():
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, gamma=0.5)  # comm before it is wrapped
    ours = hvd.DistributedOptimizer(plain)
    after = torch.optim.lr_scheduler.StepLR(ours, 1, gamma=0.5)
    for step in range(2):
        ours.zero_grad()
        loss(model, *batch(RANK, step)).backward()
        ours.step()
        scheduler.step()
        after.step()
    assert abs(ours.param_groups[0]["lr"] - 0.1 * 0.5**4) < 1e-12, ours.param_groups[0]["lr"]
    alike(model, "with schedulers")
    again = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    again.load_state_dict(again.state_dict())


def case_nothing_stays():
    """An optimizer that is no longer used goes, with its model's gradients."""
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    loss(model, *batch(RANK, 0)).backward()
    optimizer.step()
    reference = weakref.ref(optimizer)
    del model, optimizer
    gc.collect()
    assert reference() is None


def case_mistakes():
    model = network()
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    for options, says in (
        ({"op": hvd.Max}, "averaged or added"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step=0"),
        ({"named_parameters": list(model.named_parameters())[1:]}, "lacks 1"),
        ({"named_parameters": [("a", p) for p in model.parameters()]}, "has twice: a"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "goes with op=Average"),
    ):
        try:
            hvd.DistributedOptimizer(plain, **options)
        except hvd.InvalidArgumentError as e:
            assert says in str(e), e
        else:
            raise AssertionError(f"{options} went unnoticed")
