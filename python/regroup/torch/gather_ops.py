"""allgather and alltoall: operations whose results have rows of all ranks."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from ..named import Result
from . import tensors
from .calls import Call, rows_signature, signature
from .gpus import engine
from .handles import Handle, Handles, RowsHandle, done
from .operations import Average, differentiable, start_allreduce

Splits = Union[None, Sequence[int], torch.Tensor]
Pair = Tuple[torch.Tensor, torch.Tensor]


def _width(tensor: torch.Tensor) -> int:
    """Elements of a row, the unit of these operations."""
    return torch.Size(tensor.shape[1:]).numel()


def _as_rows(result: Result, like: torch.Tensor) -> torch.Tensor:
    """The received rows, with the type, shape and device of a tensor."""
    shape = (sum(result.rows),) + tuple(like.shape[1:])
    size = torch.Size(shape).numel() * like.element_size()
    if size == 0:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return tensors.over(result.address, size, result).view(like.dtype).view(shape).to(like.device)


def start_allgather(
    call: Call, tensor: torch.Tensor, ordered: bool = False, detail: str = ""
) -> Handle:
    """Starts an allgather. ordered is what wait is for start_allreduce on a GPU. detail must be
    equal on all ranks."""
    with call:
        tensors.check(tensor)
        given = tensor.detach()
        if given.dim() == 0:
            given = given.reshape(1)
    if call.comm is None:
        return done(given.clone())
    gpu = engine(call.comm, given)
    if gpu is not None:
        handle = _allgather_on_gpu(call, gpu, given, ordered, detail)
        if handle is not None:
            return handle
    work = given if tensors.reachable(given) else tensors.staged(given)
    (_, kind), width = tensors.moved(work), _width(work)
    if kind == lib.UINT8:
        width *= work.element_size()
    op_signature, rows = rows_signature(given) + detail, given.shape[0]
    request = call.comm.named.allgather(call.name, op_signature, work.data_ptr(), rows, width, kind)
    return RowsHandle(request, call.comm.world, _keeping(work, lambda r: _as_rows(r, given)))


def _keeping(work: torch.Tensor, finish: Any) -> Any:
    """Wraps finish so that a tensor is referenced until it is called."""

    def then(result: Result) -> Any:
        _ = work
        return finish(result)

    return then


def _allgather_on_gpu(
    call: Call, gpu: Any, given: torch.Tensor, ordered: bool, detail: str
) -> Optional[Handle]:
    """Starts an allgather on GPUs, which needs the same number of rows on all ranks; None if they
    differ."""
    mine = torch.tensor([given.shape[0]], dtype=torch.int64)
    named, world = call.comm.named, call.comm.world
    said = rows_signature(given) + detail
    request = named.allgather(call.name + ".rows", said, mine.data_ptr(), 1, 1, lib.INT64)
    table = Result(*lib.wait_result(request, world))
    lengths = tensors.over(table.address, 8 * world, table).view(torch.int64).tolist()
    if len(set(lengths)) != 1 or not given.numel():
        return None
    work = given if given.is_contiguous() else tensors.copied(given)
    shape = (sum(lengths),) + tuple(given.shape[1:])
    into = torch.empty(shape, dtype=given.dtype, device=given.device)
    request = gpu.named_allgather(call.name, signature(work), work, into, ordered)
    return Handle(request, lambda: (work, into)[1])


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, call, process_set):
        ctx.how = call.name, process_set
        ctx.shape, ctx.rows = tensor.shape, tensor.shape[0] if tensor.dim() else 1
        return start_allgather(call, tensor, ordered=True).synchronize()

    @staticmethod
    def backward(ctx, gradient):
        name, process_set = ctx.how
        call = Call("allreduce", None, process_set, name + ".grad")
        reduced = start_allreduce(call, gradient, False, Average, wait=True).synchronize()
        begin = _rows_before(name + ".grad", ctx.rows, process_set)
        return reduced[begin : begin + ctx.rows].reshape(ctx.shape), None, None


def _rows_before(name: str, rows: int, process_set: Any) -> int:
    """The number of rows of the ranks below this one."""
    call = Call("allgather", None, process_set, name + ".rows")
    gathered = start_allgather(call, torch.tensor([rows])).synchronize()
    return int(gathered[: call.group.rank].sum())


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: Any = None
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension, which may differ. The result has a
    gradient."""
    call = Call("allgather", name, process_set)
    if differentiable(tensor):
        return _Allgather.apply(tensor, call, process_set)
    return start_allgather(call, tensor, ordered=True).synchronize()


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """Starts allgather."""
    return start_allgather(Call("allgather", name, process_set), tensor)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: Any = None
) -> Handle:
    """Starts an allgather of each tensor; the results are a list."""
    whole = Call("allgather", name, process_set)
    n = len(tensors)
    return Handles(
        [
            start_allgather(Call("", None, process_set, f"{whole.name}.{i + 1}of{n}"), t)
            for i, t in enumerate(tensors)
        ]
    )


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: Any = None
) -> List[torch.Tensor]:
    """An allgather of each tensor. The results have gradients."""
    if not differentiable(*tensors):
        return grouped_allgather_async(tensors, name, process_set).synchronize()
    whole, n = Call("allgather", name, process_set), len(tensors)
    calls = [Call("", None, process_set, f"{whole.name}.{i + 1}of{n}") for i in range(n)]
    return [_Allgather.apply(t, c, process_set) for t, c in zip(tensors, calls)]


