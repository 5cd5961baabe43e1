"""Gradients that do not depend on who computes what, on gloo."""

import functools
import gc
import importlib.util
import itertools
import math
import weakref
from fractions import Fraction

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from regroup.errors import DivergedError, InvalidArgumentError, RegroupError, SilentCorruptionError
from regroup.torch.reproducible import GradientAccumulator, allreduce_hook, ddp_hook, exchange

from ..histories import digest, digest_of
from ..trainings import DEALT, TRAININGS

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
SHARDS = importlib.util.find_spec("torch.distributed.fsdp._fully_shard") is not None  # since torch 2.6
GROUPS = [dist.new_group(list(range(n))) for n in range(1, SIZE + 1)]


def raises(kind, function, text):
    try:
        function()
    except kind as e:
        assert text in str(e), e
    else:
        raise AssertionError(f"no {kind.__name__}")


def alike(value):
    everywhere = [None] * SIZE
    dist.all_gather_object(everywhere, value)
    assert len(set(everywhere)) == 1, everywhere
    return value


class Given(torch.nn.Module):
    """A model whose gradient is what is given."""

    def __init__(self, count=4):
        super().__init__()
        self.weight, self.unused = torch.nn.Parameter(torch.zeros(count)), torch.nn.Parameter(torch.zeros(2))

    def forward(self, gradient):
        return (self.weight * gradient).sum()


def even(model, count):
    """An accumulator whose ranks seem to be equally fast."""
    accumulator = GradientAccumulator(model, count)
    accumulator._clock = lambda: 0.0
    return accumulator


def gradients_of(values, model=None, accumulator=None, step=0):
    """The mean of the gradients given by micro-batch, and how many this rank has computed."""
    model = model or Given(len(values[0]))
    accumulator = accumulator or even(model, len(values))
    count = 0
    for m in accumulator.micro_batches(step):
        model(torch.tensor(values[m])).backward()
        count += 1
    assert model.unused.grad is None
    return model.weight.grad.tolist(), count


def case_the_mean_is_exact():
    """Of numbers that need fewer bits than there are: rounded once, at the end."""
    g = torch.Generator().manual_seed(3)
    for _ in range(20):
        values = (torch.randn(7, 4, generator=g) * 2.0 ** torch.randint(-8, 9, (7, 4), generator=g)).tolist()
        got, _ = gradients_of(values)
        for i in range(4):
            exact = sum(Fraction(v[i]) for v in values) / 7
            want = torch.tensor(float(exact)).item()
            assert math.isclose(got[i], want, rel_tol=2**-22), (got[i], want)
            assert abs(Fraction(got[i]) - exact) <= Fraction(1, 2**23) * abs(exact) + Fraction(1, 2**30), (got, exact)


