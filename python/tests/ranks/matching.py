"""Operations are paired up by their names, and a difference is an error on all ranks: never a
number that was not asked for."""

import os
import random
import threading

import torch

import regroup.torch as hvd
from regroup.errors import UnsupportedError

from .operations import RANK, SIZE, same

ORDERS = int(os.environ.get("ORDERS", "40"))
METHODS = (
    "allreduce broadcast allgather alltoall reducescatter grouped_allreduce grouped_allgather "
    "grouped_reducescatter sparse"
).split()


def given(seed, rank, shape):
    own = torch.Generator().manual_seed(1000 * seed + rank)  # torch's own is shared by all threads
    return torch.randint(-50, 50, shape, generator=own).float()


class Operation:
    """One of a random program: it knows what comes out."""

    def __init__(self, rng, number):
        self.seed, self.name = rng.randrange(1 << 20), f"operation {number}"
        self.method = rng.choice(METHODS)
        self.shape = (SIZE * rng.randint(1, 3), rng.randint(1, 3))
        self.root = rng.randrange(SIZE)
        self.wrong = rng.choice([None] * 7 + ["shape", "type", "method", "reduction"])
        self.culprit = rng.randrange(SIZE)
        self.dtype = rng.choice([torch.float32, torch.float64, torch.int64])
        if self.method in ("broadcast", "allgather", "alltoall") and self.wrong == "reduction":
            self.wrong = None
        if self.method in ("sparse", "grouped_reducescatter", "grouped_allgather"):
            self.wrong = None  # made of others, which are tried by themselves

    def mine(self, rank):
        return given(self.seed, rank, self.shape).to(self.dtype)

    def start(self):
        x, op, name = self.mine(RANK), hvd.Sum, self.name
        method = self.method
        if RANK == self.culprit and self.wrong == "shape":
            x = x.reshape(self.shape[0], self.shape[1], 1).repeat(1, 1, 2)
        if RANK == self.culprit and self.wrong == "type":
            x = x.to(torch.int32)
        if RANK == self.culprit and self.wrong == "reduction":
            op = hvd.Max
        if RANK == self.culprit and self.wrong == "method":
            name = f"another {name}"  # unmatched: it never ends
        if method == "allreduce":
            return hvd.allreduce_async(x, op=op, name=name)
        if method == "broadcast":
            return hvd.broadcast_async(x, self.root, name=name)
        if method == "allgather":
            return hvd.allgather_async(x[: RANK + 1], name=name)
        if method == "alltoall":
            return hvd.alltoall_async(x, name=name)
        if method == "reducescatter":
            return hvd.reducescatter_async(x, op=op, name=name)
        if method == "grouped_allreduce":
            return hvd.grouped_allreduce_async([x, x[0]], op=op, name=name)
        if method == "grouped_allgather":
            return hvd.grouped_allgather_async([x, x[:1]], name=name)
        if method == "grouped_reducescatter":
            return hvd.grouped_reducescatter_async([x, x * 2], op=op, name=name)
        return hvd.sparse_allreduce_async(x.to_sparse(), name=name, op=hvd.Sum)

    def check(self, handle):
        gathered = [self.mine(r) for r in range(SIZE)]
        total, part = sum(gathered), self.shape[0] // SIZE
        rows = slice(part * RANK, part * (RANK + 1))
        result = handle() if self.method == "sparse" else hvd.synchronize(handle)
        if self.method == "allreduce":
            same(result, total, self.name)
        elif self.method == "broadcast":
            same(result, gathered[self.root], self.name)
        elif self.method == "allgather":
            same(result, torch.cat([x[: r + 1] for r, x in enumerate(gathered)]), self.name)
        elif self.method == "alltoall":
            same(result[0], torch.cat([x[rows] for x in gathered]), self.name)
        elif self.method == "reducescatter":
            same(result, total[rows], self.name)
        elif self.method == "grouped_allreduce":
            same(result[0], total, self.name)
            same(result[1], total[0], self.name)
        elif self.method == "grouped_allgather":
            same(result[0], torch.cat(gathered), self.name)
            same(result[1], torch.cat([x[:1] for x in gathered]), self.name)
        elif self.method == "grouped_reducescatter":
            same(result[0], total[rows], self.name)
            same(result[1], 2 * total[rows], self.name)
        else:
            same(result.to_dense(), total, self.name)


def play(operations, failures):
    try:
        started = [(o, o.start()) for o in operations]
        for o, handle in started:
            if o.wrong is None:
                o.check(handle)
                continue
            try:
                hvd.synchronize(handle)
            except hvd.InvalidArgumentError as e:
                assert "not the same on all ranks" in str(e), e
            else:
                raise AssertionError(f"{o.name}, with another {o.wrong} on rank {o.culprit}: no error")
    except BaseException as e:
        failures.append(e)
        raise


def case_random_orders():
    """Every rank starts the operations in an order of its own, from one to three threads."""
    for seed in range(ORDERS):
        rng, own = random.Random(seed), random.Random(1000 * seed + RANK)
        program = [Operation(rng, i) for i in range(rng.randint(1, 12))]
        for o in program:
            if o.wrong == "method":
                o.wrong = None
        own.shuffle(program)
        parts = [program[i::3] for i in range(3)] if own.random() < 0.5 else [program]
        failures = []
        threads = [threading.Thread(target=play, args=(p, failures)) for p in parts[1:]]
        for t in threads:
            t.start()
        play(parts[0], failures)
        for t in threads:
            t.join()
        if failures:
            raise AssertionError(f"seed {seed}") from failures[0]


