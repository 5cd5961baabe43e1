"""A communication hook of DistributedDataParallel, on any backend."""

# Without annotations of __future__: PyTorch compares those of a hook with types.

import math
from typing import Any

import torch
import torch.distributed as dist

from . import fixed_point


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
    size = dist.get_world_size(group)
    gradients = bucket.gradients()
    largest = torch.stack([fixed_point.magnitude(g) for g in gradients])
    dist.all_reduce(largest, dist.ReduceOp.MAX, group)
    finite = torch.isfinite(largest)
    exponents = torch.frexp(torch.where(finite, largest, 0.0)).exponent
    shifts = fixed_point.bits_for(size, headroom=0) - exponents
    totals = bucket.buffer().new_zeros(bucket.buffer().shape, dtype=torch.int64)
    parts = totals.split([g.numel() for g in gradients])
    ups = torch.ldexp(torch.ones((), dtype=torch.float64, device=largest.device), shifts)
    if totals.device.type == "cpu":
        for part, gradient, shift in zip(parts, gradients, shifts.tolist()):
            fixed_point.add(part, gradient, shift)
    else:  # without a wait for the numbers
        for part, gradient, up in zip(parts, gradients, ups):
            part.copy_(gradient.reshape(-1).to(torch.float64).mul_(up).round_())

    def average(sums: torch.futures.Future[Any]) -> torch.Tensor:
        sums.wait()
        down = torch.where(finite, 1.0 / ups, math.nan)
        for part, gradient, factor in zip(parts, gradients, down):
            gradient.view(-1).copy_(part.to(torch.float64).mul_(factor).div_(size))
        return bucket.buffer()

    return dist.all_reduce(totals, dist.ReduceOp.SUM, group, async_op=True).get_future().then(average)
