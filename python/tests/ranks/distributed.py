"""torch.distributed's operations on our backend, each beside gloo's (or what it should be, where
gloo has none)."""

import datetime
import functools
import os
import threading
import time
import weakref

import torch
import torch.distributed as dist

import regroup.torch.distributed  # noqa: F401: registers the backend

dist.init_process_group("regroup", timeout=datetime.timedelta(seconds=60))
GLOO = dist.new_group(backend="gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
COUNTS = [1, 5, 1000, 200_003]  # the last goes on in the background

TYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]


def random_tensor(shape, dtype, seed=0, rank=RANK):
    g = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(1, 3, shape, generator=g).to(dtype)


def same(got, want, what):
    assert torch.equal(got, want), f"{what}: {got.flatten()[:8]}, want {want.flatten()[:8]}"


def case_names():
    group = dist.distributed_c10d._get_default_group()
    assert dist.get_backend() == "regroup"
    assert (group.rank(), group.size(), group.name()) == (RANK, SIZE, "regroup")


def case_all_reduce():
    for dtype in TYPES:
        for op in OPS:
            for n in COUNTS:
                got, want = random_tensor((n,), dtype), random_tensor((n,), dtype)
                dist.all_reduce(got, op)
                dist.all_reduce(want, op, group=GLOO)
                same(got, want, f"{op} of {n} {dtype}")
    z = torch.complex(random_tensor((9,), torch.float32), random_tensor((9,), torch.float32, 1))
    want = z.clone()
    dist.all_reduce(z)
    dist.all_reduce(want, group=GLOO)
    same(z, want, "complex")
    x = random_tensor((9,), torch.bfloat16)
    dist.all_reduce(x)
    same(x, sum(random_tensor((9,), torch.bfloat16, rank=r) for r in range(SIZE)), "bfloat16")
    for op, combine in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        x = random_tensor((9,), torch.int32)
        dist.all_reduce(x, op)
        want = random_tensor((9,), torch.int32, rank=0)
        for r in range(1, SIZE):
            want = combine(want, random_tensor((9,), torch.int32, rank=r))
        same(x, want, f"{op}")
    x = torch.full((3,), float(RANK))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    same(x, torch.full((3,), (SIZE - 1) / 2), "average")
    view = torch.ones(6, 6).t()[::2]
    dist.all_reduce(view)
    same(view, torch.full((3, 6), float(SIZE)), "a view")
    empty = torch.empty(0)
    dist.all_reduce(empty)