def case_gradients_that_grow_and_vanish():
    """What does not fit the step before is computed once more, on all ranks, and never cut."""
    model = Given(1)
    accumulator = even(model, 6)
    passes = []
    for step, size in enumerate((1.0, 1.5, 2.0**20, 2.0**20, 2.0**-20, 1e-30, 0.0, 1e-30, 3e38, 3e38)):
        values = [[size * (1 + m / 8) if size < 1e38 else size] for m in range(6)]
        (got,), count = gradients_of(values, model, accumulator, step)
        want = float(sum(Fraction(v[0]) for v in values) / 6)
        assert math.isclose(got, torch.tensor(want).item(), rel_tol=1e-6), (step, got, want)
        passes.append(-(-count // (6 // SIZE)))
    assert passes[0] in (3, 4), passes  # one was computed twice, to see whether it is the same
    assert passes[1:] == [1, 2, 1, 2, 2, 1, 1, 2, 1], passes


def case_what_is_not_finite():
    """It is seen by all ranks, and what follows is as without it."""
    model = Given(2)
    accumulator = even(model, 6)
    gradients_of([[1.0, 2.0]] * 6, model, accumulator, 0)
    for step, bad in enumerate((math.inf, -math.inf, math.nan), 1):
        values = [[1.0, 2.0]] * 5 + [[1.0, bad]]
        got, count = gradients_of(values, model, accumulator, step)
        assert all(map(math.isnan, got)) and count == 6 // SIZE, got
    got, count = gradients_of([[1.0, 2.0]] * 6, model, accumulator, 4)
    assert got == [1.0, 2.0] and count == 6 // SIZE, (got, count)


def train(name, group, wrap=lambda net: net):
    training = TRAININGS[name]
    net, optimizer = training.make()
    model = wrap(net)
    accumulator = GradientAccumulator(model, training.micro_batches, seed=2, group=group, bucket_bytes=2048)
    for step in range(5):
        for m in accumulator.micro_batches(step):
            training.loss(model, step, m).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    return digest(net, optimizer)


def case_groups_of_any_size():
    """One hash, with DistributedDataParallel or without."""
    for name in TRAININGS:
        hashes = [train(name, group) for n, group in enumerate(GROUPS, 1) if RANK < n]
        hashes.append(train(name, None, DistributedDataParallel))
        hashes.append(train(name, None, lambda net: DistributedDataParallel(net, broadcast_buffers=False)))
        assert len(set(hashes)) == 1, hashes
        alike(hashes[0])


def dealt(name):
    """A training's model that is dealt to all ranks, and its optimizer."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    training, mesh = TRAININGS[name], init_device_mesh("cpu", (SIZE,))
    net = training.model()
    for child in net.children():
        if len(list(child.parameters())):
            fully_shard(child, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return training, net, training.optimizer(net.parameters())


def sharded(name, witness):
    """The hashes of a model that is dealt to all ranks, after its training: of its content, and its accumulator's."""
    training, net, optimizer = dealt(name)
    accumulator = GradientAccumulator(net, training.micro_batches, seed=2, optimizer=optimizer, witness=witness)
    for step in range(5):
        for m in accumulator.micro_batches(step):
            training.loss(net, step, m).backward()
        accumulator.clip_grad_norm_(0.5)
        optimizer.step()
    found = accumulator.state_hash()
    tensors = list(net.state_dict().values())
    tensors += [v for p in net.parameters() for _, v in sorted(optimizer.state[p].items())]
    return digest_of(t.full_tensor() if hasattr(t, "full_tensor") else t for t in tensors), found.hash


def case_sharded_models():
    """fully_shard changes nothing: the bits are those of a model that each rank has."""
    if not SHARDS:
        return
    for name in DEALT:
        training = TRAININGS[name]
        net, optimizer = training.make()
        group = GROUPS[0] if RANK == 0 else None
        accumulator = GradientAccumulator(net, training.micro_batches, seed=2, group=group, optimizer=optimizer)
        if RANK == 0:
            for step in range(5):
                for m in accumulator.micro_batches(step):
                    training.loss(net, step, m).backward()
                accumulator.clip_grad_norm_(0.5)
                optimizer.step()
            want = digest(net, optimizer), accumulator.state_hash().hash
        for witness in 0, 1, training.micro_batches:
            got = alike(sharded(name, witness))
            if RANK == 0:
                assert got == want, (name, witness)


def case_a_rank_with_parts_of_the_model_that_computes_wrongly():
    """It is named, where each micro-batch is computed twice in the first step in which it is wrong."""
    if not SHARDS or SIZE < 3:
        return
    training, net, optimizer = dealt("characters")
    accumulator = GradientAccumulator(net, training.micro_batches, seed=2, witness=training.micro_batches)
    for step in range(4):
        try:
            for m in accumulator.micro_batches(step):
                loss = training.loss(net, step, m)
                (loss * 1.001 if RANK == 1 and step == 2 else loss).backward()
        except SilentCorruptionError as e:
            assert (RANK, step) == (1, 2) and "rank 1 has another result for micro-batch" in str(e), e
            accumulator._ranks.gather(torch.tensor([0]))  # the others wait for its end
            break
        except RegroupError as e:
            assert RANK != 1 and step == 2 and str(e).startswith("ranks [1] have another result"), e
            break
        assert step < 2, "it is not found"
        optimizer.step()


def case_a_slow_rank_gets_less():
    """It has no effect on the result."""

    def train(seconds):
        training = TRAININGS["convolutional"]
        net, optimizer = training.make()
        accumulator = GradientAccumulator(net, 6, seed=2)
        accumulator._clock = functools.partial(next, itertools.count(0.0, seconds))
        for step in range(12):
            mine = 0
            for m in accumulator.micro_batches(step):
                training.loss(net, step, m).backward()
                mine += 1
            optimizer.step()
        return digest(net, optimizer), mine

    same, most = train(1.0)
    got, mine = train(2.5 if RANK == 0 else 1.0)
    assert alike(got) == same
    if SIZE == 3:
        assert (most, mine) == (2, 1 if RANK == 0 else (3, 2)[RANK - 1]), mine


def case_clipping():
    """As PyTorch's, within what a float can tell, and the norm is known before."""
    training = TRAININGS["characters"]
    net, _ = training.make()
    accumulator = GradientAccumulator(net, 6, seed=2)
    for m in accumulator.micro_batches(0):
        training.loss(net, 0, m).backward()
    gradients = [p.grad.clone() for p in net.parameters()]
    want = torch.linalg.vector_norm(torch.cat([g.double().flatten() for g in gradients])).item()
    assert accumulator.clip_grad_norm_(2 * want) == accumulator.clip_grad_norm_(2 * want)
    assert all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), gradients))
    got = accumulator.clip_grad_norm_(want / 3)
    assert math.isclose(got, want, rel_tol=1e-12), (got, want)
    after = torch.linalg.vector_norm(torch.cat([p.grad.double().flatten() for p in net.parameters()])).item()
    assert math.isclose(after, want / 3, rel_tol=1e-6), (after, want / 3)


