"""Where in a tensor the part of a rank is."""

from __future__ import annotations

import functools
from typing import Any, List, Sequence, Tuple

import torch

from ...errors import UnsupportedError
from .. import replicas

_Numbers = Tuple[int, ...]


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
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    rank = mesh.get_coordinate()
    mine = tuple(local(tensor).shape)
    if rank is None:
        return (0,) * tensor.dim()
    try:
        found = _elements(tuple(tensor.shape), tuple(placements), tuple(map(mesh.size, range(len(rank)))), tuple(rank))
    except UnsupportedError as e:
        raise UnsupportedError(f"{name} {e}") from None
    sizes = tuple(len(of) for of in found)
    if sizes != mine and (0 not in mine or 0 not in sizes):
        raise UnsupportedError(
            f"{name} has {mine} elements on this rank, and would have {sizes} as it is dealt ({placements}): choose sizes "
            "that divide evenly"
        )
    if 0 in mine:
        return (0,) * tensor.dim()
    begins = tuple(of[0] for of in found)
    chunks = tensor.__create_chunk_list__()  # type: ignore[attr-defined]
    whole = all(of[-1] - of[0] == len(of) - 1 for of in found)
    if not whole or len(chunks) != 1 or tuple(chunks[0].offsets) != begins or tuple(chunks[0].sizes) != sizes:
        raise UnsupportedError(f"{name} is dealt to this rank in several pieces ({placements}): one is supported")
    return begins


@functools.lru_cache(maxsize=512)  # many tensors are alike
def _elements(
    shape: _Numbers, placements: Tuple[Any, ...], mesh: _Numbers, rank: _Numbers
) -> Tuple[Sequence[int], ...]:
    """The indices in each dimension that a rank has, ascending."""
    found: List[Sequence[int]] = [range(n) for n in shape]
    for placement, size, at in zip(placements, mesh, rank):
        kind = type(placement).__name__
        if kind not in ("Replicate", "Shard", "_StridedShard"):
            raise UnsupportedError(f"is dealt to the ranks by {placement}, which is unknown")
        if kind != "Replicate":
            dim = placement.dim
            pieces = _chunks(found[dim], placement.split_factor if kind == "_StridedShard" else 1)
            parts = [_chunks(piece, size)[at] for piece in pieces]
            found[dim] = parts[0] if len(parts) == 1 else [i for part in parts for i in part]
    return tuple(found)


def _chunks(indices: Sequence[int], count: int) -> List[Sequence[int]]:
    """Deals indices as torch.chunk does; the last chunks may have less than others, or none."""
    each = -(-len(indices) // count)
    return [indices[i * each : (i + 1) * each] for i in range(count)]
