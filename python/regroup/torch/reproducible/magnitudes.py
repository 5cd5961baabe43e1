"""How large the gradients of each parameter are: the shifts of a step are chosen by that."""

from __future__ import annotations

import math
from typing import Callable, Dict, List, Optional, Sequence, Tuple

import torch

from . import fixed_point
from .fixed_point import Magnitude


class Magnitudes:
    """The largest gradients of so many parameters, by their numbers, of a step with so many micro-batches."""

    def __init__(self, parameters: int, summands: int, device: torch.device):
        self._parameters, self._summands, self._device = parameters, summands, device
        self.last: Optional[List[float]] = None  #: by parameter, before this step
        self.found: Optional[List[float]] = None  #: in a pass of this step whose totals were no use
        self._now: Dict[int, Magnitude] = {}  # in this step, on this rank
        self._here: List[Tuple[Sequence[int], Sequence[Magnitude]]] = []  # those that have come since begin
        self._larger: Callable = max if device.type == "cpu" else fixed_point.larger

    def clear(self) -> None:
        """Forgets those of this step on this rank."""
        self._now.clear()

    def begin(self) -> None:
        """Begins with what comes of a micro-batch."""
        self._here = []

    def arrived(self, members: Sequence[int], sizes: Sequence[Magnitude]) -> None:
        """Takes those of parameters' gradients."""
        if members:
            self._here.append((members, sizes))

    def any(self) -> bool:
        """Whether one has come of the micro-batch."""
        return bool(self._here)

    def finite(self) -> bool:
        """Whether all gradients of the micro-batch are finite."""
        sizes = [size for _, some in self._here for size in some]
        return bool(torch.isfinite(fixed_point.joined(sizes, self._device)).all())

    def keep(self) -> None:
        """Says that the micro-batch counts."""
        for members, sizes in self._here:
            before = map(self._now.get, members, sizes)  # read one by one: a member may be there twice
            self._now.update(zip(members, map(self._larger, before, sizes)))

    def shifts(self) -> Optional[List[int]]:
        """The shift of each parameter; None if its magnitude is not known yet."""
        known = self.found or self.last
        if known is None:
            return None
        most = max(known)
        return [fixed_point.shift_for(m if m > 0 else most, self._summands) for m in known]

    def row(self) -> torch.Tensor:
        """Those of this step on this rank, by parameter."""
        return fixed_point.joined([self._now.get(i, fixed_point.ABSENT) for i in range(self._parameters)], self._device)

    def fit(self, all_ranks: List[float], shifts: List[int]) -> bool:
        """Whether what all ranks have had in this step could be added with these shifts."""
        return all(not math.isfinite(m) or fixed_point.fits(m, s, self._summands) for m, s in zip(all_ranks, shifts))

    def learned(self, all_ranks: List[float]) -> List[float]:
        """What is known after what all ranks have had in this step: earlier ones, where there is none."""
        before = self.found or self.last or [0.0] * self._parameters
        return [m if m > 0 and math.isfinite(m) else b for m, b in zip(all_ranks, before)]
