"""Where in a tensor the part of a rank is."""

from __future__ import annotations

from typing import Tuple

import torch

from ...errors import UnsupportedError
from .. import replicas


def dtensor(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of which this rank has a part."""
    return replicas.part(tensor) == "a DTensor"


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of this rank's part."""
    return tensor._local_tensor if dtensor(tensor) else tensor


def offset(name: str, tensor: torch.Tensor) -> Tuple[int, ...]:
    """Where this rank's part of a tensor begins; zeros if it is empty.

    A model that is tensor parallel is dealt to the ranks of each group first, and what each of them has
    to the groups (fully_shard), which says so with _StridedShard::

        rows of 8, 2 groups of 2 ranks          group 0          group 1
        _StridedShard(0, split_factor=2)     0 1 . . 4 5     2 3 . . 6 7
        Shard(0), in each group              0 1  |  4 5     2 3  |  6 7

    Raises UnsupportedError if the part is in several pieces, if torch does not say the same of it, or
    if the tensor is a sum that was not made yet. Where rows are left over, _StridedShard may not say
    what fully_shard has done. Then the sizes differ for some rank, so that if no rank raises, all are
    right.
    """
    if not dtensor(tensor):
        return (0,) * tensor.dim()
    placements = tensor.placements  # type: ignore[attr-defined]
    if any(p.is_partial() for p in placements):
        raise UnsupportedError(f"{name} is a partial sum, which is no state")
    mine = local(tensor)
    if tensor.device_mesh.get_coordinate() is None:  # type: ignore[attr-defined]
        return (0,) * tensor.dim()
    found = [_elements(name, tensor, dim) for dim in range(tensor.dim())]
    sizes = tuple(len(of) for of in found)
    if sizes != tuple(mine.shape) and (mine.numel() > 0 or 0 not in sizes):
        raise UnsupportedError(
            f"{name} has {tuple(mine.shape)} elements on this rank, and would have {sizes} as it is dealt ({placements}): "
            "choose sizes that divide evenly"
        )
    if mine.numel() == 0:
        return (0,) * tensor.dim()
    begins = tuple(int(of[0]) for of in found)
    chunks = tensor.__create_chunk_list__()  # type: ignore[attr-defined]
    whole = all(int(of[-1]) - int(of[0]) == len(of) - 1 for of in found)
    if not whole or len(chunks) != 1 or tuple(chunks[0].offsets) != begins or tuple(chunks[0].sizes) != sizes:
        raise UnsupportedError(f"{name} is dealt to this rank in several pieces ({placements}): one is supported")
    return begins


def _elements(name: str, tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The indices in a dimension that this rank has, ascending."""
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    indices = torch.arange(tensor.shape[dim], device="cpu")
    for at, (placement, rank) in enumerate(zip(tensor.placements, mesh.get_coordinate())):  # type: ignore[attr-defined]
        kind = type(placement).__name__
        if kind not in ("Replicate", "Shard", "_StridedShard"):
            raise UnsupportedError(f"{name} is dealt to the ranks by {placement}, which is unknown")
        if kind == "Replicate" or placement.dim != dim:
            continue
        pieces = _chunks(indices, placement.split_factor if kind == "_StridedShard" else 1)
        indices = torch.cat([_chunks(piece, mesh.size(at))[rank] for piece in pieces])
    return indices


def _chunks(indices: torch.Tensor, count: int) -> Tuple[torch.Tensor, ...]:
    """Deals indices as torch.chunk does; the last chunks may have none."""
    some = torch.chunk(indices, count)
    return some + (indices[:0],) * (count - len(some))
