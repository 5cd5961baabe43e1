"""Maps torch.distributed's reductions to those of the engine."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from ... import _library as lib
from ...communicator import Communicator
from ...errors import InvalidArgumentError
from ..tensors import boolean, staged

_names = {
    "SUM": lib.SUM,
    "AVG": lib.AVERAGE,
    "PRODUCT": lib.PRODUCT,
    "MIN": lib.MIN,
    "MAX": lib.MAX,
}


def _table() -> Dict[int, int]:
    """The engine's reductions by hash, which for ReduceOp is its number: comparing two of them
    takes as long as a small operation."""
    return {hash(getattr(dist.ReduceOp, n)): op for n, op in _names.items()}


_ops = _table()
_bitwise: Dict[int, Callable] = {
    hash(getattr(dist.ReduceOp, name)): function
    for name, function in (
        ("BAND", torch.bitwise_and),
        ("BOR", torch.bitwise_or),
        ("BXOR", torch.bitwise_xor),
    )
}


def reduction(opts: Any, tensor: torch.Tensor) -> Optional[int]:
    """The engine's reduction for options and a tensor; None = a bitwise one, which it does not
    have."""
    number = hash(opts.reduceOp)
    op = _ops.get(number)
    if op is not None:
        return op if tensor.dtype is not torch.bool else boolean(tensor, op)
    if number in _bitwise:
        return None
    raise InvalidArgumentError(f"the reduction {opts.reduceOp} is not offered")


def bitwise(comm: Communicator, opts: Any, tensors: List[torch.Tensor]) -> None:
    """Reduces the bits of integers, which are gathered for it."""
    combine = _bitwise[hash(opts.reduceOp)]
    for tensor in tensors:
        if tensor.dtype.is_floating_point or tensor.is_complex():
            raise InvalidArgumentError(f"{tensor.dtype} has no bitwise operations")
        work = staged(tensor)
        gathered = torch.empty(comm.world, tensor.numel(), dtype=tensor.dtype)
        if tensor.numel():
            size = tensor.numel() * tensor.element_size()
            comm.allgather(work.data_ptr(), gathered.data_ptr(), size, lib.UINT8)
        result = gathered[0]
        for row in gathered[1:]:
            result = combine(result, row)
        tensor.copy_(result.view(tensor.shape))
