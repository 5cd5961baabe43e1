"""Horovod's operations, against what torch computes from all ranks' tensors, which every rank can
make for itself."""

import torch

import regroup.torch as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
COUNTS = [0, 1, 2, 3, 7, 1000, 70001]


def random_tensor(rank, shape, dtype, seed=0):
    """A rank's tensor: small whole numbers, so that every type can add them up exactly."""
    g = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(1, 3, shape, generator=g).to(dtype)


def gathered(shape, dtype, seed=0):
    return torch.stack([random_tensor(r, shape, dtype, seed) for r in range(SIZE)])


def same(got, want, what):
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, want {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {got.shape}, want {want.shape}"
    assert torch.equal(got, want), f"{what}: {got.flatten()[:8]}, want {want.flatten()[:8]}"


def reduced(all_of_them, op):
    wide = all_of_them.double()
    if op == hvd.Sum:
        return wide.sum(0)
    if op == hvd.Average:
        mean = wide.sum(0) / SIZE
        return mean if all_of_them.dtype.is_floating_point else mean.trunc()
    if op == hvd.Product:
        return wide.prod(0)
    return wide.min(0).values if op == hvd.Min else wide.max(0).values


def case_allreduce():
    ops = {"sum": hvd.Sum, "average": hvd.Average, "product": hvd.Product}
    ops.update({"min": hvd.Min, "max": hvd.Max})
    for dtype in FLOATS + INTEGERS:
        for n in COUNTS:
            for name, op in ops.items():
                mine = random_tensor(RANK, (n,), dtype)
                want = reduced(gathered((n,), dtype), op).to(dtype)
                same(hvd.allreduce(mine, op=op), want, f"{name} of {n} {dtype}")
                assert torch.equal(mine, random_tensor(RANK, (n,), dtype)), "allreduce has changed its input"
                out = hvd.allreduce_(mine, op=op)
                assert out is mine
                same(mine, want, f"in place {name} of {n} {dtype}")


def case_names_are_paired_up():
    """Each rank starts them in an order of its own, beside operations without names."""
    names = list(range(40))
    g = torch.Generator().manual_seed(RANK)
    handles = {}
    for i in torch.randperm(len(names), generator=g).tolist():
        mine = random_tensor(RANK, (50 * i,), FLOATS[i % 4], i)
        handles[i] = hvd.allreduce_async(mine, name=f"gradient {i}", op=hvd.Sum)
        if len(handles) == 20:
            same(hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum), torch.tensor([1.0 * SIZE]), "beside")
    for i in names:
        dtype = FLOATS[i % 4]
        want = reduced(gathered((50 * i,), dtype, i), hvd.Sum).to(dtype)
        same(hvd.synchronize(handles[i]), want, f"gradient {i}")


def case_a_name_that_is_not_the_same_fails_alone():
    if SIZE == 1:
        return
    handle = hvd.allreduce_async_(torch.ones(10 + RANK), name="uneven")
    try:
        hvd.synchronize(handle)
    except ValueError as e:
        assert "uneven" in str(e), e
    else:
        raise AssertionError("ranks with different lengths were not told")
    same(hvd.allreduce(torch.tensor([2.0])), torch.tensor([2.0]), "after it")


def case_allreduce_default_is_the_average():
    same(hvd.allreduce(torch.tensor([float(RANK)])), torch.tensor([(SIZE - 1) / 2]), "default")
    same(
        hvd.allreduce(torch.tensor([float(RANK)]), average=False),
        torch.tensor([SIZE * (SIZE - 1) / 2.0]),
        "average=False",
    )


def case_allreduce_async():
    handles = []
    for i in range(20):
        handles.append(hvd.allreduce_async(random_tensor(RANK, (1000 * i,), torch.float32, i), op=hvd.Sum))
    last = hvd.allreduce(torch.ones(1), op=hvd.Sum)  # comes after them
    same(last, torch.tensor([float(SIZE)]), "after started ones")
    for i, handle in enumerate(handles):
        assert hvd.poll(handle)
        want = reduced(gathered((1000 * i,), torch.float32, i), hvd.Sum).float()
        same(hvd.synchronize(handle), want, f"started {i}")
        same(hvd.synchronize(handle), want, f"a second time {i}")
    x = random_tensor(RANK, (5000,), torch.float32)
    handle = hvd.allreduce_async_(x, op=hvd.Max)
    assert hvd.synchronize(handle) is x
    same(x, reduced(gathered((5000,), torch.float32), hvd.Max).float(), "started in place")
    hvd.allreduce_async(torch.ones(100000))  # nobody waits for it