def case_the_hook_does_not_see_the_order():
    """The ranks swap their samples: the weights are the same; those without the hook are not."""

    def after(place, hook):
        training = TRAININGS["characters"]
        net, optimizer = training.make()
        for module in net.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0  # of which each rank has its own
        model = DistributedDataParallel(net, bucket_cap_mb=0.001, find_unused_parameters=True)
        if hook:
            model.register_comm_hook(None, hook)
        for step in range(4):
            optimizer.zero_grad()
            training.loss(model, step, place).backward()
            optimizer.step()
        return alike(digest(net, optimizer))

    turned = [(RANK + k) % SIZE for k in range(SIZE)]
    # The second is the way for GPUs, which has the same bits.
    assert len({after(place, hook) for place in turned for hook in (allreduce_hook, ddp_hook._with_totals)}) == 1
    if SIZE > 2:
        assert len({after(place, None) for place in turned}) > 1


def case_the_hook_says_what_is_not_finite():
    for bad in (math.inf, math.nan):
        model = Given(2)
        ddp = DistributedDataParallel(model, find_unused_parameters=True)
        ddp.register_comm_hook(None, allreduce_hook)
        ddp(torch.tensor([1.0, bad if RANK == SIZE - 1 else 2.0])).backward()
        assert all(map(math.isnan, model.weight.grad.tolist())), model.weight.grad


def case_what_has_two_results():
    """It is found before the first step."""

    def run(what):
        training = TRAININGS["convolutional"]
        net, _ = training.make()
        for m in GradientAccumulator(net, 6, seed=2).micro_batches(0):
            what(training.loss(net, 0, m), net).backward()

    own = torch.Generator().manual_seed(RANK)  # which nobody seeds
    run(lambda loss, net: loss + 0 * torch.rand(()))
    raises(
        RegroupError,
        lambda: run(lambda loss, net: loss * torch.rand((), generator=own)),
        "two gradients of 0.weight and of 5 more",
    )
    last = lambda loss, net: loss + net[5].bias.sum() * torch.rand((), generator=own)  # noqa: E731
    raises(RegroupError, lambda: run(last), "two gradients of 5.bias: ")


def case_all_exchanges_are_alike():
    """Also those for GPUs, here on gloo."""
    g = torch.Generator().manual_seed(RANK)
    own = torch.randint(-1000, 1000, (12 * SIZE,), generator=g)
    total = own.clone()
    dist.all_reduce(total)
    start_sum = functools.partial(dist.all_reduce, async_op=True)
    for one in (
        exchange.Direct(own, torch.float32, None),
        exchange.Scattered(own, torch.float32, None),
        exchange.Everywhere(own, torch.float32, start_sum),
    ):
        for _ in range(2):  # its memory is used again
            one.start()
            one.means.copy_(torch.stack(list(one.parts())).sum(0))
            one.share()
            assert torch.equal(one.whole(), total.float()), one


def case_nothing_stays():
    """An accumulator that is no longer used goes, with its memory."""
    model = Given(2)
    accumulator = even(model, 6)
    gradients_of([[1.0, 2.0]] * 6, model, accumulator)
    reference = weakref.ref(accumulator)
    del model, accumulator
    gc.collect()
    assert reference() is None


def case_misuse():
    model = Given()
    raises(InvalidArgumentError, lambda: GradientAccumulator(model, 0), "1 or more")
    raises(InvalidArgumentError, lambda: GradientAccumulator(torch.nn.ReLU(), 3), "no parameter")
    too_few = GradientAccumulator(model, SIZE - 1) if SIZE > 1 else None
    if too_few is not None:
        raises(
            InvalidArgumentError, lambda: next(too_few.micro_batches(0)), f"{SIZE} ranks for {SIZE - 1} micro-batches"
        )
    left = GradientAccumulator(Given(), 6)
    for _ in left.micro_batches(0):
        break
    raises(RegroupError, lambda: next(left.micro_batches(1)), "left before its end")
    idle = GradientAccumulator(Given(), 6)
    raises(RegroupError, lambda: list(idle.micro_batches(0)), "call backward() in the loop")
    model = Given()
    again = GradientAccumulator(model, 6)
    gradients_of([[1.0] * 4] * 6, model, again, 0)
    raises(InvalidArgumentError, lambda: next(again.micro_batches(0)), "numbers of steps grow")
    sparse = torch.nn.Embedding(3, 2, sparse=True)
    accumulator = GradientAccumulator(sparse, 6)
    raises(
        InvalidArgumentError,
        lambda: [sparse(torch.tensor([0])).sum().backward() for _ in accumulator.micro_batches(0)],
        "sparse",
    )


