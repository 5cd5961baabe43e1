"""A communication hook of DistributedDataParallel, on any backend."""

# Without annotations of __future__: PyTorch compares those of a hook with types.

import math
from typing import Any, Dict, List, NamedTuple

import torch
import torch.distributed as dist
from torch.utils.weak import WeakIdKeyDictionary

from . import exchange, fixed_point
from .additions import Additions


def allreduce_hook(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages gradients so that the result does not depend on the order in which they are added: not on the algorithm
    of the backend, nor on which rank is where::

        model = DistributedDataParallel(net)
        model.register_comm_hook(None, allreduce_hook)

    The first argument is a group of torch.distributed, None the default one. Each rank's gradient of a backward pass
    is one summand, so the result depends on the number of ranks; see GradientAccumulator for one that does not. An
    element that is not finite on any rank makes the whole gradient of that parameter NaN, on all ranks.
    """
    group = group if group is not None else dist.group.WORLD
    if bucket.buffer().device.type != "cpu":
        return _with_totals(group, bucket)
    started = _all_started.setdefault(id(group), [])  # which is no other group's while one is in there
    started.append(_start(group, bucket))
    averages = started[-1].averages
    if bucket.is_last():
        del _all_started[id(group)]
        for one in started:
            one.share(dist.get_world_size(group))
        for one in started:
            one.averages.set_result(one.exchange.whole()[: one.parts[-1].stop])
    return averages


class _Started(NamedTuple):
    """A bucket of which the ranks have sent each other their gradients."""

    group: Any
    exchange: exchange.Exchange
    parts: List[slice]  #: the parameters
    largest: torch.Tensor
    greatest: Any  #: finds the largest of all ranks
    averages: torch.futures.Future[torch.Tensor]

    def share(self, size: int) -> None:
        sent, span, means = self.exchange.parts(), self.exchange.span, self.exchange.means
        self.greatest.wait()
        largest = self.largest.tolist()
        inside = list(exchange.parts_within(span, self.parts))
        finite = [largest[i] if math.isfinite(largest[i]) else 0.0 for i, _ in inside]
        shifts = [fixed_point.shift_for(m, size, headroom=0) for m in finite]
        fixed_point.mean(means, sent, [at.stop - at.start for _, at in inside], shifts, size)
        for i, at in inside:
            if not math.isfinite(largest[i]):
                means[at] = math.nan
        self.exchange.share()


#: By group: the buckets of a backward pass, whose means are made when the last one has come. By then those before it have
#: arrived; and what the ranks start comes in one order.
_all_started: Dict[int, List[_Started]] = {}

#: By the first parameter of a bucket: a copy of its gradients, which may end with zeros, and their exchange in a group.
_memory: Any = WeakIdKeyDictionary()


def _start(group: Any, bucket: dist.GradBucket) -> _Started:
    gradients, buffer, first, parts = bucket.gradients(), bucket.buffer(), bucket.parameters()[0], []
    for g in gradients:
        begin = parts[-1].stop if parts else 0
        parts.append(slice(begin, begin + g.numel()))
    size = dist.get_world_size(group)
    kind = (group, buffer.dtype, -(-len(buffer) // size) * size)
    if first not in _memory or _memory[first][0] != kind:
        own = buffer.new_zeros(kind[-1])
        _memory[first] = kind, own, exchange.Direct(own, buffer.dtype, group)
    _, own, direct = _memory[first]
    copies = Additions(len(parts))
    for i, (at, g) in enumerate(zip(parts, gradients)):
        copies.copy(i, own[at], g)
    largest = fixed_point.joined(copies.finish()[1], buffer.device)
    direct.start()
    greatest = dist.all_reduce(largest, dist.ReduceOp.MAX, group, async_op=True)
    return _Started(group, direct, parts, largest, greatest, torch.futures.Future())


def _with_totals(group: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """On a GPU: without a wait for the numbers."""
    size, gradients = dist.get_world_size(group), bucket.gradients()
    largest = fixed_point.joined([fixed_point.magnitude(g) for g in gradients], bucket.buffer().device)
    dist.all_reduce(largest, dist.ReduceOp.MAX, group)
    finite = torch.isfinite(largest)
    exponents = torch.frexp(torch.where(finite, largest, 0.0)).exponent
    shifts = fixed_point.bits_for(size, headroom=0) - exponents
    totals = bucket.buffer().new_zeros(bucket.buffer().shape, dtype=torch.int64)
    parts = totals.split([g.numel() for g in gradients])
    ups = torch.ldexp(torch.ones((), dtype=torch.float64, device=largest.device), shifts)
    for part, gradient, up in zip(parts, gradients, ups):
        part.copy_(gradient.reshape(-1).to(torch.float64).mul_(up).round_())

    def average(sums: torch.futures.Future[Any]) -> torch.Tensor:
        sums.wait()
        down = torch.where(finite, 1.0 / ups, math.nan)
        for part, gradient, factor in zip(parts, gradients, down):
            gradient.view(-1).copy_(part.to(torch.float64).mul_(factor).div_(size))
        return bucket.buffer()

    return dist.all_reduce(totals, dist.ReduceOp.SUM, group, async_op=True).get_future().then(average)
