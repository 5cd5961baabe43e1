"""all_reduce of sparse tensors.

The ranks tell each other how many elements they have, as one operation of the group. Then each sends
its elements to all others: messages with a tag of their own, which do not hold up the operations
that follow. Each rank adds up all of them, in the order of the ranks, so that all have the same bits.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List

import torch

from ... import _library as lib
from ...errors import InvalidArgumentError
from .background import BackgroundOp
from .operations import Operations
from .reductions import reduction

#: The tag of the first one's messages; those of the next are lower. See barrier_ops for -1.
_FIRST_TAG = -2


class SparseOps(Operations):
    """all_reduce of sparse tensors."""

    _sparse = 0  # operations so far

    def allreduce_sparse(self, tensors: List[torch.Tensor], opts: Any) -> Any:
        """Sums or averages the ranks' sparse tensors of layout COO in place; the result is
        coalesced."""
        if len(tensors) != 1 or tensors[0].layout is not torch.sparse_coo:
            layouts = ", ".join(str(t.layout) for t in tensors)
            raise InvalidArgumentError(f"one sparse tensor of torch.sparse_coo is reduced, not {layouts}")
        (tensor,) = tensors
        op = reduction(opts, tensor)
        if op not in (lib.SUM, lib.AVERAGE):
            raise InvalidArgumentError(f"sparse tensors have no {opts.reduceOp}: only SUM and AVG")
        own = tensor.detach().cpu().coalesce()
        world, rank = self._comm.world, self._comm.rank
        count = own.indices().shape[1]
        header = torch.tensor([count, _digest(own, op)])
        headers = torch.empty(world, 2, dtype=torch.int64)
        gathering = self._comm.allgather(header.data_ptr(), headers.data_ptr(), 2, lib.INT64, start=True)
        tag, self._sparse = _FIRST_TAG - self._sparse, self._sparse + 1
        comm, deadline = self._comm, self._waiter.deadline()

        def steps() -> None:
            self._end([gathering], deadline)
            differs = [r for r in range(world) if headers[r, 1] != header[1]]
            if differs:
                raise InvalidArgumentError(
                    f"rank {differs[0]} reduces another sparse tensor than {own.dtype} of "
                    f"{tuple(own.shape)} with {own.sparse_dim()} sparse dimensions, or otherwise"
                )
            packed = _packed(own)
            parts: Dict[int, torch.Tensor] = {rank: packed}
            requests = []
            for r in range(world):
                elements = int(headers[r, 0])
                if r == rank or not elements:
                    continue
                parts[r] = torch.empty(elements * _width(own), dtype=torch.uint8)
                requests.append(comm.recv(parts[r].data_ptr(), parts[r].numel(), r, tag, start=True))
            for r in range(world):
                if r != rank and count:
                    requests.append(comm.send(packed.data_ptr(), packed.numel(), r, tag, start=True))
            self._end(requests, deadline)
            with torch.no_grad():
                total = _summed([parts[r] for r in sorted(parts)], own)
                if op == lib.AVERAGE:
                    total = total / world
                tensor.copy_(total.to(tensor.device))

        return self._background(BackgroundOp(steps, tensors))


def _digest(tensor: torch.Tensor, op: int) -> int:
    """A number that differs, but for an accident, between tensors that cannot be added."""
    kind = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.sparse_dim()} {op}"
    return int.from_bytes(hashlib.sha256(kind.encode()).digest()[:8], "big", signed=True)


def _width(tensor: torch.Tensor) -> int:
    """The bytes of an element, which may be dense itself, and of its indices."""
    dense = 1
    for n in tensor.shape[tensor.sparse_dim() :]:
        dense *= n
    return 8 * tensor.sparse_dim() + dense * tensor.element_size()


def _packed(tensor: torch.Tensor) -> torch.Tensor:
    """The indices and the values of a coalesced tensor as bytes."""
    parts = (tensor.indices(), tensor.values())
    return torch.cat([t.contiguous().reshape(-1).view(torch.uint8) for t in parts])


def _summed(parts: List[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The sum of packed tensors."""
    dims, width = like.sparse_dim(), _width(like)
    indices, values = [like.indices()[:, :0]], [like.values()[:0]]
    for part in parts:
        count = part.numel() // width
        # clone: a view needs the alignment of its type
        indices.append(part[: 8 * dims * count].clone().view(torch.int64).view(dims, count))
        flat = part[8 * dims * count :].clone().view(like.dtype)
        values.append(flat.view(count, *like.shape[dims:]))
    return torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values), like.shape).coalesce()
