"""What current versions of torch do with a backend. The results are those of the same computation
without any group, or of gloo."""

import datetime
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import regroup.torch.distributed  # noqa: F401: registers the backend
from regroup.torch.c10d import features

SECONDS = datetime.timedelta(seconds=60)
dist.init_process_group("regroup", timeout=SECONDS)
RANK, SIZE = dist.get_rank(), dist.get_world_size()
CPU = torch.device("cpu")

#: What torch must have for a case, by the names of regroup.torch.c10d.features. All others run on
#: every torch that has device meshes.
NEEDS = {
    "case_backend": "PYTHON_BACKEND",
    "case_split_group": "PYTHON_BACKEND",
    "case_reconfigure": "RECONFIGURE",
    "case_reconfigured_ddp": "RECONFIGURE",
    "case_error_of_a_time_limit": "PYTHON_BACKEND",
    "case_shrink_group": "PYTHON_BACKEND",
}


def not_applicable(name):
    """Why a case cannot be run with this torch; empty = it can."""
    need = NEEDS.get(name)
    if need is None or getattr(features, need):
        return ""
    return f"torch {torch.__version__} lacks {need}"


def same(got, want, what):
    torch.testing.assert_close(got, want, msg=lambda m: f"{what}: {m}")


def everybody(value, group=None):
    """The sum of the ranks' numbers."""
    t = torch.tensor([float(value)])
    dist.all_reduce(t, group=group)
    return t.item()


def handles(group=None):
    """The handles of all ranks of the default group, by rank."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, dist._get_reconfigure_handle())
    return found


def meet(where):
    """Returns when all ranks are here, without the group."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{where}/{RANK}", "here")
    store.wait([f"{where}/{r}" for r in range(SIZE)])


def case_backend():
    group = dist.group.WORLD
    backend = dist.get_backend_impl(group, CPU)
    assert backend.name() == "regroup" and dist._supports_reconfigure()
    assert (backend.rank(), backend.size()) == (RANK, SIZE)
    assert backend.get_error() == torch._C._distributed_c10d.ErrorType.SUCCESS
    seen = []
    group.register_pre_hook(1, lambda arguments: seen.append(arguments.name))
    dist.all_reduce(torch.ones(2))
    group.unregister_pre_hook(1)
    assert seen, "hooks are not called"


def case_functional():
    import torch.distributed._functional_collectives as functional

    x = torch.full((2, 3), RANK + 1.0)
    total = SIZE * (SIZE + 1) / 2
    same(functional.all_reduce(x, "sum", dist.group.WORLD), torch.full((2, 3), total), "all_reduce")
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    same(gathered[2 * RANK], x[0], "all_gather")
    scattered = functional.reduce_scatter_tensor(
        torch.arange(2.0 * SIZE), "sum", 0, dist.group.WORLD
    )
    same(scattered, SIZE * torch.arange(2.0 * SIZE)[2 * RANK : 2 * RANK + 2], "reduce_scatter")
    many = functional.all_gather_into_tensor_coalesced([x, x[0] * 2], dist.group.WORLD)
    same(many[1].view(SIZE, 3)[SIZE - 1], torch.full((3,), 2.0 * SIZE), "coalesced")


def case_coalescing_manager():
    tensors = [torch.full((n,), RANK + 1.0) for n in (1, 70_000)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in tensors:
            dist.all_reduce(t)
    manager.wait()
    for t in tensors:
        same(t, torch.full_like(t, SIZE * (SIZE + 1) / 2), "coalesced")


def case_split_group():
    group = dist.split_group(split_ranks=[list(reversed(range(SIZE)))])
    assert dist.get_rank(group) == SIZE - 1 - RANK
    assert everybody(RANK, group) == SIZE * (SIZE - 1) / 2
    root = torch.tensor([RANK])
    dist.broadcast(root, group_src=0, group=group)
    assert root.item() == SIZE - 1
    if SIZE < 4:
        return
    half = dist.split_group(split_ranks=[[0, 2], [3, 1]])
    assert everybody(RANK, half) == (2 if RANK in (0, 2) else 4)


def model(seed=7):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.Linear(32, 8)
    )


