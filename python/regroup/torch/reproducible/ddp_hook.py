"""A communication hook of DistributedDataParallel, on any backend."""

# Without annotations of __future__: PyTorch compares those of a hook with types.

import math
from typing import Any, Dict, List, NamedTuple

import torch
import torch.distributed as dist
from torch.utils.weak import WeakIdKeyDictionary

from . import exchange, fixed_point


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
    if bucket.buffer().device.type == "cpu":
        return _Buckets.of(group).start(bucket)
    return _with_totals(group, bucket)


class _Started(NamedTuple):
    """A bucket of which the ranks have sent each other their gradients."""

    exchange: exchange.Exchange
    parts: List[slice]  #: the parameters
    largest: torch.Tensor
    greatest: Any  #: finds the largest of all ranks
    averages: torch.futures.Future[torch.Tensor]


class _Buckets:
    """The buckets of a backward pass. Their means are made when the last one has come, by when those before it have
    arrived: what a rank starts must come in one order."""

    _all: Dict[Any, "_Buckets"] = WeakIdKeyDictionary()

    @classmethod
    def of(cls, group: Any) -> "_Buckets":
        return cls._all.setdefault(group, cls(group))

    def __init__(self, group: Any):
        self._group, self._size = group, dist.get_world_size(group)
        self._memory: Dict[torch.Tensor, Any] = WeakIdKeyDictionary()  # by a bucket's first parameter
        self._started: List[_Started] = []

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients, buffer, parts = bucket.gradients(), bucket.buffer(), []
        for g in gradients:
            begin = parts[-1].stop if parts else 0
            parts.append(slice(begin, begin + g.numel()))
        own, memory = self._memory.get(bucket.parameters()[0], (None, None))
        if own is None or own.dtype != buffer.dtype or not 0 <= len(own) - len(buffer) < self._size:
            own = buffer.new_zeros(-(-len(buffer) // self._size) * self._size)
            memory = exchange.Direct(own, buffer.dtype, self._group)
            self._memory[bucket.parameters()[0]] = own, memory
        sizes = [fixed_point.copy(own[at], g) for at, g in zip(parts, gradients)]
        memory.start()
        largest = fixed_point.joined(sizes, buffer.device)
        greatest = dist.all_reduce(largest, dist.ReduceOp.MAX, self._group, async_op=True)
        self._started.append(_Started(memory, parts, largest, greatest, torch.futures.Future()))
        averages = self._started[-1].averages
        if bucket.is_last():
            started, self._started = self._started, []
            for one in started:
                self._share(one)
            for one in started:
                one.averages.set_result(one.exchange.whole()[: one.parts[-1].stop])
        return averages

    def _share(self, one: _Started) -> None:
        sent, span, means = one.exchange.parts(), one.exchange.span, one.exchange.means
        one.greatest.wait()
        for at, largest in zip(one.parts, one.largest.tolist()):
            low, high = max(at.start, span.start) - span.start, min(at.stop, span.stop) - span.start
            if low >= high:
                continue
            if math.isfinite(largest):
                shift = fixed_point.shift_for(largest, self._size, headroom=0)
                fixed_point.mean(means[low:high], [p[low:high] for p in sent], shift, self._size)
            else:
                means[low:high] = math.nan
        one.exchange.share()


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
