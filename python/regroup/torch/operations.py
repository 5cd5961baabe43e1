"""Horovod's operations on tensors.

The operations of all ranks must come in the same order, but for allreduce_async and allreduce_async_ with a name: those
are paired up by their names, and small ones are packed together, as Horovod does with all. What is called ..._async
returns a handle for poll and synchronize. Operations with an underscore at the end work in place.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from . import tensors
from .compression import Compression
from .gpus import engine
from .handles import Handle
from .world import world

Sum, Average, Product, Min, Max = lib.SUM, lib.AVERAGE, lib.PRODUCT, lib.MIN, lib.MAX


def _alone_group(process_set: Any) -> None:
    if getattr(process_set, "process_set_id", 0 if process_set is None else None) not in (0, None):
        raise InvalidArgumentError("process sets are not supported: only all ranks together")


def _reduction(op: Optional[int], average: Optional[bool]) -> int:
    if average is not None:
        if op is not None:
            raise InvalidArgumentError("op and average say the same: give one of them")
        return Average if average else Sum
    if op is None:
        return Average
    if op not in (Sum, Average, Product, Min, Max):
        raise InvalidArgumentError(f"reduction {op!r} is none of Sum, Average, Product, Min, Max")
    return op


def _differentiable(tensor: torch.Tensor) -> bool:
    tensors.check(tensor)
    return torch.is_grad_enabled() and tensor.requires_grad


def _scaled(tensor: torch.Tensor, factor: float) -> None:
    if factor != 1.0:
        if not tensor.dtype.is_floating_point:
            raise InvalidArgumentError(f"{tensor.dtype} cannot be scaled by {factor}")
        tensor.mul_(factor)


def _reduce(
    tensor: torch.Tensor,
    inplace: bool,
    op: int,
    compression: Any = Compression.none,
    pre: float = 1.0,
    post: float = 1.0,
    start: bool = False,
    name: Optional[str] = None,
) -> Handle:
    """Carries an allreduce out, or starts it. What is carried out by this thread costs no hand-over to another one."""
    tensors.check(tensor)
    made = world.communicator
    packed, ctx = tensor, None
    native = tensor.dtype is torch.float32 and compression.wire is not None
    if not native:
        packed, ctx = compression.compress(tensor)
    pairs = torch.view_as_real(packed) if packed.is_complex() else packed
    # The engine for GPUs pairs nothing up by names.
    near = None if start and name is not None else engine(made, tensor)
    within = pairs.is_contiguous() if near is not None else tensors.reachable(pairs)
    own = inplace and pairs.data_ptr() == tensor.data_ptr() and within
    if own:
        work = pairs
    else:
        work = tensors.staged(pairs) if near is None else tensors.copied(pairs)
    reduction, kind = tensors.boolean(work, op), tensors.kind(work)
    _scaled(work, pre)
    request = None
    if made is not None and work.numel() > 0:
        if near is not None:
            wire = compression.wire if native else 0
            request = near.allreduce(work, reduction, wire, start=start)
        elif start and name is not None:
            request = made.allreduce_named(
                name,
                work.data_ptr(),
                work.numel(),
                kind,
                reduction,
                compression.wire if native else 0,
            )
        elif native:
            request = made.allreduce_as(
                compression.wire, work.data_ptr(), work.numel(), reduction, start=start
            )
        else:
            request = made.allreduce(work.data_ptr(), work.numel(), kind, reduction, start=start)

    def finish() -> torch.Tensor:
        _scaled(work, post)
        if own:
            return tensor
        result = work.to(tensor.device)
        if packed.is_complex():
            result = torch.view_as_complex(result)
        if not native:
            result = compression.decompress(result, ctx)
        return tensor.copy_(result) if inplace else result

    return Handle(request, finish)


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Starts allreduce. With a name, the ranks may start several in any order: they are paired up by their names."""
    _alone_group(process_set)
    return _reduce(
        tensor,
        False,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
        name=name,
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Starts allreduce_."""
    _alone_group(process_set)
    return _reduce(
        tensor,
        True,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
        name=name,
    )


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, op, compression, pre, post):
        ctx.how = op, compression, pre, post
        return _reduce(tensor, False, op, compression, pre, post).synchronize()

    @staticmethod
    def backward(ctx, gradient):
        return _reduce(gradient, False, *ctx.how).synchronize(), None, None, None, None


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> torch.Tensor:
    """Combines the ranks' tensors, by default to their average. The result has a gradient."""
    _alone_group(process_set)
    how = _reduction(op, average), compression, prescale_factor, postscale_factor
    if _differentiable(tensor):
        return _Allreduce.apply(tensor, *how)
    return _reduce(tensor, False, *how).synchronize()


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> torch.Tensor:
    """Combines the ranks' tensors in place."""
    _alone_group(process_set)
    how = _reduction(op, average), Compression.none, prescale_factor, postscale_factor
    return _reduce(tensor, True, *how).synchronize()
