"""The norm of gradients, which does not depend on how they are dealt to the ranks."""

from __future__ import annotations

import math
from typing import List

import torch

#: Bits of a square below those that the sum of integers has room for.
_BELOW = 30


def squares(gradient: torch.Tensor, bound: float, elements: int) -> torch.Tensor:
    """The sum of the squares of elements of at most some magnitude, as two integers, high and low, which can be added
    to those of other parts of a tensor that has so many elements in all."""
    scaled = gradient.reshape(-1).to(torch.float64).square_().mul_(2.0 ** _shift(bound, elements))
    high = scaled.floor()
    low = scaled.sub_(high).mul_(2.0**_BELOW).round_()
    return torch.stack([high.to(torch.int64).sum(), low.to(torch.int64).sum()])


def total(sums: List[List[int]], bounds: List[float], elements: List[int]) -> float:
    """The norm, of the sums of squares of all parts of each parameter."""
    parts = [
        math.ldexp(high + math.ldexp(low, -_BELOW), -_shift(bound, n))
        for (high, low), bound, n in zip(sums, bounds, elements)
    ]
    return math.sqrt(sum(parts))


def _shift(bound: float, elements: int) -> int:
    """The shift at which so many squares can be added up in 62 bits."""
    return 62 - elements.bit_length() - 2 * math.frexp(bound)[1]