def case_several_backward_passes():
    """Of two losses: what comes after a bucket could have been summed up is in the sum, too."""
    model = Given(2)
    accumulator = even(model, 6)
    for step in range(4):
        for m in accumulator.micro_batches(step):
            model(torch.tensor([1.0, 2.0])).backward()
            model(torch.tensor([10.0, float(m)])).backward()
        assert model.weight.grad.tolist() == [11.0, 4.5], (step, model.weight.grad)
    for used in (True, False):
        model, passes = Given(2), []
        if used:
            del model.unused
        changes = even(model, SIZE)
        for step in range(5):
            passes.append(0)
            for m in changes.micro_batches(step):
                passes[-1] += 1
                for _ in range(1 + (step > 1 and m == SIZE - 1)):
                    model(torch.tensor([1.0, float(m)])).backward()
            more = step > 1
            want = torch.tensor([1 + more / SIZE, (SIZE - 1) / 2 + more * (SIZE - 1) / SIZE])
            assert torch.allclose(model.weight.grad, want, rtol=1e-6), (step, model.weight.grad, want)
        # The first pass of step 2 has begun to add up, or to send, what is not whole; unless it waits for another
        # parameter's gradient.
        assert passes[1:] == [1, 2 if used else 1, 1, 1], passes


class Unordered(torch.nn.Module):
    """Its layers are used in another order than they are declared in, and one of them not always."""

    def __init__(self):
        super().__init__()
        self.last, self.norm, self.first = torch.nn.Linear(8, 3), torch.nn.LayerNorm(8), torch.nn.Linear(4, 8)
        self.sometimes = torch.nn.Linear(8, 8)

    def forward(self, x, micro_batch):
        x = self.norm(self.first(x))
        return self.last(self.sometimes(x) if micro_batch % 2 else x)


def case_gradients_that_are_taken_together():
    """However many there are of them, and whenever they come, the result is the same."""
    from unittest import mock

    from regroup.torch.reproducible import replicated

    results = []
    for enough in (0, 20, 10**9):
        for bucket in (64, 1 << 20):
            torch.manual_seed(0)
            model = Unordered()
            with mock.patch.object(replicated, "ENOUGH", enough):
                accumulator = GradientAccumulator(model, 6, bucket_bytes=bucket)
                accumulator._clock = lambda: 0.0
                for step in range(3):
                    for m in accumulator.micro_batches(step):
                        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * step + m))
                        model(x, m).square().sum().backward()
            assert all(p.grad is not None for p in model.parameters())
            results.append(alike(repr([p.grad.tolist() for p in model.parameters()])))
    assert len(set(results)) == 1, results


def case_ddp_afterwards():
    """DistributedDataParallel works as before outside of the loop."""
    model = Given(1)
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    for _ in even(ddp, SIZE).micro_batches(0):
        ddp(torch.tensor([1.0])).backward()
    model.zero_grad()
    ddp(torch.tensor([float(RANK)])).backward()
    assert model.weight.grad.item() == (SIZE - 1) / 2, model.weight.grad


def case_an_accumulator_without_a_group():
    """It would leave each rank alone."""
    from unittest import mock

    with mock.patch.object(dist, "is_initialized", return_value=False):
        early = GradientAccumulator(Given(), 6)
    raises(InvalidArgumentError, lambda: next(early.micro_batches(0)), "make it after init_process_group")


def case_two_that_reduce():
    import regroup.torch as hvd

    model = Given()
    GradientAccumulator(model, 6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    raises(InvalidArgumentError, lambda: hvd.DistributedOptimizer(optimizer, model.named_parameters()), "both reduce")
    model = Given()
    hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model.named_parameters())
    raises(InvalidArgumentError, lambda: GradientAccumulator(model, 6), "the plain optimizer")


def case_ranks_that_differ():
    if SIZE > 1:
        raises(
            DivergedError, lambda: list(GradientAccumulator(Given(), 6, seed=RANK).micro_batches(0)), "something else"
        )
        raises(DivergedError, lambda: list(GradientAccumulator(Given(), 6).micro_batches(RANK)), "at step")