def different(call, *says):
    try:
        call()
    except (hvd.InvalidArgumentError, hvd.DivergedError) as e:
        for s in says:
            assert s in str(e), e
    else:
        raise AssertionError("no error")


def refused(call, says):
    try:
        call()
    except (hvd.InvalidArgumentError, UnsupportedError) as e:
        assert says in str(e), e
    else:
        raise AssertionError("no error")


def case_order_without_names():
    """The same shapes, in another order: with numbers for names, they are told apart."""
    x = torch.full((2, 2), float(RANK))
    if RANK == 0:
        different(lambda: hvd.broadcast(x, 0), "allgather", "broadcast")
        different(lambda: hvd.allgather(x), "broadcast", "allgather")
    else:
        different(lambda: hvd.allgather(x), "broadcast", "allgather")
        different(lambda: hvd.broadcast(x, 0), "allgather", "broadcast")
    same(hvd.allreduce(x, op=hvd.Sum), torch.full((2, 2), sum(map(float, range(SIZE)))), "after it")


def case_shapes_of_one_length():
    x = torch.ones((2, 3) if RANK == 0 else (3, 2))
    different(lambda: hvd.allreduce(x), "[2, 3]", "[3, 2]")
    different(lambda: hvd.allreduce(x, name="named"), "[2, 3]", "[3, 2]")
    different(lambda: hvd.grouped_allreduce([x, torch.ones(1)]), "[2, 3]", "[3, 2]")


def case_sparse_of_other_shapes():
    rows = 4 if RANK == 0 else 5
    x = torch.sparse_coo_tensor(torch.tensor([[1]]), torch.ones(1, 2), (rows, 2))
    different(hvd.sparse_allreduce_async(x, name="sparse"), "[4, 2]", "[5, 2]")


def case_a_barrier_and_an_allreduce():
    """They wait for each other: after a while all of them are told."""
    if RANK == 0:
        different(hvd.barrier, "barrier", "allreduce.x")
    else:
        different(lambda: hvd.allreduce(torch.ones(1), name="x"), "barrier", "allreduce.x")
    hvd.barrier()


def case_each_waits_for_another_name():
    names = ["a", "b"] if RANK == 0 else ["b", "a"]
    different(lambda: hvd.allreduce(torch.ones(1), name=names[0]), "allreduce.a", "allreduce.b")
    hvd.barrier()


def case_a_wrong_argument_on_one_rank():
    """The others hear of it at once, and gathered goes on."""
    for name in (None, "named"):
        splits = [SIZE] + [0] * (SIZE - 1)
        if RANK == 0:
            splits[0] += 1
        says = "do not divide" if RANK == 0 else "rank 0: alltoall: splits"
        different(lambda: hvd.alltoall(torch.ones(SIZE), splits, name=name), says)
        same(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(SIZE)]), "after it")
        op = hvd.Adasum if RANK == 0 else hvd.Sum
        says = "Adasum is not offered" if RANK == 0 else "rank 0: Adasum is not offered"
        two = [torch.ones(SIZE), torch.ones(SIZE)]
        refused(lambda: hvd.grouped_reducescatter(two, name=name, op=op), says)
        refused(lambda: hvd.grouped_reducescatter_async(two, name=name and "other", op=op).synchronize(), says)


def case_a_name_that_is_pending():
    if RANK == 0:
        first = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="pending")
        different(lambda: hvd.allreduce_async(torch.ones(1), name="pending"), "pending")
        other = hvd.broadcast_async(torch.ones(1), 0, name="pending")  # of another operation
    hvd.barrier()
    if RANK > 0:
        first = hvd.allreduce_async(torch.ones(1), op=hvd.Sum, name="pending")
        other = hvd.broadcast_async(torch.zeros(1), 0, name="pending")
    same(hvd.synchronize(first), torch.tensor([float(SIZE)]), "pending")
    same(hvd.synchronize(other), torch.ones(1), "pending, of another operation")


def case_objects_that_cannot_be_pickled():
    """Of one rank: the others get an error as well, and do not wait for it."""
    unpicklable = {"generator": (i for i in range(3)), "local": lambda: 0}
    for what, mine in unpicklable.items():
        for call in (hvd.broadcast_object, hvd.allgather_object):
            try:
                call(mine if RANK == 0 else "fine", name=what)
            except Exception as e:
                assert "pickle" in str(e), (what, call, e)
            else:
                raise AssertionError(f"{call.__name__} has accepted a {what}")
    hvd.barrier()


def case_other_threads_need_names():
    output = []

    def run():
        try:
            hvd.allreduce(torch.ones(1))
        except hvd.InvalidArgumentError as e:
            output.append(str(e))

    t = threading.Thread(target=run)
    t.start()
    t.join()
    assert len(output) == 1 and "needs a name" in output[0], output
    hvd.barrier()


def case_mistakes_about_handles():
    different(lambda: hvd.synchronize(7), "no handle")
    different(lambda: hvd.poll(torch.ones(1)), "no handle")
