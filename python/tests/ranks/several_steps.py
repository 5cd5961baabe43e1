"""Operations that the backend puts together from several: all_reduce of sparse tensors, beside
gloo's, and monitored_barrier. And what is refused, because the result would not be what was asked
for."""

import datetime
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import regroup.torch.distributed  # noqa: F401: registers the backend

dist.init_process_group("regroup", timeout=datetime.timedelta(seconds=60))
GLOO = dist.new_group(backend="gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def refused(call, *says):
    try:
        call()
    except Exception as e:
        for text in says:
            assert text in str(e), f"{type(e).__name__}: {e}, want {text!r}"
    else:
        raise AssertionError(f"no error; want one that says {says}")


def regroup_of(group):
    """What has abort(): the group, or the backend that it holds."""
    return getattr(group, "_inner", group)


def sparse(dims, dense, dtype, seed=0, rank=RANK):
    """A tensor whose number of elements differs among ranks: rank 0 has none; with duplicates."""
    g = torch.Generator().manual_seed(100 * seed + rank)
    count = 5 * rank
    shape = [4] * dims + [3] * dense
    indices = torch.randint(0, 4, (dims, count), generator=g)
    values = torch.randint(1, 9, [count] + [3] * dense, generator=g).to(dtype)
    return torch.sparse_coo_tensor(indices, values, shape)


def same(got, want, what):
    assert torch.equal(got.to_dense(), want.to_dense()), f"{what}: {got}, want {want}"


def case_sparse():
    for dims, dense in ((1, 0), (2, 0), (3, 0), (1, 2), (2, 1)):
        for dtype in (torch.float32, torch.float64, torch.int64):
            got, want = sparse(dims, dense, dtype), sparse(dims, dense, dtype)
            dist.all_reduce(got)
            dist.all_reduce(want, group=GLOO)
            assert got.is_coalesced()
            same(got, want, f"{dims} + {dense} dimensions of {dtype}")
    average = sparse(1, 1, torch.float32)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    want = sum(sparse(1, 1, torch.float32, rank=r).to_dense() for r in range(SIZE)) / SIZE
    torch.testing.assert_close(average.to_dense(), want)
    nothing = torch.sparse_coo_tensor(torch.empty(1, 0, dtype=torch.int64), torch.empty(0), [3])
    dist.all_reduce(nothing)
    same(nothing, torch.zeros(3), "nothing")


def case_sparse_async():
    """Two at once, with a dense one between them; the call returns although no rank has come."""
    tensors = [sparse(1, 2, torch.float32, seed) for seed in range(2)]
    between = torch.ones(3)
    group = dist.new_group()

    def start():
        first = dist.all_reduce(tensors[0], group=group, async_op=True)
        dense = dist.all_reduce(between, group=group, async_op=True)
        return [first, dense, dist.all_reduce(tensors[1], group=group, async_op=True)]

    if RANK == 0:
        works = start()
        dist.barrier()  # the others begin after it
    else:
        dist.barrier()
        works = start()
    for work in reversed(works):
        assert work.wait() and work.is_completed() and work.is_success()
    same(between, torch.full((3,), float(SIZE)), "the dense one")
    for seed, tensor in enumerate(tensors):
        want = sum(sparse(1, 2, torch.float32, seed, r).to_dense() for r in range(SIZE))
        same(tensor, want, f"number {seed}")
    tensor = sparse(1, 0, torch.float32)
    done = dist.all_reduce(tensor, async_op=True).get_future().then(lambda f: f.value()[0])
    want = sum(sparse(1, 0, torch.float32, rank=r).to_dense() for r in range(SIZE))
    same(done.wait(), want, "by a future")


def case_sparse_gradients():
    """The embedding's gradient is sparse; DDP gives it to the backend from C++."""

    def train(group):
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Embedding(50, 8, sparse=True), torch.nn.Linear(8, 2))
        parallel = DistributedDataParallel(model, process_group=group)
        optimizer = torch.optim.SGD(parallel.parameters(), lr=0.5)
        g = torch.Generator().manual_seed(RANK)
        for _ in range(3):
            optimizer.zero_grad()
            parallel(torch.randint(0, 50, (4,), generator=g)).square().sum().backward()
            optimizer.step()
        return model

    for got, want in zip(train(None).parameters(), train(GLOO).parameters()):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def case_sparse_time_limit():
    """A rank that does not come ends the group, as with other operations; an abort does at once."""
    if SIZE == 1:
        return
    for asynchronous in (False, True):
        group = dist.new_group(timeout=datetime.timedelta(seconds=0.5))
        if RANK == 0:
            tensor = sparse(1, 0, torch.float32)
            refused(
                lambda: dist.all_reduce(tensor, group=group, async_op=asynchronous).wait(),
                "the timeout of 0.5 s",
            )
        dist.barrier()
    group = dist.new_group()
    if RANK == 0:
        work = dist.all_reduce(sparse(1, 0, torch.float32), group=group, async_op=True)
        refused(lambda: work.wait(datetime.timedelta(seconds=0.2)), "has not ended after")
        assert not work.is_completed()
        regroup_of(group).abort()
        refused(work.wait, "abort")
    dist.barrier()


