"""Broadcasts; and what has no tensor: barrier, join."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ..errors import InvalidArgumentError
from . import tensors
from .gpus import engine
from .handles import Handle
from .operations import Average, _alone_group, _differentiable, _reduce
from .world import world


def _broadcast(tensor: torch.Tensor, root_rank: int, inplace: bool, start: bool = False) -> Handle:
    tensors.check(tensor)
    made = world.communicator
    size = 1 if made is None else made.world
    if not 0 <= root_rank < size:
        raise InvalidArgumentError(f"root_rank {root_rank} is not within 0 to {size - 1}")
    near = engine(made, tensor)
    own = inplace and (tensors.reachable(tensor) if near is None else tensor.is_contiguous())
    if own:
        work = tensor
    else:
        work = tensors.staged(tensor) if near is None else tensors.copied(tensor)
    request = None
    if near is not None and work.numel() > 0:
        request = near.broadcast(work, root_rank, start=start)
    elif made is not None and work.numel() > 0:
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
