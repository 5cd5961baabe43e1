"""reducescatter: each rank gets its rows of the reduced tensors."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ..errors import InvalidArgumentError
from . import tensors
from .calls import Call, signature
from .compression import Compression
from .gather_ops import ALLGATHER
from .gpus import engine
from .handles import Handle
from .operation import Operation, Past
from .reductions import Average, Reduction, Sum, reduction, scale_


def _share(rows: int, size: int, rank: int) -> slice:
    """A rank's rows: the first ranks have one more if the number is not divisible."""
    begin = rank * (rows // size) + min(rank, rows % size)
    return slice(begin, begin + rows // size + (rank < rows % size))


def _in_equal_parts(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """A tensor whose rows are those of all ranks, each followed by as many of zeros as it has fewer than
    the first: seven rows for three ranks are three, two and a zero, two and a zero."""
    rows = tensor.shape[0]
    if rows % size == 0:
        return tensor
    most = rows // size + 1
    padded = tensor.new_zeros((size * most, *tensor.shape[1:]))
    for rank in range(size):
        share = _share(rows, size, rank)
        padded[rank * most :][: share.stop - share.start] = tensor[share]
    return padded


class Reducescatter(Operation):
    """Reduces the ranks' tensors; each rank gets its rows."""

    name = "reducescatter"

    def how(
        self,
        tensor: torch.Tensor,
        name: Optional[str] = None,
        compression: Any = Compression.none,
        op: int = Average,
        process_set: Any = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
    ) -> Reduction:
        return Reduction(reduction(op), compression, prescale_factor, postscale_factor)

    def start(self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False) -> Handle:
        with call:
            tensors.check(tensor)
            if tensor.dim() == 0:
                raise InvalidArgumentError("reducescatter: a tensor without dimensions has no parts")
            packed, ctx = how.compression.compress(tensor.detach())
            gpu = engine(call.comm, tensor)
            if gpu is not None:
                packed = _in_equal_parts(packed, call.group.size)
            fresh = packed.data_ptr() != tensor.data_ptr()
            own = gpu is not None and (fresh or how.pre == 1 and gpu.keeps(packed))
            work = tensors.Memory([packed], gpu, own=own).flat
            pairs = tensors.pairs(work)
            kind, op = tensors.kind(pairs), tensors.boolean(pairs, how.op)
            scale_(work, how.pre)
            detail = signature(tensor, *how.scales())
        rows, request, named = tensor.shape[0], None, {"name": call.name, "detail": detail}
        mine = _share(rows, call.group.size, call.group.rank)
        if gpu is not None:
            got = work.new_empty((len(work) // call.group.size, *work.shape[1:]))
            if got.numel():
                request = gpu.reduce_scatter(pairs, tensors.pairs(got), op, start=True, ordered=wait, **named)
        elif call.comm is not None:
            row = torch.Size(pairs.shape[1:]).numel()
            request = call.comm.named.reduce_scatter(pairs.data_ptr(), rows, kind, op, row=row, start=not wait, **named)

        def finish() -> torch.Tensor:
            _ = pairs  # is referenced until then
            part = work[mine].clone() if gpu is None else got[: mine.stop - mine.start]
            scale_(part, how.post)
            return how.compression.decompress(part, ctx).to(tensor.device)

        return Handle(request, finish)

    def differentiable(self, tensors: Sequence[Any], how: Any) -> bool:
        wanted = super().differentiable(tensors, how)
        if wanted and how.op not in (Sum, Average):
            raise InvalidArgumentError("reducescatter has gradients for Sum and Average only: give it tensor.detach()")
        return wanted

    def gradient(self, past: Past, gradient: Any) -> Any:
        # The factor is Horovod's: the gradient of the sum of all ranks' losses, times their number.
        how = past.how
        factor = how.pre * how.post * (past.call.group.size if how.op == Sum else 1)
        return ALLGATHER.start(past.call.part("grad"), gradient * factor).synchronize()


REDUCESCATTER = Reducescatter()