def case_allreduce_shapes():
    base = random_tensor(RANK, (40, 30), torch.float32)
    want = gathered((40, 30), torch.float32).sum(0)
    for name, view in {
        "transposed": lambda t: t.t(),
        "strided": lambda t: t[::2, ::3],
        "scalar": lambda t: t[0, 0],
        "unaligned": lambda t: t.flatten()[1:],
    }.items():
        same(hvd.allreduce(view(base.clone()), op=hvd.Sum), view(want), name)
        x = base.clone()
        hvd.allreduce_(view(x), op=hvd.Sum)
        same(view(x), view(want), "in place " + name)
    z = torch.complex(base, base + 1)
    same(hvd.allreduce(z, op=hvd.Sum), torch.complex(want, want + SIZE), "complex")
    b = torch.tensor([RANK == 0, True, False])
    same(hvd.allreduce(b, op=hvd.Sum), torch.tensor([True, True, False]), "booleans, any")
    same(hvd.allreduce(b, op=hvd.Min), torch.tensor([SIZE == 1, True, False]), "booleans, all")


def case_allreduce_factors():
    x = torch.full((10,), 3.0)
    got = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    same(got, torch.full((10,), 6.0 * SIZE), "factors")


def case_allreduce_compression():
    x = torch.randn(3000, generator=torch.Generator().manual_seed(RANK))
    want = sum(
        torch.randn(3000, generator=torch.Generator().manual_seed(r)).double() for r in range(SIZE)
    )
    for name, tolerance in (("fp16", 2**-9), ("bf16", 2**-6)):
        how = getattr(hvd.Compression, name)
        for dtype in (torch.float32, torch.float64):
            got = hvd.allreduce(x.to(dtype), op=hvd.Sum, compression=how)
            assert got.dtype == dtype
            worst = ((got.double() - want).abs() / (1 + want.abs())).max().item()
            assert worst < tolerance * SIZE, f"{name} of {dtype}: off by {worst}"

    class Half(hvd.Compressor):
        @staticmethod
        def compress(tensor):
            return tensor / 2, "halved"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "halved"
            return tensor * 2

    same(hvd.allreduce(torch.ones(4), op=hvd.Sum, compression=Half), torch.ones(4) * SIZE, "own")


def case_allreduce_gradient():
    x = torch.full((3,), float(RANK + 1), requires_grad=True)
    (hvd.allreduce(x, op=hvd.Sum) * (RANK + 1)).sum().backward()
    same(x.grad, torch.full((3,), SIZE * (SIZE + 1) / 2), "gradient of a sum")


def case_grouped_allreduce():
    shapes = [(3,), (0,), (4, 5), (1,), (1000,)]
    types = [torch.float32, torch.float32, torch.float64, torch.int64, torch.float32]
    mine = [random_tensor(RANK, s, t, i) for i, (s, t) in enumerate(zip(shapes, types))]
    want = [gathered(s, t, i).sum(0).to(t) for i, (s, t) in enumerate(zip(shapes, types))]
    for got in (
        hvd.grouped_allreduce(mine, op=hvd.Sum),
        hvd.synchronize(hvd.grouped_allreduce_async(mine, op=hvd.Sum)),
    ):
        for g, w in zip(got, want):
            same(g, w, "group")
    copies = [m.clone() for m in mine]
    hvd.grouped_allreduce_(copies, op=hvd.Sum)
    for g, w in zip(copies, want):
        same(g, w, "group in place")
    hvd.synchronize(hvd.grouped_allreduce_async_(mine, op=hvd.Sum))
    for g, w in zip(mine, want):
        same(g, w, "group in place, started")