def steps(parallel, optimizer, count=4):
    """Trains on this rank's part of batches that all ranks know."""
    g = torch.Generator().manual_seed(3)
    for _ in range(count):
        x, y = torch.randn(4 * SIZE, 16, generator=g), torch.randn(4 * SIZE, 8, generator=g)
        mine = slice(4 * RANK, 4 * RANK + 4)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(x[mine]), y[mine]).backward()
        optimizer.step()


def plain():
    """The weights after the same steps in one process."""
    whole = model()
    optimizer = torch.optim.Adam(whole.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(3)
    for _ in range(4):
        x, y = torch.randn(4 * SIZE, 16, generator=g), torch.randn(4 * SIZE, 8, generator=g)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(whole(x), y).backward()
        optimizer.step()
    return [p.detach() for p in whole.parameters()]


def as_plain(got, what):
    for p, want in zip(got, plain()):
        torch.testing.assert_close(p, want, rtol=1e-4, atol=1e-5, msg=lambda m: f"{what}: {m}")


def case_fully_shard():
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (SIZE,))
    sharded = model()
    for layer in sharded:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    steps(sharded, torch.optim.Adam(sharded.parameters(), lr=0.01))
    as_plain([p.full_tensor().detach() for p in sharded.parameters()], "fully_shard")


def case_zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    parallel = torch.nn.parallel.DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(parallel.parameters(), torch.optim.Adam, lr=0.01)
    steps(parallel, optimizer)
    as_plain([p.detach() for p in parallel.parameters()], "ZeroRedundancyOptimizer")


def case_comm_hooks():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    parallel = torch.nn.parallel.DistributedDataParallel(model())
    parallel.register_comm_hook(None, default_hooks.allreduce_hook)
    steps(parallel, torch.optim.Adam(parallel.parameters(), lr=0.01))
    as_plain([p.detach() for p in parallel.parameters()], "allreduce_hook")
    parallel = torch.nn.parallel.DistributedDataParallel(model())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    steps(parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), 6)
    for p in parallel.parameters():
        assert everybody(p.sum().item()) == everybody(p.sum().item())


def case_join():
    """Ranks with different numbers of batches."""
    from torch.distributed.algorithms.join import Join

    parallel = torch.nn.parallel.DistributedDataParallel(model())
    with Join([parallel]):
        for _ in range(RANK + 1):
            parallel(torch.ones(2, 16)).sum().backward()
    dist.barrier()


def case_dtensor():
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(8.0 * SIZE * SIZE).view(4 * SIZE, 2 * SIZE)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    same(rows.to_local(), whole[4 * RANK : 4 * RANK + 4], "rows")
    columns = rows.redistribute(mesh, [Shard(1)])
    same(columns.to_local(), whole[:, 2 * RANK : 2 * RANK + 2], "columns")
    same(columns.redistribute(mesh, [Replicate()]).to_local(), whole, "whole")
    product = torch.matmul(rows, distribute_tensor(whole.t().contiguous(), mesh, [Replicate()]))
    same(product.full_tensor(), whole @ whole.t(), "product")


def case_parts_are_refused():
    """A rank's part of a tensor is sent to nobody as if it were all of it."""
    from torch.distributed.tensor import Shard, distribute_tensor

    import regroup.torch as hvd
    from regroup.errors import InvalidArgumentError, UnsupportedError

    hvd.init()
    part = distribute_tensor(torch.ones(4 * SIZE), init_device_mesh("cpu", (SIZE,)), [Shard(0)])
    calls = {
        "allreduce": lambda: hvd.allreduce(part, name="part"),
        "broadcast_parameters": lambda: hvd.broadcast_parameters({"part": part}),
        "broadcast_object": lambda: hvd.broadcast_object({"part": part}),
    }
    for name, call in calls.items():
        try:
            call()
        except (InvalidArgumentError, UnsupportedError) as e:
            assert "a DTensor" in str(e), (name, e)
        else:
            raise AssertionError(f"{name} has accepted a part of a tensor")


