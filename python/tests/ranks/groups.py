"""Process sets, join, batch normalisation over all ranks, the timeline, and leaving and coming
again."""

import json
import os
import tempfile

import torch

import regroup.torch as hvd
from regroup.torch.world import world

from .operations import RANK, SIZE, same


def case_process_sets():
    if SIZE == 1:
        refused(lambda: hvd.add_process_set([0]), "has these ranks already")
        return
    even = hvd.add_process_set([r for r in range(SIZE) if r % 2 == 0])
    odd = hvd.add_process_set(hvd.ProcessSet([r for r in range(SIZE) if r % 2]))
    mine = even if RANK % 2 == 0 else odd
    ranks = mine.ranks
    assert mine.included() and mine.size() == len(ranks) and mine.rank() == ranks.index(RANK)
    assert hvd.global_process_set.ranks == list(range(SIZE))
    for _ in range(3):
        total = torch.tensor([float(sum(ranks))])
        same(hvd.allreduce(torch.tensor([float(RANK)]), op=hvd.Sum, process_set=mine), total, "sum")
        mean = total / len(ranks)
        same(hvd.allreduce(torch.tensor([float(RANK)]), process_set=mine), mean, "average")
        same(hvd.allgather(torch.tensor([RANK]), process_set=mine), torch.tensor(ranks), "allgather")
        for root in ranks:  # a rank of the world
            got = hvd.broadcast(torch.tensor([RANK]), root, process_set=mine)
            same(got, torch.tensor([root]), "broadcast")
        x = torch.arange(len(ranks)) + 10 * RANK
        want = torch.tensor([10 * r for r in ranks]) + mine.rank()
        same(hvd.alltoall(x, process_set=mine), want, "alltoall")
        x = torch.full((len(ranks), 2), float(RANK))
        want = torch.full((1, 2), float(sum(ranks)))
        same(hvd.reducescatter(x, op=hvd.Sum, process_set=mine), want, "reducescatter")
        assert hvd.allgather_object(RANK, process_set=mine) == ranks
        assert hvd.broadcast_object(RANK, ranks[-1], process_set=mine) == ranks[-1]
        hvd.barrier(process_set=mine)
        hvd.barrier()
    other = odd if mine is even else even
    refused(lambda: hvd.allreduce(torch.ones(1), process_set=other), f"rank {RANK} is not in")
    refused(lambda: hvd.broadcast(torch.ones(1), other.ranks[0], process_set=mine), "root_rank")
    refused(lambda: hvd.add_process_set(even.ranks), "has these ranks already")
    refused(lambda: hvd.add_process_set([0, SIZE]), "within 0 to")
    refused(lambda: hvd.ProcessSet([0, 0]), "each rank once")
    for s in (odd, even):
        assert hvd.remove_process_set(s)
    refused(lambda: hvd.allreduce(torch.ones(1), process_set=even), "was not added")
    assert not hvd.remove_process_set(even) and not hvd.remove_process_set(hvd.global_process_set)
    again = hvd.add_process_set([0])  # ranks that were in a set before
    if RANK == 0:
        same(hvd.allreduce(torch.ones(1), process_set=again), torch.ones(1), "again")
    hvd.remove_process_set(again)


def case_other_sets_on_some_rank():
    if SIZE > 1:
        refused(lambda: hvd.add_process_set([RANK]), "not the same on all ranks")
        hvd.barrier()


def refused(call, says):
    try:
        call()
    except hvd.InvalidArgumentError as e:
        assert says in str(e), e
    else:
        raise AssertionError(f"no error; want one that says {says!r}")


def case_join():
    """Rank r makes r+1 steps; an average divides by all ranks all the same, as Horovod's."""
    for _ in range(2):
        for step in range(RANK + 1):
            total = float(sum(range(step, SIZE)))
            got = hvd.allreduce(torch.tensor([float(RANK)]), op=hvd.Sum, name="step")
            same(got, torch.tensor([total]), "sum")
            got = hvd.allreduce(torch.tensor([float(RANK)]), name="mean")
            same(got, torch.tensor([total / SIZE]), "average")
            got = hvd.allreduce(torch.tensor([RANK + 7]), op=hvd.Min, name="least")
            same(got, torch.tensor([step + 7]), "least")
        assert hvd.join() == SIZE - 1
        same(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(SIZE)]), "after it")


def case_an_optimizer_and_join():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    for step in range(1 + RANK):
        optimizer.zero_grad()
        (p * (RANK + 1)).sum().backward()
        optimizer.step()
    hvd.join()
    if RANK == SIZE - 1:
        want = -sum(sum(range(step + 1, SIZE + 1)) / SIZE for step in range(SIZE))
        assert torch.allclose(p.detach(), torch.full((2,), want)), (p, want)