def _counts(splits: Splits, rows: int, size: int) -> List[int]:
    """The number of rows for each rank, validated."""
    if splits is None:
        if rows % size:
            raise InvalidArgumentError(
                f"alltoall: {rows} rows are no multiple of {size} ranks: give splits"
            )
        return [rows // size] * size
    given = splits if isinstance(splits, torch.Tensor) else torch.tensor(splits)
    if given.numel() and (given.dtype not in (torch.int32, torch.int64) or given.dim() != 1):
        raise InvalidArgumentError(
            f"alltoall: splits are whole numbers, one for each rank, not {given.dtype}{list(given.shape)}"
        )
    counts: List[int] = given.tolist()
    if len(counts) != size or min(counts) < 0 or sum(counts) != rows:
        raise InvalidArgumentError(
            f"alltoall: splits {counts} do not divide {rows} rows among {size} ranks"
        )
    return counts


def start_alltoall(call: Call, tensor: torch.Tensor, splits: Splits) -> Handle:
    """Starts an alltoall."""
    with call:
        tensors.check(tensor)
        if tensor.dim() == 0:
            raise InvalidArgumentError("alltoall: a tensor without dimensions has no parts")
        counts = _counts(splits, tensor.shape[0], call.group.size)
        given = tensor.detach()
    kind_of_splits = splits.dtype if isinstance(splits, torch.Tensor) else torch.int32
    if call.comm is None:
        return done((given.clone(), torch.tensor(counts, dtype=kind_of_splits)))
    work = given if tensors.reachable(given) else tensors.staged(given)
    (_, kind), width = tensors.moved(work), _width(work)
    if kind == lib.UINT8:
        width *= work.element_size()
    op_signature = rows_signature(given)
    request = call.comm.named.alltoall(call.name, op_signature, work.data_ptr(), counts, width, kind)

    def finish(result: Result) -> Pair:
        return _as_rows(result, given), torch.tensor(result.rows, dtype=kind_of_splits)

    return RowsHandle(request, call.comm.world, _keeping(work, finish))


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, call, process_set):
        result, came = start_alltoall(call, tensor, splits).synchronize()
        ctx.came, ctx.how = came, (call.name, process_set)
        ctx.mark_non_differentiable(came)
        return result, came

    @staticmethod
    def backward(ctx, gradient, _):
        name, process_set = ctx.how
        call = Call("alltoall", None, process_set, name + ".grad")
        return start_alltoall(call, gradient, ctx.came).synchronize()[0], None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: Any = None,
) -> Union[torch.Tensor, Pair]:
    """Sends rows to all ranks, splits[i] of them to rank i, in order; without splits the same
    number to each.

    Returns the received rows in the order of the ranks; with splits also the number from each rank.
    """
    call = Call("alltoall", name, process_set)
    if differentiable(tensor):
        result = _Alltoall.apply(tensor, splits, call, process_set)
    else:
        result = start_alltoall(call, tensor, splits).synchronize()
    return result[0] if splits is None else result


def alltoall_async(
    tensor: torch.Tensor,
    splits: Splits = None,
    name: Optional[str] = None,
    process_set: Any = None,
) -> Handle:
    """Starts alltoall. The result is a pair: the received rows, and the number from each rank."""
    return start_alltoall(Call("alltoall", name, process_set), tensor, splits)


