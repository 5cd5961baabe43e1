"""Horovod's reductions, and the scaling of what is reduced."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Sequence

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError, UnsupportedError
from .compression import Compression

Sum, Average, Product, Min, Max = lib.SUM, lib.AVERAGE, lib.PRODUCT, lib.MIN, lib.MAX
#: Horovod's adaptive summation, which is not supported: every operation refuses it.
Adasum = -1


class Reduction(NamedTuple):
    """How tensors are reduced: with which operation, compressed how, and multiplied by what before
    and after it."""

    op: int
    compression: Any = Compression.none
    pre: float = 1.0
    post: float = 1.0

    def scales(self) -> Sequence[str]:
        """The factors, which must be equal on all ranks, as a part of a signature."""
        return () if self.pre == self.post == 1.0 else (f"scaled by {self.pre!r} and {self.post!r}",)


def reduction(op: Optional[int], average: Optional[bool] = None) -> int:
    """The reduction for op, or for its older form average."""
    if average is not None:
        if op is not None:
            raise InvalidArgumentError("op and average say the same: give one of them")
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise UnsupportedError("Adasum is not offered: use Average")
    if op not in (Sum, Average, Product, Min, Max):
        raise InvalidArgumentError(f"reduction {op!r} is none of Sum, Average, Product, Min, Max")
    return op


def scale_(tensor: torch.Tensor, factor: float) -> None:
    """Scales in place: half-precision floats as float32, integers as float64 with truncation."""
    if factor == 1.0:
        return
    if tensor.dtype is torch.bool:
        raise InvalidArgumentError("booleans cannot be scaled")
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor.copy_(tensor.float().mul_(factor))
    elif tensor.dtype.is_floating_point or tensor.is_complex():
        tensor.mul_(factor)
    else:
        tensor.copy_(tensor.double().mul_(factor))
