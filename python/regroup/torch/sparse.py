"""Allreduce of sparse tensors: their indices and values are gathered."""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch

from ..errors import InvalidArgumentError
from .calls import Call
from .gather_ops import ALLGATHER
from .handles import Handles
from .reductions import Average, Sum, reduction


def start_sparse(call: Call, tensor: torch.Tensor, op: Optional[int]) -> Callable[[], torch.Tensor]:
    """Starts an allreduce under names that begin with the call's. Calling the result returns the sum
    or average, not coalesced."""
    with call:
        how = reduction(op)
        if how not in (Sum, Average):
            raise InvalidArgumentError("sparse tensors can be added and averaged only")
        if not tensor.is_sparse:
            raise InvalidArgumentError(f"a tensor of layout {tensor.layout} is not sparse")
        given = tensor.detach()
        shape = tuple(given.shape)
        detail = f" of a sparse tensor {list(shape)}"
    parts = ("indices", given._indices().t()), ("values", given._values())
    both = Handles([ALLGATHER.start(call.part(name), part.contiguous(), detail) for name, part in parts])

    def result() -> torch.Tensor:
        indices, values = both.synchronize()
        if how == Average:
            values = values / call.group.size
        return torch.sparse_coo_tensor(indices.t(), values, shape, device=given.device)

    return result


def sparse_allreduce_async(
    tensor: torch.Tensor, name: Optional[str], op: Optional[int] = None, process_set: Any = None
) -> Callable[[], torch.Tensor]:
    """Starts an allreduce of sparse tensors of one shape. Unlike other handles, the returned object
    is called for the result: a sparse tensor that is not coalesced."""
    return start_sparse(Call("sparse", name, process_set), tensor, op)