def case_all_reduce_async():
    tensors = [random_tensor((n,), torch.float32, i) for i, n in enumerate([10, 500_000, 3, 300_000])]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    last = torch.ones(2)
    dist.all_reduce(last)  # a small one comes after those that go on
    same(last, torch.full((2,), float(SIZE)), "after")
    for i, (t, w) in enumerate(zip(tensors, works)):
        assert w.wait() and w.is_completed() and w.is_success()
        want = sum(random_tensor(t.shape, torch.float32, i, r) for r in range(SIZE))
        same(t, want, f"started {i}")
    for n in (10, 500_000):
        t = torch.ones(n)
        doubled = dist.all_reduce(t, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
        same(doubled.wait(), torch.full((n,), 2.0 * SIZE), f"future of {n}")
    from regroup.torch.c10d import work

    for _ in range(200):
        dist.all_reduce(torch.ones(70_000), async_op=True)  # nobody waits
    last = dist.all_reduce(torch.ones(70_000), async_op=True)
    last.wait()
    dist.all_reduce(torch.ones(70_000), async_op=True).wait()
    assert len(work._open) <= work._MANY, f"{len(work._open)} operations are remembered"


def case_all_reduce_coalesced():
    for n in (10, 100_000):
        tensors = [random_tensor((n,), torch.float32, i) for i in range(5)]
        want = [sum(random_tensor((n,), torch.float32, i, r) for r in range(SIZE)) for i in range(5)]
        dist.all_reduce_coalesced(tensors)
        for t, w in zip(tensors, want):
            same(t, w, f"{n} coalesced")


def case_broadcast():
    for root in range(SIZE):
        for dtype in TYPES + [torch.bool, torch.complex64]:
            x = random_tensor((7,), dtype)
            dist.broadcast(x, root)
            same(x, random_tensor((7,), dtype, rank=root), f"{dtype} from {root}")
    x = random_tensor((300_000,), torch.float32)
    dist.broadcast(x, SIZE - 1, async_op=True).wait()
    same(x, random_tensor((300_000,), torch.float32, rank=SIZE - 1), "a large one")


def case_reduce():
    for root in range(SIZE):
        for n in COUNTS:
            x = random_tensor((n,), torch.float32)
            dist.reduce(x, root)
            want = sum(random_tensor((n,), torch.float32, rank=r) for r in range(SIZE))
            same(x, want if RANK == root else random_tensor((n,), torch.float32), f"{n} at {root}")


def case_bits():
    x = [random_tensor((SIZE * 3,), torch.int64, rank=r) for r in range(SIZE)]
    for op, combine in (
        (dist.ReduceOp.BAND, torch.bitwise_and),
        (dist.ReduceOp.BOR, torch.bitwise_or),
        (dist.ReduceOp.BXOR, torch.bitwise_xor),
    ):
        want = functools.reduce(combine, x)
        for root in range(SIZE):
            got = x[RANK].clone()
            dist.reduce(got, root, op)
            same(got, want if RANK == root else x[RANK], f"{op} at {root}")
        got = torch.empty(3, dtype=torch.int64)
        dist.reduce_scatter_tensor(got, x[RANK], op)
        same(got, want[3 * RANK : 3 * RANK + 3], f"{op} scattered")


def case_all_gather():
    for n in COUNTS:
        for dtype in (torch.float32, torch.int64, torch.bool):
            got = [torch.zeros(n, dtype=dtype) for _ in range(SIZE)]
            dist.all_gather(got, random_tensor((n,), dtype))
            for r, g in enumerate(got):
                same(g, random_tensor((n,), dtype, rank=r), f"{n} {dtype} of {r}")
        whole = torch.empty(SIZE * n)
        dist.all_gather_into_tensor(whole, random_tensor((n,), torch.float32))
        same(
            whole,
            torch.cat([random_tensor((n,), torch.float32, rank=r) for r in range(SIZE)]),
            "into tensor",
        )
        parts = list(torch.empty(SIZE, n).unbind())
        dist.all_gather(parts, random_tensor((n,), torch.float32))
        same(torch.cat(parts), whole, "into views of one tensor")
    outputs = [[torch.empty(3), torch.empty(2)] for _ in range(SIZE)]
    dist.all_gather_coalesced(outputs, [random_tensor((3,), torch.float32), random_tensor((2,), torch.float32, 1)])
    for r, (a, b) in enumerate(outputs):
        same(a, random_tensor((3,), torch.float32, rank=r), "coalesced")
        same(b, random_tensor((2,), torch.float32, 1, r), "coalesced")


def case_reduce_scatter():
    for n in COUNTS:
        lists = [[random_tensor((n,), torch.float32, i, r) for i in range(SIZE)] for r in range(SIZE)]
        want = sum(lists[r][RANK] for r in range(SIZE))
        got = torch.empty(n)
        dist.reduce_scatter(got, lists[RANK])
        same(got, want, f"{n}")
        assert torch.equal(lists[RANK][0], random_tensor((n,), torch.float32, 0)), "the input has changed"
        got = torch.empty(n)
        dist.reduce_scatter_tensor(got, torch.cat(lists[RANK]))
        same(got, want, f"{n} of one tensor")


def case_reduce_scatter_of_uneven_parts():
    """Rank r gets (r + 1) * n elements, or none at all."""
    for n in COUNTS:
        for dtype in (torch.float32, torch.int64, torch.complex64):
            for sizes in ([n * (i + 1) for i in range(SIZE)], [n * i for i in range(SIZE)]):
                lists = [
                    [random_tensor((size,), dtype, i, r) for i, size in enumerate(sizes)]
                    for r in range(SIZE)
                ]
                got = torch.empty(sizes[RANK], dtype=dtype)
                dist.reduce_scatter(got, lists[RANK])
                same(got, sum(lists[r][RANK] for r in range(SIZE)), f"{sizes} of {dtype}")
    if SIZE > 1:
        bits = [torch.full((i + 1,), 1 << RANK) for i in range(SIZE)]
        got = torch.empty(RANK + 1, dtype=torch.int64)
        dist.reduce_scatter(got, bits, op=dist.ReduceOp.BOR)
        same(got, torch.full((RANK + 1,), (1 << SIZE) - 1), "bits")


def case_names_in_a_profile():
    """As gloo gives them."""
    with torch.profiler.profile() as profile:
        t, parts = torch.ones(2), [torch.ones(2) for _ in range(SIZE)]
        dist.all_reduce(t)
        dist.all_reduce(torch.ones(300_000), async_op=True).wait()
        dist.broadcast(t, 0)
        dist.reduce(t, 0)
        dist.all_gather(parts, t)
        dist.reduce_scatter(t, parts)
        dist.barrier()
        if SIZE > 1 and RANK < 2:
            dist.send(t, 1) if RANK == 0 else dist.recv(t, 0)
    names = {e.name for e in profile.events()}
    want = {"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "barrier"}
    if SIZE > 1 and RANK < 2:
        want.add("recv" if RANK else "send")
    missing = {"regroup:" + name for name in want} - names
    assert not missing, (missing, sorted(n for n in names if ":" in n))


def case_gather_and_scatter():
    for root in range(SIZE):
        into = [torch.empty(4) for _ in range(SIZE)] if RANK == root else None
        dist.gather(random_tensor((4,), torch.float32), into, dst=root)
        for r, g in enumerate(into or []):
            same(g, random_tensor((4,), torch.float32, rank=r), f"gathered from {r} at {root}")
        parts = [random_tensor((4,), torch.int64, i) for i in range(SIZE)] if RANK == root else None
        got = torch.empty(4, dtype=torch.int64)
        dist.scatter(got, parts, src=root)
        same(got, random_tensor((4,), torch.int64, RANK, root), f"scattered from {root}")


def case_all_to_all():
    for n in (3, 100_000):
        x = torch.arange(SIZE * n, dtype=torch.float32) + 1000 * RANK
        got = torch.empty(SIZE * n)
        dist.all_to_all_single(got, x)
        want = torch.cat(
            [
                (torch.arange(SIZE * n, dtype=torch.float32) + 1000 * r)[RANK * n : RANK * n + n]
                for r in range(SIZE)
            ]
        )
        same(got, want, f"{n} each")
    splits = [r + 1 for r in range(SIZE)]
    got = torch.empty((RANK + 1) * SIZE, 2)
    dist.all_to_all_single(
        got, torch.full((sum(splits), 2), float(RANK)), [RANK + 1] * SIZE, splits
    )
    want = torch.cat([torch.full((RANK + 1, 2), float(r)) for r in range(SIZE)])
    same(got, want, "by splits")
    into = [torch.empty(RANK + 1) for _ in range(SIZE)]
    dist.all_to_all(into, [torch.full((r + 1,), float(RANK)) for r in range(SIZE)])
    for r, g in enumerate(into):
        same(g, torch.full((RANK + 1,), float(r)), f"list from {r}")


def case_send_and_recv():
    if SIZE == 1:
        return
    to, source = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for n in (0, 3, 500_000):
        got = torch.empty(n)
        work = dist.irecv(got, source)
        dist.send(random_tensor((n,), torch.float32), to)
        work.wait()
        same(got, random_tensor((n,), torch.float32, rank=source), f"{n} around the ring")
    a, b = torch.empty(2), torch.empty(2)
    works = [dist.irecv(a, source, tag=1), dist.irecv(b, source, tag=2)]
    dist.send(torch.full((2,), 2.0), to, tag=2)
    dist.send(torch.full((2,), 1.0), to, tag=1)
    for w in works:
        w.wait()
    same(torch.cat([a, b]), torch.tensor([1.0, 1, 2, 2]), "by tags")
    # A message that is waited for does not hold up a reduction.
    late = torch.empty(1)
    work = dist.irecv(late, source, tag=9)
    large = torch.ones(500_000)
    dist.all_reduce(large)
    dist.send(torch.ones(1), to, tag=9)
    work.wait()
    got = torch.empty(3)
    for r in dist.batch_isend_irecv(
        [  # the receive first, on all ranks
            dist.P2POp(dist.irecv, got, source),
            dist.P2POp(dist.isend, torch.full((3,), float(RANK)), to),
        ]
    ):
        r.wait()
    same(got, torch.full((3,), float(source)), "a batch")
    try:
        dist.send(torch.ones(1), RANK)
    except Exception as e:
        assert "another one" in str(e) or "same as" in str(e), e  # torch 2 looks by itself


def case_recv_of_any_rank():
    for n in (1, 100_000):
        if RANK:
            dist.send(torch.full((n,), float(RANK)), 0, tag=n)
            continue
        senders = []
        for _ in range(SIZE - 1):
            got = torch.empty(n)
            senders.append(dist.recv(got, tag=n))
            same(got, torch.full((n,), float(senders[-1])), f"from {senders[-1]}")
        assert sorted(senders) == list(range(1, SIZE)), senders


def case_asynchronous_operations_do_not_hold_the_caller():
    """Whatever their size: the call returns although no other rank has come."""
    group = dist.new_group()
    for n in (1, 300_000):
        calls = {
            "all_reduce": lambda: dist.all_reduce(torch.ones(n), group=group, async_op=True),
            "all_reduce of bits": lambda: dist.all_reduce(
                torch.ones(n, dtype=torch.int32), dist.ReduceOp.BOR, group=group, async_op=True
            ),
            "broadcast": lambda: dist.broadcast(torch.ones(n), 0, group=group, async_op=True),
            "reduce": lambda: dist.reduce(torch.ones(n), 0, group=group, async_op=True),
            "all_gather": lambda: dist.all_gather(
                [torch.ones(n) for _ in range(SIZE)], torch.ones(n), group=group, async_op=True
            ),
            "all_to_all_single": lambda: dist.all_to_all_single(
                torch.ones(n * SIZE), torch.ones(n * SIZE), group=group, async_op=True
            ),
            "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
                torch.ones(n * SIZE), torch.ones(n), group=group, async_op=True
            ),
            "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(
                torch.ones(n), torch.ones(n * SIZE), group=group, async_op=True
            ),
            "all_to_all": lambda: dist.all_to_all(
                [torch.ones(n) for _ in range(SIZE)],
                [torch.ones(n) for _ in range(SIZE)],
                group=group,
                async_op=True,
            ),
            "all_reduce_coalesced": lambda: dist.all_reduce_coalesced(
                [torch.ones(n), torch.ones(2)], group=group, async_op=True
            ),
            "reduce_scatter": lambda: dist.reduce_scatter(
                torch.ones(n), [torch.ones(n)] * SIZE, group=group, async_op=True
            ),
            "gather": lambda: dist.gather(
                torch.ones(n),
                [torch.ones(n) for _ in range(SIZE)] if RANK == 0 else None,
                group=group,
                async_op=True,
            ),
            "scatter": lambda: dist.scatter(
                torch.ones(n),
                [torch.ones(n)] * SIZE if RANK == 0 else None,
                group=group,
                async_op=True,
            ),
            "barrier": lambda: dist.barrier(group=group, async_op=True),
        }
        for name, call in calls.items():
            if RANK == 0:
                work = call()
                dist.barrier()  # the others begin after it
            else:
                dist.barrier()
                work = call()
            assert work.wait(), name


