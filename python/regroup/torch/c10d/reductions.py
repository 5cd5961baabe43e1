"""Maps torch.distributed's reductions to those of the engine."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch
import torch.distributed as dist

from ... import _library as lib
from ...errors import InvalidArgumentError
from ..tensors import boolean

_names = {"SUM": lib.SUM, "AVG": lib.AVERAGE, "PRODUCT": lib.PRODUCT, "MIN": lib.MIN, "MAX": lib.MAX}


def _table() -> Dict[int, int]:
    """The engine's reductions by hash, which for ReduceOp is its number: comparing two of them
    takes as long as a small operation."""
    return {hash(getattr(dist.ReduceOp, n)): op for n, op in _names.items()}


_ops = _table()
_bitwise: Dict[int, Callable] = {
    hash(getattr(dist.ReduceOp, name)): function
    for name, function in (("BAND", torch.bitwise_and), ("BOR", torch.bitwise_or), ("BXOR", torch.bitwise_xor))
}


def reduction(opts: Any, tensor: torch.Tensor) -> Optional[int]:
    """The engine's reduction for options and a tensor; None = a bitwise one, which it does not
    have."""
    number = hash(opts.reduceOp)
    op = _ops.get(number)
    if op is not None:
        if tensor.dtype is torch.bool:
            return boolean(tensor, op)
        if op == lib.AVERAGE and not (tensor.is_floating_point() or tensor.is_complex()):
            raise InvalidArgumentError(f"{tensor.dtype} has no average: reduce with SUM and divide")
        if tensor.is_complex() and op not in (lib.SUM, lib.AVERAGE):
            raise InvalidArgumentError(f"complex numbers have no {opts.reduceOp}")
        return op
    if number in _bitwise:
        return None
    raise InvalidArgumentError(f"the reduction {opts.reduceOp} is not offered")


def combination(opts: Any, tensor: torch.Tensor) -> Callable:
    """How a bitwise reduction combines two tensors."""
    if tensor.dtype.is_floating_point or tensor.is_complex():
        raise InvalidArgumentError(f"{tensor.dtype} has no bitwise operations")
    return _bitwise[hash(opts.reduceOp)]