def case_grouped_gradients():
    """A program may go backward from each result in turn."""
    for op, factor in ((hvd.Sum, SIZE), (hvd.Average, 1)):
        mine = [torch.ones(n, requires_grad=True) for n in (3, 2)]
        for y in hvd.grouped_allreduce(mine, op=op):
            y.backward(torch.ones_like(y))
        for x in mine:
            same(x.grad, torch.full_like(x, factor), "gradient of a part")


def case_broadcast():
    for root in range(SIZE):
        for dtype in FLOATS + INTEGERS + [torch.bool, torch.complex64]:
            mine = random_tensor(RANK, (17,), dtype)
            same(hvd.broadcast(mine, root), random_tensor(root, (17,), dtype), f"{dtype} from {root}")
            assert hvd.broadcast_(mine, root) is mine
            same(mine, random_tensor(root, (17,), dtype), f"{dtype} in place from {root}")
    x = random_tensor(RANK, (100, 100), torch.float32).t()
    hvd.synchronize(hvd.broadcast_async_(x, SIZE - 1))
    same(x, random_tensor(SIZE - 1, (100, 100), torch.float32).t(), "a view")
    y = hvd.synchronize(hvd.broadcast_async(torch.tensor([RANK]), 0))
    same(y, torch.tensor([0]), "started")


def case_allgather():
    for dtype in FLOATS + INTEGERS + [torch.bool]:
        want = torch.cat([random_tensor(r, (3, 4), dtype) for r in range(SIZE)])
        same(hvd.allgather(random_tensor(RANK, (3, 4), dtype)), want, f"{dtype}")
    want = torch.cat([random_tensor(r, (r, 4), torch.float32) for r in range(SIZE)])
    same(hvd.allgather(random_tensor(RANK, (RANK, 4), torch.float32)), want, "of different lengths")
    same(hvd.allgather(torch.tensor(RANK)), torch.arange(SIZE), "scalars")
    same(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3), "nothing")
    handle = hvd.allgather_async(torch.tensor([RANK]))
    same(hvd.synchronize(handle), torch.arange(SIZE), "started")
    x = torch.full((RANK + 1, 2), 1.0, requires_grad=True)
    (hvd.allgather(x).sum() * (RANK + 1)).backward()
    same(x.grad, torch.full((RANK + 1, 2), (SIZE + 1) / 2), "gradient")
    if SIZE > 1:
        try:
            hvd.allgather(torch.ones(2, 3 + RANK))
        except hvd.InvalidArgumentError as e:
            assert "not the same on all ranks" in str(e)
        else:
            raise AssertionError("rows of different lengths were gathered")


def case_alltoall():
    x = torch.arange(SIZE * 2 * 3).reshape(SIZE * 2, 3) + 100 * RANK
    want = torch.cat(
        [
            torch.arange(SIZE * 6).reshape(SIZE * 2, 3)[2 * RANK : 2 * RANK + 2] + 100 * r
            for r in range(SIZE)
        ]
    )
    same(hvd.alltoall(x), want, "equal parts")
    splits = [r + 1 for r in range(SIZE)]
    y = torch.full((sum(splits),), float(RANK))
    got, came = hvd.alltoall(y, torch.tensor(splits))
    same(came, torch.full((SIZE,), RANK + 1), "what came")
    want = torch.cat([torch.full((RANK + 1,), float(r)) for r in range(SIZE)])
    same(got, want, "by splits")
    got, _ = hvd.synchronize(hvd.alltoall_async(y.to(torch.complex64), splits))
    same(got, want.to(torch.complex64), "complex, started")


def case_rows_are_paired_up():
    """Each rank starts operations on rows in an order of its own, and waits in another one."""
    starts = {}
    for i in range(4):
        starts[f"all {i}"] = lambda i=i: hvd.allgather_async(torch.full((RANK + i,), float(RANK)), name=f"a{i}")
        starts[f"to {i}"] = lambda i=i: hvd.alltoall_async(
            torch.full(((i + 1) * SIZE,), float(RANK)), [i + 1] * SIZE, name=f"t{i}"
        )
    g = torch.Generator().manual_seed(RANK)
    order = lambda: [list(starts)[i] for i in torch.randperm(len(starts), generator=g).tolist()]  # noqa: E731
    handles = {name: starts[name]() for name in order()}
    for name in order():
        while name.endswith("3") and not hvd.poll(handles[name]):
            pass
        got, i = hvd.synchronize(handles[name]), int(name.split()[1])
        if name.startswith("to"):
            same(got[0], torch.arange(float(SIZE)).repeat_interleave(i + 1), name)
            continue
        same(got, torch.cat([torch.full((r + i,), float(r)) for r in range(SIZE)]), name)