def case_sparse_refused():
    ours = torch.ones(3).to_sparse()
    refused(lambda: dist.all_reduce(ours, dist.ReduceOp.MAX), "only SUM and AVG")
    refused(lambda: dist.all_reduce(torch.ones(2, 2).to_sparse_csr()), "parse")
    refused(lambda: dist.broadcast(ours, 0), "parse")
    if SIZE > 1:
        other = torch.ones(3 + RANK % 2).to_sparse()
        refused(lambda: dist.all_reduce(other), "another sparse tensor")
        work = dist.all_reduce(other, async_op=True)
        refused(work.wait, "another sparse tensor")
        assert not work.is_success()
    dist.barrier()  # and it still works


def case_refused():
    for dtype in (torch.uint8, torch.int32, torch.int64):
        ints = torch.ones(3, dtype=dtype)
        refused(lambda: dist.all_reduce(ints, dist.ReduceOp.AVG), "no average", "SUM")
        refused(lambda: dist.reduce(ints, 0, dist.ReduceOp.AVG), "no average")
    if SIZE > 1:
        peer = (RANK + 1) % SIZE
        refused(lambda: dist.send(torch.ones(1), peer, tag=-1), "negative")
        refused(lambda: dist.recv(torch.ones(1), peer, tag=-1), "negative")
    dist.barrier()


def case_monitored_barrier():
    soon = datetime.timedelta(seconds=30)
    for _ in range(3):
        dist.group.WORLD.monitored_barrier(soon)
        dist.group.WORLD.monitored_barrier(soon, wait_all_ranks=True)
        dist.all_reduce(torch.ones(1))


def case_monitored_barrier_misses_one():
    """Rank 0 says who, and the group ends: also for those that have come, and the one that has
    not."""
    if SIZE < 2:
        return
    limit = datetime.timedelta(seconds=0.3)
    for everybody in (False, True):
        group = dist.new_group()
        dist.barrier()
        begin = time.monotonic()
        if RANK == 0:
            missing = [r for r in range(1, SIZE) if r != 2]
            names = ", ".join(map(str, missing)) if everybody else "1"
            says = f"Rank{'s' if everybody else ''} {names} failed to pass monitoredBarrier"
            refused(lambda: group.monitored_barrier(limit, wait_all_ranks=everybody), says)
            assert time.monotonic() - begin > 0.25
        elif RANK == 2:
            refused(
                lambda: group.monitored_barrier(limit, wait_all_ranks=everybody),
                "Rank 2 successfully reached monitoredBarrier",
                "failed to pass monitoredBarrier in 0.3 s",
            )
        dist.barrier()
        refused(lambda: dist.all_reduce(torch.ones(1), group=group), "failed to pass")
    group = dist.new_group()
    if RANK == 0:
        now = datetime.timedelta(0)
        refused(lambda: group.monitored_barrier(now), "Rank 0 timed out in monitoredBarrier")
    dist.all_reduce(torch.ones(1), group=group)  # nothing was done
