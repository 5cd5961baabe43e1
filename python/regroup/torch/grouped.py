"""Many tensors combined in one go."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from . import tensors as _tensors
from .compression import Compression
from .handles import Handle
from .operations import _alone_group, _reduce, _reduction


def _grouped(
    given: Sequence[torch.Tensor],
    inplace: bool,
    op: int,
    compression: Any,
    pre: float,
    post: float,
    start: bool = False,
) -> Handle:
    """Carries out, or starts, one allreduce for all tensors of a type and device."""
    groups: dict = {}
    for i, tensor in enumerate(given):
        _tensors.check(tensor, f"tensor {i}")
        groups.setdefault((tensor.dtype, tensor.device), []).append(i)
    started = []
    for members in groups.values():
        flat = torch.cat([given[i].reshape(-1) for i in members])
        started.append((members, _reduce(flat, True, op, compression, pre, post, start)))

    def finish() -> List[torch.Tensor]:
        results: List[Any] = [None] * len(given)
        for members, handle in started:
            parts = handle.synchronize().split([given[i].numel() for i in members])
            for i, part in zip(members, parts):
                part = part.view(given[i].shape)
                results[i] = given[i].copy_(part) if inplace else part
        return results

    return Handle(None, finish)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Starts grouped_allreduce."""
    _alone_group(process_set)
    return _grouped(
        tensors,
        False,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
    )


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> Handle:
    """Starts grouped_allreduce_."""
    _alone_group(process_set)
    return _grouped(
        tensors,
        True,
        _reduction(op, average),
        Compression.none,
        prescale_factor,
        postscale_factor,
        start=True,
    )


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: Any = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> List[torch.Tensor]:
    """Combines many tensors in one go."""
    _alone_group(process_set)
    return _grouped(
        tensors, False, _reduction(op, average), compression, prescale_factor, postscale_factor
    ).synchronize()


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = None,
) -> List[torch.Tensor]:
    """Combines many tensors in place."""
    _alone_group(process_set)
    how = _reduction(op, average), Compression.none, prescale_factor, postscale_factor
    return _grouped(tensors, True, *how).synchronize()
