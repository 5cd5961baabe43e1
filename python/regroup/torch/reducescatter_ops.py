"""reducescatter: each rank gets its rows of the reduced tensors."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch

from ..errors import InvalidArgumentError
from . import tensors
from .calls import Call, signature
from .compression import Compression
from .gather_ops import ALLGATHER
from .handles import Handle
from .operation import Operation, Past
from .reductions import Average, Reduction, Sum, reduction, scale_


def _share(rows: int, size: int, rank: int) -> slice:
    """A rank's rows: the first ranks have one more if the number is not divisible."""
    begin = rank * (rows // size) + min(rank, rows % size)
    return slice(begin, begin + rows // size + (rank < rows % size))


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
            work = tensors.Memory([packed], own=False).flat
            pairs = tensors.pairs(work)
            kind, op = tensors.kind(pairs), tensors.boolean(pairs, how.op)
            scale_(work, how.pre)
            detail = signature(tensor, *how.scales())
        rows, request = tensor.shape[0], None
        if call.comm is not None:
            sent = {"row": torch.Size(pairs.shape[1:]).numel(), "name": call.name, "detail": detail}
            request = call.comm.named.reduce_scatter(pairs.data_ptr(), rows, kind, op, start=not wait, **sent)

        def finish() -> torch.Tensor:
            mine = work[_share(rows, call.group.size, call.group.rank)].clone()
            scale_(mine, how.post)
            return how.compression.decompress(mine, ctx).to(tensor.device)

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
