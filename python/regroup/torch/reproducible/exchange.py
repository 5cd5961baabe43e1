"""How the ranks add up a piece of memory, and come to the means that they make of the sum.

It is of totals, int64; or, where each rank has computed one micro-batch, of its gradients as they are, which are half as
many bytes. Each rank makes the means of a part, and gets the others' from them: of totals that moves 12 bytes for each
element of float32, of gradients 8, as many as to add up float32. To add up totals on all ranks moves 16.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Optional, Protocol, Sequence, Tuple

import torch
import torch.distributed as dist


class Exchange(Protocol):
    """An exchange of what the ranks of a generation have. All of them call its functions, in this order. It has memory of
    its own, so one that was left in the middle is dropped, and what still arrives for it does no harm."""

    #: The elements of which this rank makes means, of those in its memory.
    span: slice
    #: Where it puts them.
    means: torch.Tensor

    def start(self) -> None:
        """Starts to bring together what the ranks have in their memory, which is left as it is."""

    def parts(self) -> Sequence[torch.Tensor]:
        """Waits for what is to be added up in this rank's span."""

    def share(self) -> None:
        """Starts to give the ranks each other's means."""

    def whole(self) -> torch.Tensor:
        """Waits for the means of all elements."""


def parts_within(span: slice, parts: Iterable[slice]) -> Iterator[Tuple[int, slice]]:
    """Those parts of a rank's memory that reach into a span, by number, and where they are in it: of 0 to 5 and 5 to 9 in
    the span 3 to 6 there are the elements 0 to 2, and 2 to 3."""
    for i, part in enumerate(parts):
        low, high = max(part.start, span.start) - span.start, min(part.stop, span.stop) - span.start
        if low < high:
            yield i, slice(low, high)


class Everywhere:
    """All ranks add up all totals: where that is the fastest way, and on a rank alone, which has no start_sum. That
    starts to add up a tensor in place, and returns what has wait()."""

    def __init__(
        self, own: torch.Tensor, dtype: torch.dtype, start_sum: Optional[Callable[[torch.Tensor], Any]] = None
    ):
        self.span, self.means = slice(0, len(own)), torch.empty(own.shape, dtype=dtype, device=own.device)
        self._own, self._start_sum = own, start_sum
        self._sums = own if start_sum is None else torch.empty_like(own)
        self._work: Any = None

    def start(self) -> None:
        if self._start_sum is not None:
            self._work = self._start_sum(self._sums.copy_(self._own))

    def parts(self) -> Sequence[torch.Tensor]:
        if self._work is not None:
            self._work.wait()
        return [self._sums]

    def share(self) -> None:
        pass

    def whole(self) -> torch.Tensor:
        return self.means


class _InParts:
    """Each rank has a part of one size; its memory ends with elements that are nothing, so that this is so."""

    def __init__(self, own: torch.Tensor, dtype: torch.dtype, group: Optional[Any]):
        self._own, self._group = own, group
        self._size = dist.get_world_size(group)
        length, rank = len(own) // self._size, dist.get_rank(group)
        self.span = slice(rank * length, (rank + 1) * length)
        self._whole = torch.empty(own.shape, dtype=dtype, device=own.device)
        self._work: Any = None

    def whole(self) -> torch.Tensor:
        self._work.wait()
        return self._whole


class Direct(_InParts):
    """Each rank sends each other one its part, and then its means. On gloo that takes half as long as its allgather, and
    for totals a third of its allreduce."""

    def __init__(self, own: torch.Tensor, dtype: torch.dtype, group: Optional[Any]):
        super().__init__(own, dtype, group)
        self._received, self._sent = torch.empty_like(own), torch.empty_like(self._whole)
        self.means = self._sent.view(self._size, -1)[0]

    def start(self) -> None:
        self._work = dist.all_to_all_single(self._received, self._own, group=self._group, async_op=True)

    def parts(self) -> Sequence[torch.Tensor]:
        self._work.wait()
        return list(self._received.view(self._size, -1))

    def share(self) -> None:
        self._sent.view(self._size, -1)[1:] = self.means
        self._work = dist.all_to_all_single(self._whole, self._sent, group=self._group, async_op=True)


class Scattered(_InParts):
    """Totals by reduce-scatter, and means by allgather, as NCCL has them."""

    def __init__(self, own: torch.Tensor, dtype: torch.dtype, group: Optional[Any]):
        super().__init__(own, dtype, group)
        self._part = torch.empty_like(own[self.span])
        self.means = torch.empty_like(self._whole[self.span])

    def start(self) -> None:
        self._work = dist.reduce_scatter_tensor(self._part, self._own, group=self._group, async_op=True)

    def parts(self) -> Sequence[torch.Tensor]:
        self._work.wait()
        return [self._part]

    def share(self) -> None:
        self._work = dist.all_gather_into_tensor(self._whole, self.means, group=self._group, async_op=True)
