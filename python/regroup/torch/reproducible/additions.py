"""Additions: gradients that are added to totals, several in one call of the library."""

from __future__ import annotations

from typing import List, Tuple

import torch

from ... import _library as lib
from . import fixed_point
from .fixed_point import Magnitude


class Additions:
    """What is to be added, or copied, and how large it was.

    A call of the library takes as long as some 100,000 elements when a backward pass has filled the caches with something
    else, so gradients of a few elements wait for others. None of them, nor their totals, may change meanwhile.
    """

    def __init__(self, most: int):
        self._most = most
        self._calls = (lib.Fixed * most)()
        self._waiting: List[Tuple[int, torch.Tensor, torch.Tensor]] = []  # whose gradient; its memory stays
        self._sizes: List[Tuple[int, Magnitude]] = []  # of what was added
        self.elements = 0  #: that wait

    def add(self, member: int, total: torch.Tensor, gradient: torch.Tensor, shift: int, first: bool) -> None:
        """Adds the gradient of a member to its total, as fixed_point.add does it."""
        if fixed_point.fast(gradient):
            self._wait(member, total, gradient, shift, lib.FIXED_FIRST if first else lib.FIXED_ADD)
        else:
            self._carry_out()  # the same total may wait
            self._sizes.append((member, fixed_point.add(total, gradient, shift, first)))

    def copy(self, member: int, to: torch.Tensor, gradient: torch.Tensor) -> None:
        """Copies the gradient of a member, as fixed_point.copy does it."""
        if fixed_point.fast(gradient):
            self._wait(member, to, gradient, 0, lib.FIXED_COPY)
        else:
            self._carry_out()
            self._sizes.append((member, fixed_point.copy(to, gradient)))

    def finish(self) -> List[Tuple[int, Magnitude]]:
        """Does what waits. Returns the members whose gradients have come since it was called last, and their magnitudes."""
        self._carry_out()
        sizes, self._sizes = self._sizes, []
        return sizes

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()
        self._sizes.clear()
        self.elements = 0

    def _wait(self, member: int, to: torch.Tensor, gradient: torch.Tensor, shift: int, how: int) -> None:
        if len(self._waiting) == self._most:
            self._carry_out()
        call, count = self._calls[len(self._waiting)], gradient.numel()
        call.to, call.values, call.len, call.shift, call.how = to.data_ptr(), gradient.data_ptr(), count, shift, how
        self._waiting.append((member, to, gradient))
        self.elements += count

    def _carry_out(self) -> None:
        if self._waiting:
            lib.fixed_add(self._calls, len(self._waiting))
            self._sizes += [(member, call.largest) for (member, _, _), call in zip(self._waiting, self._calls)]
            self._waiting.clear()
            self.elements = 0