def case_mesh_of_two_dimensions():
    if SIZE < 4:
        return
    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("replicate", "shard"))
    assert everybody(RANK, mesh["shard"].get_group()) == (1 if RANK < 2 else 5)
    assert everybody(RANK, mesh["replicate"].get_group()) == (2 if RANK % 2 == 0 else 4)

    from torch.distributed.fsdp import fully_shard

    hybrid = model()
    fully_shard(hybrid, mesh=mesh)
    steps(hybrid, torch.optim.Adam(hybrid.parameters(), lr=0.01))
    as_plain([p.full_tensor().detach() for p in hybrid.parameters()], "a hybrid of shards and replicas")


def case_checkpoint():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor

    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder)
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = torch.arange(6.0 * SIZE).view(2 * SIZE, 3)
    dcp.save({"t": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder[0])
    empty = distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)])
    dcp.load({"t": empty}, checkpoint_id=folder[0])
    same(empty.full_tensor(), whole, "a checkpoint")


def case_reconfigure():
    """Alone, and together again in another order; what was started in the old world fails."""
    everyone = handles()
    meet("handles")  # who leaves with an operation in progress ends those of the others
    late = dist.all_reduce(torch.ones(1), async_op=True) if RANK == 0 and SIZE > 1 else None
    dist._reconfigure(100 + RANK, [dist._get_reconfigure_handle()]).wait()
    assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
    if late is not None:
        try:
            late.wait()
        except RuntimeError:
            late = None
        assert late is None, "an operation of the old world has succeeded"
    assert everybody(5) == 5
    for uuid, order in ((200, list(reversed(range(SIZE)))), (201, list(range(SIZE)))):
        dist._reconfigure(uuid, [everyone[r] for r in order], timeout=SECONDS).wait()
        assert (dist.get_rank(), dist.get_world_size()) == (order.index(RANK), SIZE)
        assert everybody(RANK) == SIZE * (SIZE - 1) / 2
    for wrong, says in (
        ((201, everyone), "already used"),
        ((300, []), "at least one"),
        ((301, everyone + everyone), "unique"),
        ((302, ["gloo:0"]), "invalid"),
        ((303, everyone[:RANK] + everyone[RANK + 1 :]), "at least one" if SIZE == 1 else "is not one of"),
    ):
        try:
            dist._reconfigure(*wrong)
        except RuntimeError as e:
            assert says in str(e), e
        else:
            raise AssertionError(f"no error: {says}")
    assert everybody(1) == SIZE, "the group does not work after a refused call"


def case_reconfigured_ddp():
    """DDP continues in a world of other ranks."""
    everyone = handles()
    parallel = torch.nn.parallel.DistributedDataParallel(model(RANK))
    steps(parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), 2)
    backend = dist.get_backend_impl(dist.group.WORLD, CPU)
    backend.abort()
    dist._reconfigure(400, list(reversed(everyone)), timeout=SECONDS).wait()
    parallel._update_process_group(dist.group.WORLD)
    steps(parallel, torch.optim.SGD(parallel.parameters(), lr=0.01), 2)
    sums = [None] * SIZE
    dist.all_gather_object(sums, [p.sum().item() for p in parallel.parameters()])
    assert all(s == sums[0] for s in sums), "weights differ among ranks"
    dist._reconfigure(401, everyone, timeout=SECONDS).wait()


def case_error_of_a_time_limit():
    """The backend says why it does not work any more."""
    if SIZE == 1:
        return
    group = dist.new_group(timeout=datetime.timedelta(seconds=0.3))
    if RANK == 0:
        try:
            dist.all_reduce(torch.ones(1), group=group)
        except dist.DistBackendError as e:
            assert "timed out" in str(e)
        else:
            raise AssertionError("no error")
        backend = dist.get_backend_impl(group, CPU)
        assert backend.get_error() == torch._C._distributed_c10d.ErrorType.TIMEOUT
    dist.barrier()


def case_shrink_group():
    """Last: torch counts the groups of the others differently from now on."""
    if SIZE < 3:
        return
    group = dist.new_group()
    out = SIZE - 1
    if RANK != out:
        smaller = dist.shrink_group([out], group=group)
        assert everybody(RANK, smaller) == (SIZE - 1) * (SIZE - 2) / 2
    dist.barrier()
