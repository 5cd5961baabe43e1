"""allgather and alltoall: operations whose results have rows of all ranks."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from . import tensors
from .allreduce_ops import allreduced
from .calls import Call, rows_signature, signature
from .gpus import Engine, engine
from .handles import Handle, RowsHandle, done
from .operation import Operation, Pair, Past, Splits
from .reductions import Average


def _start(call: Call, function: Callable, given: torch.Tensor, detail: str, finish: Any, *counts: Any) -> Handle:
    """Starts an operation of the engine on rows; finish is called with the received rows, and with how
    many came from each rank."""
    memory = tensors.Memory([given])
    kind, width = tensors.unit(given)
    how = {
        "row": torch.Size(given.shape[1:]).numel() * width,
        "name": call.name,
        "detail": rows_signature(given) + detail,
    }
    request = function(memory.flat.data_ptr(), 0, given.shape[0], kind, *counts, start=True, **how)

    def ended(result: lib.Rows) -> Any:
        _ = memory  # is referenced until then
        return finish(_received(result, given), result.rows)

    return RowsHandle(request, call.comm.world, ended)


def _received(result: lib.Rows, like: torch.Tensor) -> torch.Tensor:
    """The received rows, with the type, shape and device of a tensor."""
    shape = (sum(result.rows),) + tuple(like.shape[1:])
    size = torch.Size(shape).numel() * like.element_size()
    if size == 0:
        return torch.empty(shape, dtype=like.dtype, device=like.device)
    return tensors.over(result.address, size, result).view(like.dtype).view(shape).to(like.device)


class Allgather(Operation):
    """Concatenates the ranks' tensors along the first dimension. How is what must be equal on all
    ranks, besides what the tensor is."""

    name = "allgather"

    def how(self, tensor: torch.Tensor, name: Optional[str] = None, process_set: Any = None) -> str:
        return ""

    def start(self, call: Call, tensor: Any, how: Any = "", inplace: bool = False, wait: bool = False) -> Handle:
        with call:
            tensors.check(tensor)
            given = tensor.detach()
            if given.dim() == 0:
                given = given.reshape(1)
        if call.comm is None:
            return done(given.clone())
        gpu = engine(call.comm, given)
        started = None if gpu is None else _allgather_on_gpu(call, gpu, given, wait, how)
        if started is not None:
            return started
        return _start(call, call.comm.named.allgather, given, how, lambda received, _: received)

    def gradient(self, past: Past, gradient: Any) -> Any:
        reduced = allreduced(past.call.part("grad"), gradient, Average)
        rows = past.shape[0] if past.shape else 1
        begin = _rows_before(past.call.part("grad.rows"), rows)
        return reduced[begin : begin + rows].reshape(past.shape)


def _allgather_on_gpu(call: Call, gpu: Engine, given: torch.Tensor, ordered: bool, detail: str) -> Optional[Handle]:
    """Starts an allgather on GPUs, which needs the same number of rows on all ranks; None if they
    differ."""
    mine = torch.tensor([given.shape[0]], dtype=torch.int64)
    world, labels = call.comm.world, {"name": call.name + ".rows", "detail": rows_signature(given) + detail}
    request = call.comm.named.allgather(mine.data_ptr(), 0, 1, lib.INT64, row=1, start=True, **labels)
    table = lib.wait_rows(request, world)
    lengths = tensors.over(table.address, 8 * world, table).view(torch.int64).tolist()
    if len(set(lengths)) != 1 or not given.numel():
        return None
    memory = tensors.Memory([given], gpu)
    shape = (sum(lengths),) + tuple(given.shape[1:])
    into = torch.empty(shape, dtype=given.dtype, device=given.device)
    request = gpu.allgather(memory.flat, into, start=True, ordered=ordered, name=call.name, detail=signature(given))
    return Handle(request, lambda: (memory, into)[1])


def _rows_before(call: Call, rows: int) -> int:
    """The number of rows of the ranks below this one."""
    gathered = ALLGATHER.start(call, torch.tensor([rows])).synchronize()
    return int(gathered[: call.group.rank].sum())


class Alltoall(Operation):
    """Sends rows to all ranks. How is the splits. The result is a pair: the received rows, and the
    number from each rank."""

    name = "alltoall"
    result = "Union[torch.Tensor, Pair]"

    def how(
        self, tensor: torch.Tensor, splits: Splits = None, name: Optional[str] = None, process_set: Any = None
    ) -> Splits:
        return splits

    def start(self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False) -> Handle:
        with call:
            tensors.check(tensor)
            if tensor.dim() == 0:
                raise InvalidArgumentError("alltoall: a tensor without dimensions has no parts")
            counts = _counts(how, tensor.shape[0], call.group.size)
            given = tensor.detach()
        kind = how.dtype if isinstance(how, torch.Tensor) else torch.int32
        if call.comm is None:
            return done((given.clone(), torch.tensor(counts, dtype=kind)))
        finish = lambda got, rows: (got, torch.tensor(rows, dtype=kind))  # noqa: E731
        return _start(call, call.comm.named.alltoall, given, "", finish, counts)

    def returned(self, result: Any, how: Any) -> Any:
        return result[0] if how is None else result

    def saved(self, tensors: Any, result: Any, how: Any) -> Any:
        return result[1:]

    def gradient(self, past: Past, gradient: Any) -> Any:
        (splits,) = past.saved
        return self.start(past.call.part("grad"), gradient, splits).synchronize()[0]


def _counts(splits: Splits, rows: int, size: int) -> List[int]:
    """The number of rows for each rank, validated."""
    if splits is None:
        if rows % size:
            raise InvalidArgumentError(f"alltoall: {rows} rows are no multiple of {size} ranks: give splits")
        return [rows // size] * size
    given = splits if isinstance(splits, torch.Tensor) else torch.tensor(splits)
    if given.numel() and (given.dtype not in (torch.int32, torch.int64) or given.dim() != 1):
        raise InvalidArgumentError(
            f"alltoall: splits are whole numbers, one for each rank, not {given.dtype}{list(given.shape)}"
        )
    counts: List[int] = given.tolist()
    if len(counts) != size or min(counts) < 0 or sum(counts) != rows:
        raise InvalidArgumentError(f"alltoall: splits {counts} do not divide {rows} rows among {size} ranks")
    return counts


ALLGATHER, ALLTOALL = Allgather(), Alltoall()
