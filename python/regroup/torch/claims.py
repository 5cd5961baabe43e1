"""Who reduces the gradients of a parameter: two that do would each spoil what the other makes."""

from __future__ import annotations

from typing import Iterable

import torch

from ..errors import InvalidArgumentError


def claim(parameters: Iterable[torch.Tensor], by: str) -> None:
    """Says who reduces the gradients of parameters. Raises if it is another one already."""
    for p in parameters:
        other = getattr(p, "_regroup_reduced_by", by)
        if other != by:
            raise InvalidArgumentError(
                f"{by} and {other} would both reduce the gradients of a parameter: use one of them, and with "
                "GradientAccumulator the plain optimizer"
            )
        p._regroup_reduced_by = by  # type: ignore[attr-defined]