def case_batch_normalisation():
    """As that of one process over all batches, which are not equally large."""
    for shape, affine in (((3,), True), ((3, 4), True), ((3, 4, 2), False)):
        torch.manual_seed(3)
        batches = [torch.randn((r + 2,) + shape, dtype=torch.float64) * (r + 1) for r in range(SIZE)]
        kind = [torch.nn.BatchNorm1d, torch.nn.BatchNorm1d, torch.nn.BatchNorm2d][len(shape) - 1]
        whole, ours = kind(3, affine=affine).double(), hvd.SyncBatchNorm(3, affine=affine).double()
        everything = torch.cat(batches).requires_grad_()
        mine = batches[RANK].clone().requires_grad_()
        first = sum(len(b) for b in batches[:RANK])
        rows = slice(first, first + len(mine))
        for _ in range(2):
            want, got = whole(everything), ours(mine)
            same_numbers(got, want[rows], "output")
        same_numbers(ours.running_mean, whole.running_mean, "running mean")
        same_numbers(ours.running_var, whole.running_var, "running variance")
        factor = torch.arange(1.0, 1 + len(everything)).double().reshape([-1] + [1] * len(shape))
        (want * factor).sum().backward()
        (got * factor[rows]).sum().backward()
        same_numbers(mine.grad, everything.grad[rows], "gradient")
        if affine:
            same_numbers(hvd.allreduce(ours.weight.grad, op=hvd.Sum), whole.weight.grad, "weight")
            same_numbers(hvd.allreduce(ours.bias.grad, op=hvd.Sum), whole.bias.grad, "bias")
        ours.eval(), whole.eval()
        same_numbers(ours(mine), whole(everything)[rows], "in use")


def same_numbers(got, want, what):
    assert torch.allclose(got, want, rtol=1e-9, atol=1e-9), f"{what}: {got}, not {want}"


def case_the_timeline():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "timeline.json")
        hvd.start_timeline(path, mark_cycles=True)
        hvd.allreduce(torch.ones(1), name="seen")
        hvd.broadcast(torch.ones(1), 0, name="seen")
        hvd.stop_timeline()
        hvd.allreduce(torch.ones(1), name="unseen")
        if RANK > 0 or SIZE == 1:
            assert not os.path.exists(path)
            return
        with open(path, encoding="utf-8") as f:
            events = json.load(f)
        rows = {e["args"]["name"]: e["pid"] for e in events if e.get("name") == "process_name"}
        assert set(rows) == {"allreduce.seen", "broadcast.seen"}, rows
        for row, what in (("allreduce.seen", "ALLREDUCE"), ("broadcast.seen", "BROADCAST")):
            phases = [e for e in events if e["pid"] == rows[row] and e["ph"] in "BE"]
            names = [e.get("name") for e in phases]
            assert names == ["NEGOTIATE_" + what, None, what, None], names
            times = [e["ts"] for e in phases]
            assert times == sorted(times) and times[0] > 0, times
        assert any(e["name"] == "CYCLE_START" for e in events if e["ph"] == "i"), events


def case_while_another_rank_leads():
    """When rank 0 is new, rank 1 takes its number while the ranks are given a state."""
    with world.root_is_survivor(RANK != 0):
        swap = {0: 1, 1: 0}.get(RANK, RANK) if SIZE > 1 else RANK
        assert hvd.rank() == swap
        leads = 1 if SIZE > 1 else 0
        assert hvd.broadcast_object(RANK, 0) == leads
        same(hvd.broadcast(torch.tensor([RANK]), 0), torch.tensor([leads]), "broadcast")
        p = torch.tensor([float(RANK)])
        hvd.broadcast_parameters({"p": p}, 0)
        same(p, torch.tensor([float(leads)]), "parameters")
        total = torch.tensor([sum(range(SIZE))])
        same(hvd.allreduce(torch.tensor([RANK]), op=hvd.Sum), total, "allreduce")
        if SIZE > 1:
            try:
                hvd.allgather(torch.tensor([RANK]))
            except hvd.RegroupError as e:
                assert "not offered" in str(e), e
            else:
                raise AssertionError("gathered in an order that is not that of the ranks")
    assert hvd.rank() == RANK
    same(hvd.broadcast(torch.tensor([RANK]), 0), torch.tensor([0]), "after it")


def case_leaving_and_coming_again():
    for _ in range(5):
        if SIZE > 1:
            some = hvd.add_process_set([0])
            if RANK == 0:
                hvd.allreduce(torch.ones(1), process_set=some)
        hvd.barrier()
        hvd.shutdown()
        hvd.init()
        assert (hvd.rank(), hvd.size()) == (RANK, SIZE)
        same(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(SIZE)]), "again")