def case_groups_in_opposite_orders():
    groups = [dist.new_group(), dist.new_group()]
    for n in (1, 300_000):
        tensors = [torch.ones(n), torch.ones(n)]
        order = (0, 1) if RANK % 2 else (1, 0)
        works = [dist.all_reduce(tensors[i], group=groups[i], async_op=True) for i in order]
        for work in works:
            work.wait()
        for tensor in tensors:
            same(tensor, torch.full((n,), float(SIZE)), f"{n}")


def case_time_limits():
    """An operation ends with its group's limit, and the group with it; a limit of a wait leaves the
    operation as it is."""
    if SIZE == 1:
        return

    def late(call, limit, says):
        begin = time.monotonic()
        try:
            call()
        except RuntimeError as e:
            took = time.monotonic() - begin
            assert says in str(e), e
            assert took > 0.9 * limit, f"{took} s"
        else:
            raise AssertionError("no error")

    seconds = datetime.timedelta(seconds=0.5)
    for n in (1, 300_000):
        group = dist.new_group(timeout=seconds)
        if RANK == 0:
            late(lambda: dist.all_reduce(torch.ones(n), group=group), 0.5, "the timeout of 0.5 s")
        dist.barrier()
        group = dist.new_group(timeout=seconds)
        if RANK == 0:
            late(
                lambda: dist.all_reduce(torch.ones(n), group=group, async_op=True).get_future().wait(),
                0.5,
                "timed out",
            )
        dist.barrier()
        tensor = torch.ones(n)
        if RANK == 0:
            work = dist.all_reduce(tensor, async_op=True)
            late(lambda: work.wait(datetime.timedelta(seconds=0.2)), 0.2, "not ended")
        else:
            time.sleep(0.3)
            work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        same(tensor, torch.full((n,), float(SIZE)), "after a limit of a wait")


