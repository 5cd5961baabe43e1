"""The norm of gradients, which does not depend on how they are dealt to the ranks."""

from __future__ import annotations

import math
from typing import Callable, Optional, Sequence

import torch

from .ranks import Ranks

#: Bits of a square below those that the sum of integers has room for.
_BELOW = 30


def clip(
    gradients: Sequence[Optional[torch.Tensor]],
    bounds: Sequence[float],
    elements: Sequence[int],
    max_norm: float,
    ranks: Optional[Ranks],
    counts: Callable[[int], bool],
) -> float:
    """Scales gradients so that their 2-norm is at most max_norm; returns what it was. Of each there is a bound of its
    magnitudes, and how many elements it has on all ranks; with ranks each of them has a part of it, which counts on one
    of those that have the same."""
    bounds = [b if b > 0 else 1.0 for b in bounds]
    device = next((g.device for g in gradients if g is not None), None)
    sums = torch.zeros(len(bounds), 2, dtype=torch.int64, device=device)
    for i, gradient in enumerate(gradients):
        if gradient is not None and counts(i):
            sums[i] = squares(gradient, bounds[i], elements[i])
    if ranks is not None:
        ranks.start_sum(sums).wait()
    before = total(sums.tolist(), bounds, elements)
    if before > max_norm:
        for gradient in gradients:
            if gradient is not None:
                gradient.mul_(max_norm / before)
    return before


def squares(gradient: torch.Tensor, bound: float, elements: int) -> torch.Tensor:
    """The sum of the squares of elements of at most some magnitude, as two integers, high and low, which can be added
    to those of other parts of a tensor that has so many elements in all."""
    scaled = gradient.reshape(-1).to(torch.float64).square_().mul_(2.0 ** _shift(bound, elements))
    high = scaled.floor()
    low = scaled.sub_(high).mul_(2.0**_BELOW).round_()
    return torch.stack([high.to(torch.int64).sum(), low.to(torch.int64).sum()])


def total(sums: Sequence[Sequence[int]], bounds: Sequence[float], elements: Sequence[int]) -> float:
    """The norm, of the sums of squares of all parts of each parameter."""
    parts = [
        math.ldexp(high + math.ldexp(low, -_BELOW), -_shift(bound, n))
        for (high, low), bound, n in zip(sums, bounds, elements)
    ]
    return math.sqrt(sum(parts))


def _shift(bound: float, elements: int) -> int:
    """The shift at which so many squares can be added up in 62 bits."""
    return 62 - elements.bit_length() - 2 * math.frexp(bound)[1]