def case_a_wrong_row_is_said_when_it_is_waited_for():
    if SIZE == 1:
        return
    handle = hvd.allgather_async(torch.ones(2, 3 + RANK), name="wrong row")
    try:
        hvd.synchronize(handle)
    except hvd.InvalidArgumentError as e:
        assert "not the same on all ranks" in str(e), e
    else:
        raise AssertionError("rows of different lengths were gathered")


def case_reducescatter():
    for rows in (SIZE * 2, SIZE * 2 + 1, 1):
        everything = gathered((rows, 3), torch.float32).sum(0)
        size, more = divmod(rows, SIZE)
        begin = RANK * size + min(RANK, more)
        want = everything[begin : begin + size + (RANK < more)]
        got = hvd.reducescatter(random_tensor(RANK, (rows, 3), torch.float32), op=hvd.Sum)
        same(got, want, f"{rows} rows")
    handle = hvd.reducescatter_async(torch.ones(SIZE))
    same(hvd.synchronize(handle), torch.ones(1), "average, started")
    handle = hvd.reducescatter_async(torch.ones(SIZE, requires_grad=True), op=hvd.Max)  # has no gradient
    same(hvd.synchronize(handle), torch.ones(1), "maximum, started")


def case_objects():
    mine = {"rank": RANK, "text": "x" * (1000 * RANK), "tensor": torch.tensor([RANK])}
    for root in range(SIZE):
        got = hvd.broadcast_object(mine, root)
        assert got["rank"] == root and len(got["text"]) == 1000 * root, got["rank"]
    got = hvd.allgather_object(mine)
    assert [o["rank"] for o in got] == list(range(SIZE))
    assert [len(o["text"]) for o in got] == [1000 * r for r in range(SIZE)]


def case_parameters_and_optimizer():
    torch.manual_seed(RANK)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (RANK + 1))
    if RANK == 0:
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
    before = [p.detach().clone() for p in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, 0)
    for p, b in zip(model.parameters(), before):
        same(p.detach(), b, "broadcast_optimizer_state has changed a weight")
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_parameters(model.named_parameters(), 0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    for s in hvd.allgather_object((model.state_dict(), optimizer.state_dict())):
        for key, value in model.state_dict().items():
            same(value, s[0][key], key)
        for number, entries in optimizer.state_dict()["state"].items():
            for key, value in entries.items():
                same(value, s[1]["state"][number][key], key)


def case_barrier():
    for _ in range(3):
        hvd.barrier()


def case_mistakes():
    def refused(call, says):
        try:
            call()
        except hvd.RegroupError as e:
            assert says in str(e), e
        else:
            raise AssertionError(f"no error; want one that says {says!r}")

    refused(lambda: hvd.allreduce([1.0]), "is a list, not a tensor")
    refused(lambda: hvd.allreduce(torch.ones(2).to_sparse()), "sparse")
    refused(lambda: hvd.allreduce(torch.ones(2), op=99), "reduction 99")
    refused(lambda: hvd.broadcast(torch.ones(2), SIZE), f"root_rank {SIZE}")
    refused(lambda: hvd.allreduce(torch.ones(2), op=hvd.Sum, average=True), "one of them")
    refused(lambda: hvd.allreduce(torch.ones(2, dtype=torch.bool)), "no average")
    truth = torch.ones(2, dtype=torch.bool)
    refused(lambda: hvd.allreduce(truth, op=hvd.Max, prescale_factor=0.5), "scaled")
    refused(lambda: hvd.alltoall(torch.ones(SIZE + 1), [1] * SIZE), "do not divide")
    refused(lambda: hvd.allreduce(torch.ones(2), op=hvd.Adasum), "Adasum")
    hvd.barrier()  # and it still works
