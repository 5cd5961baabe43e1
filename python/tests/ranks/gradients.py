"""Gradients of operations, beside finite differences of what all ranks' losses add up to."""

import torch

import regroup.torch as hvd

from .operations import RANK, SIZE

STEP = 1e-6

#: By what Horovod multiplies the gradient of the sum of all ranks' losses. It is not the same for
#: all operations.
FACTORS = {"allreduce": 1.0, "alltoall": 1.0, "allgather": 1 / SIZE, "broadcast": 1 / SIZE, "reducescatter": SIZE}


def inputs(shapes):
    """Of all ranks, the same everywhere; far from each other, so that no least or greatest changes.
    """
    torch.manual_seed(7)
    return [[torch.randn(s, dtype=torch.float64) * 3 for s in shapes] for _ in range(SIZE)]


def weights(shape, rank, number):
    torch.manual_seed(100 * rank + number)
    return torch.randn(shape, dtype=torch.float64)


def loss(results, rank):
    results = results if isinstance(results, (list, tuple)) else [results]
    return sum((r * weights(r.shape, rank, i)).sum() for i, r in enumerate(results))


def total(call, mine):
    """What the losses of all ranks add up to."""
    with torch.no_grad():
        return hvd.allreduce(loss(call(mine), RANK), op=hvd.Sum).item()


def compare(what, call, factor, shapes=((4 * SIZE, 2),)):
    gathered = inputs(shapes)
    mine = [x.clone().requires_grad_() for x in gathered[RANK]]
    loss(call(mine), RANK).backward()
    for k, x in enumerate(mine):
        places = [(0, 0), (x.shape[0] - 1, x.shape[1] - 1)]
        for rank in range(SIZE):
            for place in places:
                losses = []
                for sign in (1, -1):
                    moved = [v.clone() for v in gathered[RANK]]
                    if rank == RANK:
                        moved[k][place] += sign * STEP
                    losses.append(total(call, moved))
                want = factor * (losses[0] - losses[1]) / (2 * STEP)
                if rank == RANK:
                    got = x.grad[place].item()
                    assert abs(got - want) <= 1e-4 * max(1, abs(want)), f"{what}, tensor {k} at {place}: {got}, not {want}"


def case_allreduce():
    for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        for scales in ({}, {"prescale_factor": 0.5, "postscale_factor": 3.0}):
            compare(f"allreduce {op} {scales}", lambda x: hvd.allreduce(x[0], op=op, **scales), 1.0)


def case_product_with_zeros():
    x = torch.tensor([0.0 if RANK < 1 else 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    hvd.allreduce(x, op=hvd.Product).sum().backward()
    want = [SIZE * (2.0 ** (SIZE - 1) if RANK == 0 else 0.0), SIZE * 3.0 ** (SIZE - 1)]
    assert torch.allclose(x.grad, torch.tensor(want, dtype=torch.float64)), (x.grad, want)


def case_grouped_allreduce():
    shapes = ((3, 2), (1, 5))
    for op in (hvd.Sum, hvd.Average, hvd.Max):
        compare(f"grouped_allreduce {op}", lambda x: hvd.grouped_allreduce(x, op=op), 1.0, shapes)


def case_allgather():
    compare("allgather", lambda x: hvd.allgather(x[0]), FACTORS["allgather"])
    uneven = ((RANK + 1, 2),)
    gathered = [torch.ones(r + 1, 2, dtype=torch.float64) for r in range(SIZE)]
    x = gathered[RANK].clone().requires_grad_()
    hvd.allgather(x).mul(torch.arange(1.0, 1 + len(torch.cat(gathered))).double().unsqueeze(1)).sum().backward()
    first = sum(range(1, RANK + 1))
    want = torch.arange(first + 1.0, first + 2.0 + RANK).double().unsqueeze(1).expand(RANK + 1, 2)
    assert torch.allclose(x.grad, want), (uneven, x.grad, want)


def case_grouped_allgather():
    shapes = ((3, 2), (1, 5))
    compare("grouped_allgather", hvd.grouped_allgather, FACTORS["allgather"], shapes)


def case_broadcast():
    for root in range(SIZE):
        compare(f"broadcast {root}", lambda x: hvd.broadcast(x[0], root), FACTORS["broadcast"])


def case_alltoall():
    compare("alltoall", lambda x: hvd.alltoall(x[0]), FACTORS["alltoall"])
    splits = [4 * SIZE] + [0] * (SIZE - 1)
    compare("alltoall, uneven", lambda x: hvd.alltoall(x[0], splits)[0], FACTORS["alltoall"])


def case_reducescatter():
    for op in (hvd.Sum, hvd.Average):
        for scales in ({}, {"prescale_factor": 0.5, "postscale_factor": 3.0}):
            for rows in (4 * SIZE, 4 * SIZE + 1):
                compare(
                    f"reducescatter {op} {scales} of {rows} rows",
                    lambda x: hvd.reducescatter(x[0], op=op, **scales),
                    FACTORS["reducescatter"],
                    ((rows, 2),),
                )
    shapes = ((SIZE, 2), (2 * SIZE, 1))
    compare(
        "grouped_reducescatter",
        lambda x: hvd.grouped_reducescatter(x, op=hvd.Sum),
        FACTORS["reducescatter"],
        shapes,
    )


def case_compressed():
    x = torch.full((3,), 1.5, requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), float(SIZE))), x.grad


def case_a_gradient_twice():
    x = torch.ones(3, requires_grad=True)
    y = hvd.allreduce(x, op=hvd.Sum).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0 * SIZE)), x.grad
