"""reducescatter: each rank gets its rows of the reduced tensors."""

from __future__ import annotations

import contextlib
from typing import Any, List, Optional, Sequence

import torch

from ..errors import InvalidArgumentError
from . import tensors
from .calls import Call, scales, signature
from .compression import Compression
from .gather_ops import start_allgather
from .handles import Handle, Handles
from .operations import Average, Sum, differentiable, reduction, scale_


def _share(rows: int, size: int, rank: int) -> slice:
    """A rank's rows: the first ranks have one more if the number is not divisible."""
    begin = rank * (rows // size) + min(rank, rows % size)
    return slice(begin, begin + rows // size + (rank < rows % size))


def start_reducescatter(
    call: Call,
    tensor: torch.Tensor,
    op: int,
    compression: Any = Compression.none,
    pre: float = 1.0,
    post: float = 1.0,
    wait: bool = False,
) -> Handle:
    """Starts a reducescatter. wait: see start_allreduce."""
    with call:
        tensors.check(tensor)
        if tensor.dim() == 0:
            raise InvalidArgumentError(
                "reducescatter: a tensor without dimensions has no parts"
            )
        packed, ctx = compression.compress(tensor.detach())
        work = tensors.staged(packed)
        pairs = torch.view_as_real(work) if work.is_complex() else work
        kind, how = tensors.kind(pairs), tensors.boolean(pairs, op)
        scale_(work, pre)
        op_signature = signature(tensor, *scales(pre, post))
    rows, request = tensor.shape[0], None
    if call.comm is not None:
        width = torch.Size(pairs.shape[1:]).numel()
        where = pairs.data_ptr(), rows, width
        request = call.comm.named.reduce_scatter(call.name, op_signature, *where, kind, how, wait)

    def finish() -> torch.Tensor:
        mine = work[_share(rows, call.group.size, call.group.rank)].clone()
        scale_(mine, post)
        return compression.decompress(mine, ctx).to(tensor.device)

    return Handle(request, finish)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, call, op, compression, pre, post, process_set):
        factor = pre * post * (call.group.size if op == Sum else 1)
        ctx.how = call.name, factor, process_set
        return start_reducescatter(call, tensor, op, compression, pre, post, wait=True).synchronize()

    @staticmethod
    def backward(ctx, gradient):
        # The factor is Horovod's: the gradient of the sum of all ranks' losses, times their number.
        name, factor, process_set = ctx.how
        call = Call("allgather", None, process_set, name + ".grad")
        return (start_allgather(call, gradient * factor).synchronize(),) + (None,) * 6


def _wants_gradients(given: Sequence[torch.Tensor], op: int) -> bool:
    wants = differentiable(*given)
    if wants and op not in (Sum, Average):
        raise InvalidArgumentError(
            "reducescatter has gradients for Sum and Average only: give it tensor.detach()"
        )
    return wants


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces the ranks' tensors and returns this rank's rows; the first ranks have one more if the
    number is not divisible."""
    call = Call("reducescatter", name, process_set)
    with call:
        rest = reduction(op), compression, prescale_factor, postscale_factor
        wants = _wants_gradients([tensor], rest[0])
    if wants:
        return _Reducescatter.apply(tensor, call, *rest, process_set)
    return start_reducescatter(call, tensor, *rest, wait=True).synchronize()


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Starts reducescatter."""
    call = Call("reducescatter", name, process_set)
    with call:
        how = reduction(op)
    rest = how, Compression.none, prescale_factor, postscale_factor
    return start_reducescatter(call, tensor, *rest)


def _calls(n: int, name: Optional[str], process_set: Any) -> List[Call]:
    whole = Call("reducescatter", name, process_set)
    return [Call("", None, process_set, f"{whole.name}.{i + 1}of{n}") for i in range(n)]


@contextlib.contextmanager
def _all(calls: List[Call]):
    """Within it the arguments of all these calls are checked, see Call."""
    with contextlib.ExitStack() as stack:
        for c in calls:
            stack.enter_context(c)
        yield


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle:
    """Starts a reducescatter of each tensor; the results are a list."""
    calls = _calls(len(tensors), name, process_set)
    with _all(calls):
        rest = reduction(op), Compression.none, prescale_factor, postscale_factor
    return Handles([start_reducescatter(c, t, *rest) for c, t in zip(calls, tensors)])


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> List[torch.Tensor]:
    """A reducescatter of each tensor. The results have gradients."""
    calls = _calls(len(tensors), name, process_set)
    with _all(calls):
        rest = reduction(op), compression, prescale_factor, postscale_factor
        wants = _wants_gradients(tensors, rest[0])
    if wants:
        return [_Reducescatter.apply(t, c, *rest, process_set) for c, t in zip(calls, tensors)]
    started = [start_reducescatter(c, t, *rest) for c, t in zip(calls, tensors)]
    return Handles(started).synchronize()
