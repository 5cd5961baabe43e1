"""Operations whose result has another shape than what goes in: allgather, alltoall, reducescatter."""

from __future__ import annotations

import ctypes
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from . import tensors
from .gpus import engine
from .handles import Handle
from .operations import Average, _alone_group, _differentiable, _reduce, _reduction
from .world import world

Splits = Union[None, Sequence[int], torch.Tensor]
Pair = Tuple[torch.Tensor, torch.Tensor]


def _numbers(*values: int) -> List[List[int]]:
    """What all ranks give, a row for each."""
    made = world.communicator
    if made is None:
        return [list(values)]
    mine = torch.tensor(values, dtype=torch.int64)
    everybody = torch.empty(made.world, len(values), dtype=torch.int64)
    made.allgather(mine.data_ptr(), everybody.data_ptr(), len(values), lib.INT64)
    return everybody.tolist()


def _rows(tensor: torch.Tensor) -> int:
    """Elements of a row, the unit of these operations."""
    return torch.Size(tensor.shape[1:]).numel()


def _allgather(tensor: torch.Tensor) -> torch.Tensor:
    tensors.check(tensor)
    given = tensor.detach()
    if given.dim() == 0:
        given = given.reshape(1)
    made = world.communicator
    if made is None:
        return given.clone()
    table = _numbers(given.shape[0], _rows(given), given.element_size())
    for rank, row in enumerate(table):
        if row[1:] != [_rows(given), given.element_size()]:
            raise InvalidArgumentError(
                f"allgather: rank {rank} has rows of {row[1]} elements of {row[2]} bytes, this one of "
                f"{_rows(given)} of {given.element_size()}: only the first dimension may differ"
            )
    lengths = [row[0] for row in table]
    shape = (sum(lengths),) + tuple(given.shape[1:])
    equal = len(set(lengths)) == 1
    near = engine(made, given) if equal else None
    if near is not None:
        result = torch.empty(shape, dtype=given.dtype, device=given.device)
        if result.numel():
            near.allgather(given if given.is_contiguous() else tensors.copied(given), result)
        return result
    work = given if tensors.reachable(given) else tensors.staged(given)
    result = torch.empty(shape, dtype=given.dtype)
    if equal:
        if result.numel():
            made.allgather(work.data_ptr(), result.data_ptr(), *tensors.moved(work))
    else:
        parts = made.allgather_bytes(_bytes(work))
        result = torch.frombuffer(bytearray(b"".join(parts)), dtype=given.dtype).reshape(shape)
    return result.to(tensor.device)


def _bytes(tensor: torch.Tensor) -> bytes:
    """The memory of a contiguous tensor."""
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        ctx.shape = tensor.shape
        ctx.rows = tensor.shape[0] if tensor.dim() else 1
        return _allgather(tensor)

    @staticmethod
    def backward(ctx, gradient):
        reduced = _reduce(gradient, False, Average).synchronize()
        lengths = [row[0] for row in _numbers(ctx.rows)]
        begin = sum(lengths[: world.place.rank])
        return reduced[begin : begin + ctx.rows].reshape(ctx.shape)


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: Any = None
) -> torch.Tensor:
    """Puts the ranks' tensors one after the other along the first dimension, which may differ. It has a gradient."""
    _alone_group(process_set)
    if _differentiable(tensor):
        return _Allgather.apply(tensor)
    return _allgather(tensor)


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """allgather with a handle. It has been carried out when this returns."""
    result = allgather(tensor.detach(), name, process_set)
    return Handle(None, lambda: result)


