"""Gradients that are added to totals, several in one call of the library."""

from __future__ import annotations

from typing import List, Optional, Sequence, Set, Tuple

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
        self._added: List[int] = []  # whose were added
        self._sizes: List[Magnitude] = []  # of these
        self.elements = 0  #: that wait

    def add(self, member: int, total: torch.Tensor, gradient: torch.Tensor, shift: int, first: bool) -> None:
        """Adds the gradient of a member to its total, as fixed_point.add does it."""
        if fixed_point.fast(gradient):
            self._wait(member, total, gradient, shift, lib.FIXED_FIRST if first else lib.FIXED_ADD)
        else:
            self._carry_out()  # the same total may wait
            self._added.append(member)
            self._sizes.append(fixed_point.add(total, gradient, shift, first))

    def copy(self, member: int, to: torch.Tensor, gradient: torch.Tensor) -> None:
        """Copies the gradient of a member, as fixed_point.copy does it."""
        if fixed_point.fast(gradient):
            self._wait(member, to, gradient, 0, lib.FIXED_COPY)
        else:
            self._carry_out()
            self._added.append(member)
            self._sizes.append(fixed_point.copy(to, gradient))

    def finish(self) -> Tuple[List[int], List[Magnitude]]:
        """Does what waits. Returns the members whose gradients have come since it was called last, and their magnitudes."""
        self._carry_out()
        done, self._added, self._sizes = (self._added, self._sizes), [], []
        return done

    def clear(self) -> None:
        """Forgets what waits."""
        self._waiting.clear()
        self._added.clear()
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
            self._added += [member for member, _, _ in self._waiting]
            self._sizes += [call.largest for _, call in zip(self._waiting, self._calls)]
            self._waiting.clear()
            self.elements = 0


class Repeated:
    """The gradients of some parameters, which are added to the same totals in each micro-batch, in one call; or copied."""

    def __init__(self, members: List[int], parameters: Sequence[torch.Tensor]):
        self.members, self._parameters = members, [parameters[i] for i in members]
        self._calls = (lib.Fixed * len(members))()
        self._how = lib.FIXED_ADD

    def prepare(self, to: List[torch.Tensor], shifts: List[int], copies: bool) -> None:
        """Says where they are added, at which shifts, or copied. The caller keeps the memory."""
        self._how = lib.FIXED_COPY if copies else lib.FIXED_ADD
        for call, tensor, shift in zip(self._calls, to, shifts):
            call.to, call.len, call.shift, call.how = tensor.data_ptr(), tensor.numel(), shift, self._how

    def gradients(self) -> Optional[List[torch.Tensor]]:
        """The gradients; None if a parameter has none."""
        found = [p.grad for p in self._parameters]
        return None if any(g is None for g in found) else found

    def add(self, gradients: List[torch.Tensor], empty: Set[int]) -> List[Magnitude]:
        """Adds the gradients of all, which the parameters have no longer; the library can add them. Those of empty take the
        place of what was there, and are empty no more. Returns their magnitudes."""
        for call, parameter, gradient in zip(self._calls, self._parameters, gradients):
            call.values, parameter.grad = gradient.data_ptr(), None
        first = not empty.isdisjoint(self.members)
        if first and self._how == lib.FIXED_ADD:
            self._replace(empty)
        lib.fixed_add(self._calls, len(self._calls))
        if first:
            self._replace(set())
            empty.difference_update(self.members)
        return [call.largest for call in self._calls]

    def _replace(self, members: Set[int]) -> None:
        """Has those of these members replaced, and of no others."""
        for call, member in zip(self._calls, self.members):
            call.how = lib.FIXED_FIRST if member in members else self._how
