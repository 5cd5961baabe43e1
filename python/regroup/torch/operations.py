"""Horovod's operations on tensors.

The operations of all ranks must come in the same order; names only tell people what is meant. What is called ..._async
returns a handle for poll and synchronize. Operations with an underscore at the end work in place.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from . import tensors
from .compression import Compression
from .world import world

Sum, Average, Product, Min, Max = lib.SUM, lib.AVERAGE, lib.PRODUCT, lib.MIN, lib.MAX


#: Operations that go on: their memory must stay, whatever the script does with the handle.
_open: Dict[int, "Handle"] = {}


class Handle:
    """An operation that was started. It keeps the memory that the engine works on."""

    __slots__ = ("_request", "_finish", "_result")

    def __init__(self, request: Optional[int], finish: Callable[[], Any]):
        self._request, self._finish, self._result = request, finish, None
        if request is not None:
            _open[request] = self

    def _ended(self) -> None:
        _open.pop(self._request, None)
        self._request = None

    def poll(self) -> bool:
        """Whether it has ended."""
        if self._request is not None:
            try:
                ended = lib.test(self._request)
            except Exception:
                self._ended()
                raise
            if ended:
                self._ended()
        return self._request is None

    def synchronize(self) -> Any:
        """Waits for the end; returns the result."""
        if self._request is not None:
            try:
                lib.wait(self._request)
            except KeyboardInterrupt:
                raise  # it goes on
            except BaseException:
                self._ended()
                raise
            self._ended()
        if self._finish is not None:
            self._result, self._finish = self._finish(), None
        return self._result


def forget() -> None:
    """Lets go of what was started in a generation that is over. Nothing of it goes on."""
    _open.clear()


def poll(handle: Handle) -> bool:
    """Whether an operation has ended. Raises if it failed."""
    return handle.poll()


def synchronize(handle: Handle) -> Any:
    """Waits for the end of an operation and returns its result. Raises WorkerLostError if a worker was lost."""
    return handle.synchronize()


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
) -> Handle:
    """Carries an allreduce out, or starts it. What is carried out by this thread costs no hand-over to another one."""
    tensors.check(tensor)
    made = world.communicator
    packed, ctx = tensor, None
    native = tensor.dtype is torch.float32 and compression.wire is not None
    if not native:
        packed, ctx = compression.compress(tensor)
    pairs = torch.view_as_real(packed) if packed.is_complex() else packed
    own = inplace and pairs.data_ptr() == tensor.data_ptr() and tensors.reachable(pairs)
    work = pairs if own else tensors.staged(pairs)
    reduction, kind = tensors.boolean(work, op), tensors.kind(work)
    _scaled(work, pre)
    request = None
    if made is not None and work.numel() > 0:
        if native:
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
    """Starts allreduce."""
    _alone_group(process_set)
    return _reduce(
        tensor,
        False,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
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


def _grouped(
    given: Sequence[torch.Tensor],
    inplace: bool,
    op: int,
    compression: Any,
    pre: float,
    post: float,
    start: bool = False,
) -> Handle:
    """Carries out, or starts, one allreduce for all tensors of a type and device."""
    groups: dict = {}
    for i, tensor in enumerate(given):
        tensors.check(tensor, f"tensor {i}")
        groups.setdefault((tensor.dtype, tensor.device), []).append(i)
    started = []
    for members in groups.values():
        flat = torch.cat([given[i].reshape(-1) for i in members])
        started.append((members, _reduce(flat, True, op, compression, pre, post, start)))

    def finish() -> List[torch.Tensor]:
        results: List[Any] = [None] * len(given)
        for members, handle in started:
            parts = handle.synchronize().split([given[i].numel() for i in members])
            for i, part in zip(members, parts):
                part = part.view(given[i].shape)
                results[i] = given[i].copy_(part) if inplace else part
        return results

    return Handle(None, finish)


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
    _alone_group(process_set)
    return _grouped(
        tensors,
        False,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
    )


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
    _alone_group(process_set)
    return _grouped(
        tensors,
        True,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
    )


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
    """Combines many tensors in one go."""
    _alone_group(process_set)
    return _grouped(
        tensors, False, _reduction(op, average), compression, prescale_factor, postscale_factor
    ).synchronize()


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> List[torch.Tensor]:
    """Combines many tensors in place."""
    _alone_group(process_set)
    how = _reduction(op, average), Compression.none, prescale_factor, postscale_factor
    return _grouped(tensors, True, *how).synchronize()


def _broadcast(tensor: torch.Tensor, root_rank: int, inplace: bool, start: bool = False) -> Handle:
    tensors.check(tensor)
    made = world.communicator
    size = 1 if made is None else made.world
    if not 0 <= root_rank < size:
        raise InvalidArgumentError(f"root_rank {root_rank} is not within 0 to {size - 1}")
    own = inplace and tensors.reachable(tensor)
    work = tensor if own else tensors.staged(tensor)
    request = None
    if made is not None and work.numel() > 0:
        request = made.broadcast(work.data_ptr(), *tensors.moved(work), root_rank, start=start)

    def finish() -> torch.Tensor:
        if own:
            return tensor
        return tensor.copy_(work) if inplace else work.to(tensor.device)

    return Handle(request, finish)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """Starts broadcast."""
    _alone_group(process_set)
    return _broadcast(tensor, root_rank, False, start=True)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """Starts broadcast_."""
    _alone_group(process_set)
    return _broadcast(tensor.detach(), root_rank, True, start=True)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank):
        ctx.root = root_rank
        return _broadcast(tensor, root_rank, False).synchronize()

    @staticmethod
    def backward(ctx, gradient):
        reduced = _reduce(gradient, False, Average).synchronize()
        return (reduced if world.place.rank == ctx.root else reduced * 0), None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> torch.Tensor:
    """Returns root_rank's tensor. The result has a gradient."""
    _alone_group(process_set)
    if _differentiable(tensor):
        return _Broadcast.apply(tensor, root_rank)
    return _broadcast(tensor, root_rank, False).synchronize()


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> torch.Tensor:
    """Copies root_rank's tensor into the others'."""
    _alone_group(process_set)
    _broadcast(tensor.detach(), root_rank, True).synchronize()
    return tensor


def barrier(process_set: Any = None) -> None:
    """Returns when every rank has called it."""
    _alone_group(process_set)
    made = world.communicator
    if made is not None:
        made.barrier()


def join(device: Any = -1) -> int:
    """Not offered: it would make every operation ask first who has joined."""
    raise NotImplementedError(
        "join() is not offered: with elastic.ElasticSampler every rank makes the same number of steps, whatever is left "
        "of the data, and gradients are weighted by samples"
    )
