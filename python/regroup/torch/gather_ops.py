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
from .handles import Handle, LaterHandle, RowsHandle, done
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
        host = lambda: _start(call, call.comm.named.allgather, given, how, lambda received, _: received)  # noqa: E731
        gpu = engine(call.comm, given)
        if gpu is None:
            return host()
        lengths = _numbers(call, [given.shape[0]], ".rows", rows_signature(given) + how)

        def begin() -> Handle:
            return _allgather_on_gpu(call, gpu, given, wait, [row[0] for row in lengths()]) or host()

        return _then(given, wait, begin)

    def gradient(self, past: Past, gradient: Any) -> Any:
        reduced = allreduced(past.call.part("grad"), gradient, Average)
        rows = past.shape[0] if past.shape else 1
        begin = _rows_before(past.call.part("grad.rows"), rows)
        return reduced[begin : begin + rows].reshape(past.shape)


def _numbers(call: Call, mine: List[int], name: str, detail: str) -> Callable[[], List[List[int]]]:
    """Starts to tell all ranks some numbers; returns what waits for those of each rank."""
    given, world = torch.tensor(mine, dtype=torch.int64), call.comm.world
    labels = {"name": call.name + name, "detail": detail}
    request = call.comm.named.allgather(given.data_ptr(), 0, 1, lib.INT64, row=len(mine), start=True, **labels)

    def ended() -> List[List[int]]:
        _ = given  # is referenced until then
        table = lib.wait_rows(request, world)
        bytes_ = tensors.over(table.address, 8 * world * len(mine), table)
        numbers: List[List[int]] = bytes_.view(torch.int64).view(world, -1).tolist()
        return numbers

    return ended


def _then(given: torch.Tensor, wait: bool, begin: Callable[[], Handle]) -> Handle:
    """Begins an operation on a GPU tensor that has to wait for numbers before it is started."""
    if wait:
        return begin()
    return LaterHandle(begin, torch.cuda.current_stream(given.device) if given.is_cuda else None)


#: How much more memory than the rows need an allgather of unequal ones takes on GPUs, at most.
_PADDED = 2


def _allgather_on_gpu(
    call: Call, gpu: Engine, given: torch.Tensor, ordered: bool, lengths: List[int]
) -> Optional[Handle]:
    """Starts an allgather on GPUs of ranks with these numbers of rows, which are sent as if all had the
    most; None if that takes too much memory, or there is nothing to send."""
    most, world = max(lengths), len(lengths)
    if not torch.Size((most, *given.shape[1:])).numel() or most * world > _PADDED * sum(lengths):
        return None
    equal = min(lengths) == most
    sent = given
    if not equal:
        sent = given.new_empty((most, *given.shape[1:]))
        sent[: given.shape[0]] = given
    memory = tensors.Memory([sent], gpu)
    into = given.new_empty((most * world, *given.shape[1:]))
    request = gpu.allgather(memory.flat, into, start=True, ordered=ordered, name=call.name, detail=signature(sent))

    def finish() -> torch.Tensor:
        _ = memory  # is referenced until then
        return into if equal else torch.cat([part[:n] for part, n in zip(into.split(most), lengths)])

    return Handle(request, finish)


def _alltoall_on_gpu(
    call: Call, gpu: Engine, given: torch.Tensor, ordered: bool, counts: List[int], back: List[int], finish: Any
) -> Handle:
    """Starts an alltoall on GPUs, of so many rows for and from each rank."""
    width = torch.Size(given.shape[1:]).numel()
    memory = tensors.Memory([given], gpu)
    into = given.new_empty((sum(back), *given.shape[1:]))
    elements = [n * width for n in counts], [n * width for n in back]
    how = {"name": call.name, "detail": rows_signature(given), "ordered": ordered}
    request = gpu.alltoall(memory.flat, into, *elements, start=True, **how)
    return Handle(request, lambda: (memory, finish(into, back))[1])


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
        gpu = engine(call.comm, given)
        if gpu is None:
            return _start(call, call.comm.named.alltoall, given, "", finish, counts)
        table, rank = _numbers(call, counts, ".splits", rows_signature(given)), call.comm.rank

        def begin() -> Handle:
            back = [row[rank] for row in table()]
            return _alltoall_on_gpu(call, gpu, given, wait, counts, back, finish)

        return _then(given, wait, begin)

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
