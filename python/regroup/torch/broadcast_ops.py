"""broadcast; and the operations without a tensor: barrier, join."""

from __future__ import annotations

from typing import Any, Optional

import torch

from .. import _library as lib
from ..named import Result
from . import tensors
from .calls import Call, signature
from .gpus import engine
from .handles import Handle
from .operations import Average, differentiable, start_allreduce
from .process_sets import group_of
from .world import world


def start_broadcast(
    call: Call, tensor: torch.Tensor, root_rank: int, inplace: bool, wait: bool = False
) -> Handle:
    """Starts a broadcast; root_rank is a rank of the world. wait: see start_allreduce."""
    with call:
        tensors.check(tensor)
        root = call.group.index(root_rank, "root_rank")
        given = tensor.detach()
        gpu = engine(call.comm, given)
        own = inplace and (tensors.reachable(given) if gpu is None else given.is_contiguous())
        if own:
            work = given
        else:
            work = tensors.staged(given) if gpu is None else tensors.copied(given)
    request = None
    if gpu is not None:
        request = gpu.named_broadcast(call.name, signature(tensor), work, root, wait)
    elif call.comm is not None:
        where = work.data_ptr(), *tensors.moved(work)
        request = call.comm.named.broadcast(call.name, signature(tensor), *where, root, wait)

    def finish() -> torch.Tensor:
        if inplace:
            if not own:
                given.copy_(work)
            return tensor
        return work.to(tensor.device)

    return Handle(request, finish)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """Starts broadcast."""
    return start_broadcast(Call("broadcast", name, process_set), tensor, root_rank, False)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """Starts broadcast_."""
    return start_broadcast(Call("broadcast", name, process_set), tensor, root_rank, True)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, call, process_set):
        ctx.how = root_rank, call.name, process_set
        return start_broadcast(call, tensor, root_rank, False, wait=True).synchronize()

    @staticmethod
    def backward(ctx, gradient):
        root, name, process_set = ctx.how
        call = Call("allreduce", None, process_set, name + ".grad")
        reduced = start_allreduce(call, gradient, False, Average, wait=True).synchronize()
        return (reduced if world.membership.rank == root else reduced * 0), None, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> torch.Tensor:
    """Returns root_rank's tensor. The result has a gradient."""
    call = Call("broadcast", name, process_set)
    if differentiable(tensor):
        return _Broadcast.apply(tensor, root_rank, call, process_set)
    return start_broadcast(call, tensor, root_rank, False, wait=True).synchronize()


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: Optional[str] = None, process_set: Any = None
) -> torch.Tensor:
    """Copies root_rank's tensor into the others'."""
    call = Call("broadcast", name, process_set)
    return start_broadcast(call, tensor, root_rank, True, wait=True).synchronize()


def barrier(process_set: Any = None) -> None:
    """Returns when every rank has called it."""
    call = Call("barrier", None, process_set)
    if call.comm is not None:
        call.comm.named.barrier(call.name)


def join(device: Any = -1) -> int:
    """Declares that this rank has no more data, and waits until all ranks have called it. Returns
    the rank that joined last.

    Until then this rank takes part in the allreduces of the others, also those of
    DistributedOptimizer, with identity elements; an average still divides by the number of all
    ranks. Other operations of theirs, except barrier, fail. ``device`` is accepted for
    compatibility with Horovod. elastic.ElasticSampler needs no join: with it all ranks make the
    same number of steps.
    """
    comm = group_of(None).comm
    if comm is None:
        return 0
    result = Result(*lib.wait_result(comm.named.join(), comm.world))
    comm.named.joined()
    return result.rows[0]
