"""Which rank computes which micro-batches. It has no effect on the result, only on how long a step takes."""

from __future__ import annotations

from typing import List, Sequence

#: How much sooner a step must be expected to end for the shares to change.
GAIN = 0.1

#: How much of a measured time goes into what is known of a rank.
_NEW = 0.25


def even(count: int, world: int) -> List[int]:
    """How many micro-batches each rank gets if all are as fast: sizes that differ by one at most, as docs/samples.md
    cuts them. Of 7 for 3 ranks the first gets three, the others two."""
    whole, more = divmod(count, world)
    return [whole + (r < more) for r in range(world)]


def fastest(count: int, seconds: Sequence[float]) -> List[int]:
    """How many each rank gets so that the last one ends as early as possible, of ranks that take so long for one. Each
    has one at least. Of 7 for ranks that take 1, 1 and 3 seconds the first two get three, the last one."""
    shares = [1] * len(seconds)
    for _ in range(count - len(seconds)):
        next_one = min(range(len(seconds)), key=lambda r: ((shares[r] + 1) * seconds[r], r))
        shares[next_one] += 1
    return shares


def cut(micro_batches: Sequence[int], shares: Sequence[int], rank: int) -> List[int]:
    """A rank's micro-batches, in contiguous parts."""
    begin = sum(shares[:rank])
    return list(micro_batches[begin : begin + shares[rank]])


class Shares:
    """The shares of a step, which follow how fast the ranks are. All ranks see the same times, so the same shares."""

    def __init__(self, count: int):
        self._count = count
        self._seconds: List[float] = []
        self.now: List[int] = []

    def begin(self, world: int) -> None:
        """Begins with ranks of which nothing is known."""
        self._seconds, self.now = [], even(self._count, world)

    def measured(self, seconds: Sequence[float]) -> None:
        """Takes how long each rank took for one micro-batch in the last step; 0 or less = unknown."""
        if len(seconds) != len(self.now) or self._count < len(seconds):
            return
        if not self._seconds:
            self._seconds = list(seconds)
        self._seconds = [
            new if old <= 0 else old if new <= 0 else (1 - _NEW) * old + _NEW * new
            for old, new in zip(self._seconds, seconds)
        ]
        if min(self._seconds) <= 0:
            return
        better = fastest(self._count, self._seconds)
        if self._lasts(better) < (1 - GAIN) * self._lasts(self.now):
            self.now = better

    def _lasts(self, shares: Sequence[int]) -> float:
        return max(n * s for n, s in zip(shares, self._seconds))