def _alltoall(tensor: torch.Tensor, splits: Splits) -> Pair:
    tensors.check(tensor)
    made = world.communicator
    size = 1 if made is None else made.world
    if tensor.dim() == 0:
        raise InvalidArgumentError("alltoall: a tensor without dimensions has no parts")
    if splits is None:
        if tensor.shape[0] % size:
            raise InvalidArgumentError(
                f"alltoall: {tensor.shape[0]} rows are no multiple of {size} ranks: give splits"
            )
        splits = [tensor.shape[0] // size] * size
    counts = [int(n) for n in splits]
    if len(counts) != size or min(counts) < 0 or sum(counts) != tensor.shape[0]:
        raise InvalidArgumentError(
            f"alltoall: splits {counts} do not divide {tensor.shape[0]} rows among {size} ranks"
        )
    if made is None:
        return tensor.detach().clone(), torch.tensor(counts)
    given = tensor.detach()
    work = given if tensors.reachable(given) else tensors.staged(given)
    came = [row[made.rank] for row in _numbers(*counts)]
    result = torch.empty((sum(came),) + tuple(given.shape[1:]), dtype=given.dtype)
    width, (_, kind) = _rows(given), tensors.moved(work)
    if kind == lib.UINT8:
        width *= given.element_size()
    made.alltoall(
        work.data_ptr(),
        result.data_ptr(),
        0,
        kind,
        [n * width for n in counts],
        [n * width for n in came],
    )
    return result.to(tensor.device), torch.tensor(came)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits):
        result, came = _alltoall(tensor, splits)
        ctx.came = came
        ctx.mark_non_differentiable(came)
        return result, came

    @staticmethod
    def backward(ctx, gradient, _):
        return _alltoall(gradient, ctx.came)[0], None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: Any = None,
) -> Union[torch.Tensor, Pair]:
    """Sends rows to all ranks, splits[i] of them to rank i, in order; without splits equally many to each.

    Returns the rows that came, in the order of the ranks; with splits also how many came from each.
    """
    _alone_group(process_set)
    if _differentiable(tensor):
        result = _Alltoall.apply(tensor, splits)
    else:
        result = _alltoall(tensor, splits)
    return result[0] if splits is None else result


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: Any = None,
) -> Handle:
    """alltoall with a handle. It has been carried out when this returns."""
    result = alltoall(tensor.detach(), splits, name, process_set)
    return Handle(None, lambda: result)


def _reducescatter(tensor: torch.Tensor, op: int) -> torch.Tensor:
    tensors.check(tensor)
    made = world.communicator
    if tensor.dim() == 0:
        raise InvalidArgumentError("reducescatter: a tensor without dimensions has no parts")
    if made is None:
        return tensor.detach().clone()
    work = tensors.staged(tensor.detach())
    rows, size, rank = tensor.shape[0], made.world, made.rank
    begin = rank * (rows // size) + min(rank, rows % size)
    end = begin + rows // size + (rank < rows % size)
    if work.numel():
        how = tensors.kind(work), tensors.boolean(work, op)
        if rows % size == 0:
            made.reduce_scatter(work.data_ptr(), work.numel(), *how)
        else:  # the engine's segments would cut through rows
            made.allreduce(work.data_ptr(), work.numel(), *how)
    return work[begin:end].to(tensor.device, copy=True)


class _Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, op):
        ctx.op = op
        return _reducescatter(tensor, op)

    @staticmethod
    def backward(ctx, gradient):
        whole = _allgather(gradient)
        if ctx.op == Average:
            whole /= world.place.size
        return whole, None


def reducescatter(
    tensor: torch.Tensor,
    op: int = Average,
    name: Optional[str] = None,
    process_set: Any = None,
) -> torch.Tensor:
    """Combines the ranks' tensors and leaves each rank its rows; the first ones have one more if they do not divide."""
    _alone_group(process_set)
    op = _reduction(op, None)
    if _differentiable(tensor):
        return _Reducescatter.apply(tensor, op)
    return _reducescatter(tensor, op)


def reducescatter_async(
    tensor: torch.Tensor,
    op: int = Average,
    name: Optional[str] = None,
    process_set: Any = None,
) -> Handle:
    """reducescatter with a handle. It has been carried out when this returns."""
    result = reducescatter(tensor.detach(), op, name, process_set)
    return Handle(None, lambda: result)