def case_objects():
    got = [None] * SIZE
    dist.all_gather_object(got, {"rank": RANK, "text": "x" * 100 * RANK})
    assert [o["rank"] for o in got] == list(range(SIZE))
    box = [{"rank": RANK}]
    dist.broadcast_object_list(box, SIZE - 1)
    assert box[0]["rank"] == SIZE - 1


def case_subgroups():
    if SIZE < 4:
        return
    for ranks in ([0, 1], [2, 3], [0, 2], [3, 1]):
        group = dist.new_group(ranks)
        if RANK in ranks:
            x = torch.tensor([float(RANK)])
            dist.all_reduce(x, group=group)
            same(x, torch.tensor([float(sum(ranks))]), f"group {ranks}")
            y = torch.tensor([RANK])
            dist.broadcast(y, max(ranks), group=group)
            same(y, torch.tensor([max(ranks)]), f"broadcast in {ranks}")
        dist.barrier()


def case_mistakes():
    def refused(call, says):
        try:
            call()
        except Exception as e:
            assert says in str(e), f"{type(e).__name__}: {e}, want {says!r}"
        else:
            raise AssertionError(f"no error; want one that says {says!r}")

    if SIZE > 1:
        refused(lambda: dist.all_gather_into_tensor(torch.ones(3), torch.ones(2)), "times 2 of")
        refused(lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(2)), "times 3 of")
        refused(
            lambda: dist.all_to_all_single(torch.ones(2), torch.ones(SIZE), None, [1]), "splits"
        )
    refused(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), "bitwise")
    z = torch.ones(2, dtype=torch.complex64)
    refused(lambda: dist.reduce(z, 0, dist.ReduceOp.PRODUCT), "complex")
    dist.barrier()  # and it still works


def case_freed():
    """A thread that has completed a future holds nothing of its operation."""
    x, freed = torch.ones(4), threading.Event()
    weakref.finalize(x, freed.set)
    dist.all_reduce(x, async_op=True).get_future().wait()
    del x
    assert freed.wait(30)


def case_again():
    """The group is left, and others are made over a store that was used before. (init_process_group
    cannot: its own barrier counts in the store for ever.)"""
    store = dist.TCPStore("127.0.0.1", int(os.environ["MASTER_PORT"]), SIZE, False)
    dist.barrier()
    dist.destroy_process_group()
    for i in range(2):
        group = regroup.torch.distributed.create(store, RANK, SIZE, datetime.timedelta(seconds=30))
        x = torch.ones(1)
        group.allreduce([x]).wait()
        assert x.item() == SIZE, f"round {i}"
        group.shutdown()
