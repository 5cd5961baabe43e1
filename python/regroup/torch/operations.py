"""Horovod's allreduce.

Operations are matched across ranks by their names, so they may be started in any order and from any
thread; those without a name are numbered, and only allowed on the thread that has called init. An
operation is executed only if it is the same on all ranks: a difference is an error on all of them.
Functions named ..._async return a handle for poll and synchronize. Operations with an underscore at
the end work in place.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError, UnsupportedError
from . import tensors
from .calls import Call, scales, signature
from .compression import Compression
from .gpus import engine
from .handles import Handle
from .process_sets import group_of

Sum, Average, Product, Min, Max = lib.SUM, lib.AVERAGE, lib.PRODUCT, lib.MIN, lib.MAX
#: Horovod's adaptive summation, which is not supported: every operation refuses it.
Adasum = -1


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


def differentiable(*all_tensors: Any) -> bool:
    """Whether an operation on these tensors needs a gradient."""
    return torch.is_grad_enabled() and any(
        isinstance(t, torch.Tensor) and t.requires_grad for t in all_tensors
    )


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


def start_allreduce(
    call: Call,
    tensor: torch.Tensor,
    inplace: bool,
    op: int,
    compression: Any = Compression.none,
    pre: float = 1.0,
    post: float = 1.0,
    detail: str = "",
    wait: bool = False,
) -> Handle:
    """Starts an allreduce. wait: the caller waits for it at once, so it may be executed before this
    returns. For a GPU tensor it then ends when later work on the stream is ordered after it."""
    given = tensor
    with call:
        tensors.check(tensor)
        tensor = tensor.detach()
        packed, ctx = tensor, None
        native = tensor.dtype is torch.float32 and compression.wire is not None
        if not native:
            packed, ctx = compression.compress(tensor)
        pairs = torch.view_as_real(packed) if packed.is_complex() else packed
        gpu = engine(call.comm, tensor)
        within = pairs.is_contiguous() if gpu is not None else tensors.reachable(pairs)
        own = inplace and pairs.data_ptr() == tensor.data_ptr() and within
        if own:
            work = pairs
        else:
            work = tensors.staged(pairs) if gpu is None else tensors.copied(pairs)
        kind, how = tensors.kind(work), tensors.boolean(work, op)
        if packed.is_complex() and op not in (Sum, Average):
            raise InvalidArgumentError("complex numbers can be added and averaged only")
        scale_(work, pre)
        wire = compression.wire if native else 0
        # Divided here, because the engine multiplies with the reciprocal, which may round
        # differently unless it is a power of two. The engine averages half-precision floats, in
        # float32.
        exact = call.group.size & (call.group.size - 1) == 0
        divide = how == Average and work.dtype in (torch.float32, torch.float64) and not (wire or exact)
        op_signature = detail or signature(tensor, *scales(pre, post))
        if divide:
            how, op_signature = Sum, op_signature + " averaged"
    request = None
    if call.comm is not None:
        if gpu is not None:
            request = gpu.named_allreduce(call.name, op_signature, work, how, wire, wait)
        else:
            where = work.data_ptr(), work.numel(), kind
            request = call.comm.named.allreduce(call.name, op_signature, *where, how, wire, wait)

    def finish() -> torch.Tensor:
        if divide:
            work.div_(call.group.size)
        scale_(work, post)
        if own:
            return given
        result = work.to(tensor.device)
        if packed.is_complex():
            result = torch.view_as_complex(result)
        if not native:
            result = compression.decompress(result, ctx)
        if inplace:
            tensor.copy_(result)
            return given
        return result

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
    """Starts allreduce."""
    call = Call("allreduce", name, process_set)
    with call:
        how = reduction(op, average)
    factors = prescale_factor, postscale_factor
    return start_allreduce(call, tensor, False, how, Compression.none, *factors)


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
    call = Call("allreduce", name, process_set)
    with call:
        how = reduction(op, average)
    factors = prescale_factor, postscale_factor
    return start_allreduce(call, tensor, True, how, Compression.none, *factors)


class _Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, call, op, compression, pre, post, process_set):
        ctx.how = call.name, op, compression, pre, post, process_set
        handle = start_allreduce(call, tensor, False, op, compression, pre, post, wait=True)
        result = handle.synchronize()
        if op in (Product, Min, Max):
            ctx.save_for_backward(tensor, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        name, op, compression, pre, post, process_set = ctx.how
        if op in (Sum, Average):
            call = Call("allreduce", None, process_set, name + ".grad")
            handle = start_allreduce(
                call, gradient, False, op, compression, pre, post, wait=True
            )
            return (handle.synchronize(),) + (None,) * 6
        result = chosen_gradient(gradient, *ctx.saved_tensors, op, pre, post, name, process_set)
        return (result,) + (None,) * 6


def chosen_gradient(
    gradient: torch.Tensor,
    tensor: torch.Tensor,
    result: torch.Tensor,
    op: int,
    pre: float,
    post: float,
    name: str,
    process_set: Any,
) -> torch.Tensor:
    """The gradient of an allreduce with Product, Min or Max."""

    def reduced(what: torch.Tensor, part: str) -> torch.Tensor:
        call = Call("allreduce", None, process_set, f"{name}.grad.{part}")
        return start_allreduce(call, what, False, Sum, wait=True).synchronize()

    total = reduced(gradient, "sum") * (pre * post)
    if op in (Min, Max):
        scaled = tensor.clone()
        scale_(scaled, pre)
        scale_(scaled, post)
        mine = (scaled == result).to(gradient.dtype)  # equal elements share the gradient
        return total * mine / reduced(mine, "equal")
    # The product of the others: this rank's element may be zero, so it cannot be divided by.
    group = group_of(process_set)
    own = torch.zeros((group.size,) + tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
    own[group.rank] = tensor
    gathered = reduced(own, "factors") * pre
    others = torch.cat([gathered[: group.rank], gathered[group.rank + 1 :]]).prod(0)
    return total * others


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
    """Reduces the ranks' tensors, by default to their average. The result has a gradient."""
    call = Call("allreduce", name, process_set)
    with call:
        tensors.check(tensor)
        how = reduction(op, average)
    rest: Tuple[Any, ...] = (how, compression, prescale_factor, postscale_factor)
    if differentiable(tensor):
        return _Allreduce.apply(tensor, call, *rest, process_set)
    handle = start_allreduce(call, tensor, False, *rest, wait=True)
    return handle.synchronize()


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> torch.Tensor:
    """Reduces the ranks' tensors in place."""
    call = Call("allreduce", name, process_set)
    with call:
        how = reduction(op, average)
    factors = prescale_factor, postscale_factor
    handle = start_allreduce(call, tensor, True, how, Compression.none, *factors, wait=True)
    return handle.synchronize()
