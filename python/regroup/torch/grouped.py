"""grouped_allreduce: reduces many tensors at once."""

from __future__ import annotations

import hashlib
from typing import Any, List, Optional, Sequence, Tuple

import torch

from ..errors import InvalidArgumentError
from . import tensors as _tensors
from .calls import Call, scales, signature
from .compression import Compression
from .handles import Handle, Handles
from .operations import (
    Average,
    Sum,
    chosen_gradient,
    differentiable,
    reduction,
    start_allreduce,
)


def _start(
    call: Call,
    given: Sequence[torch.Tensor],
    inplace: bool,
    op: int,
    compression: Any,
    pre: float,
    post: float,
    process_set: Any,
    wait: bool = False,
) -> Handle:
    """Starts one allreduce for all tensors of a type and device. All ranks must pass the same list.
    wait: see start_allreduce."""
    groups: dict = {}
    with call:
        if isinstance(given, torch.Tensor):
            raise InvalidArgumentError("a grouped operation takes a list of tensors")
        for i, tensor in enumerate(given):
            _tensors.check(tensor, f"tensor {i}")
            groups.setdefault((tensor.dtype, tensor.device), []).append(i)
    shapes = "; ".join(signature(t) for t in given)
    if len(shapes) > 200:
        shapes = f"{shapes[:150]} ... {hashlib.sha256(shapes.encode()).hexdigest()[:16]}"
    op_signature = f"group of {len(given)}: {shapes} " + " ".join(scales(pre, post))
    started, order = [], []
    for n, members in enumerate(groups.values()):
        flat = torch.cat([given[i].detach().reshape(-1) for i in members])
        part = Call("", None, process_set, f"{call.name}.{n + 1}of{len(groups)}")
        started.append(start_allreduce(part, flat, True, op, compression, pre, post, op_signature, wait))
        order.append(members)

    def finish(flats: List[torch.Tensor]) -> List[torch.Tensor]:
        results: List[Any] = [None] * len(given)
        for members, flat in zip(order, flats):
            parts = flat.split([given[i].numel() for i in members])
            for i, part in zip(members, parts):
                part = part.view(given[i].shape)
                if inplace:
                    given[i].detach().copy_(part)
                results[i] = given[i] if inplace else part.clone()
        return results

    return Handles(started, finish)


class _Grouped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, op, compression, pre, post, process_set, *given):
        ctx.how = call.name, op, compression, pre, post, process_set
        results = _start(call, given, False, op, compression, pre, post, process_set, wait=True).synchronize()
        if op not in (Sum, Average):
            ctx.save_for_backward(*given, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        name, op, compression, pre, post, process_set = ctx.how
        if op in (Sum, Average):
            call = Call("allreduce", None, process_set, name + ".grad")
            how = op, compression, pre, post, process_set
            reduced = _start(call, gradients, False, *how, wait=True).synchronize()
        else:
            n = len(gradients)
            given, results = ctx.saved_tensors[:n], ctx.saved_tensors[n:]
            reduced = [
                chosen_gradient(g, t, r, op, pre, post, f"{name}.{i}", process_set)
                for i, (g, t, r) in enumerate(zip(gradients, given, results))
            ]
        return (None,) * 6 + tuple(reduced)


def _arguments(
    call: Call, op: Optional[int], average: Optional[bool], pre: float, post: float
) -> Tuple[int, Any, float, float]:
    with call:
        return reduction(op, average), Compression.none, pre, post


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Starts grouped_allreduce."""
    call = Call("allreduce", name, process_set)
    how = _arguments(call, op, average, prescale_factor, postscale_factor)
    return _start(call, tensors, False, *how, process_set)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Starts grouped_allreduce_."""
    call = Call("allreduce", name, process_set)
    how = _arguments(call, op, average, prescale_factor, postscale_factor)
    return _start(call, tensors, True, *how, process_set)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> List[torch.Tensor]:
    """Reduces many tensors at once. The results have gradients."""
    call = Call("allreduce", name, process_set)
    how, _, pre, post = _arguments(call, op, average, prescale_factor, postscale_factor)
    if differentiable(*tensors):
        return list(_Grouped.apply(call, how, compression, pre, post, process_set, *tensors))
    return _start(call, tensors, False, how, compression, pre, post, process_set, wait=True).synchronize()


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> List[torch.Tensor]:
    """Reduces many tensors in place."""
    call = Call("allreduce", name, process_set)
    how = _arguments(call, op, average, prescale_factor, postscale_factor)
    return _start(call, tensors, True, *how, process_set, wait=True).synchronize()
