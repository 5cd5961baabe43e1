"""Sets of positions in an epoch's order, for an ElasticSampler: a contiguous prefix, and single
positions beyond it."""

from __future__ import annotations

from typing import Iterable, Iterator, Set


class PositionSet:
    """The positions [0, ``whole``), and ``more`` beyond. Immutable."""

    def __init__(self, samples: int, whole: int = 0, more: Iterable[int] = ()):
        self.samples = samples
        beyond: Set[int] = {p for p in more if p >= whole}
        while whole in beyond:
            beyond.remove(whole)
            whole += 1
        self.whole = min(whole, samples)
        self.more = frozenset(p for p in beyond if p < samples)
        self._gaps: list = []  # positions below the last of more that are not in the set
        if self.more:
            self._gaps = [p for p in range(self.whole, max(self.more)) if p not in self.more]
        self._tail = max(self.more) + 1 if self.more else self.whole  # the end of the set

    def count(self) -> int:
        return self.whole + len(self.more)

    def left(self) -> int:
        """The number of positions that are not in the set."""
        return self.samples - self.count()

    def position(self, number: int) -> int:
        """The position with this index, from 0, among those that are not in the set."""
        gaps = len(self._gaps)
        return self._gaps[number] if number < gaps else self._tail + number - gaps

    def positions(self, numbers: range) -> Iterator[range]:
        """The same for several indices, as ranges of one step."""
        first, gaps = 0, len(self._gaps)
        while first < len(numbers) and numbers[first] < gaps:
            p = self._gaps[numbers[first]]
            yield range(p, p + 1)
            first += 1
        rest = numbers[first:]
        if len(rest):
            yield range(self.position(rest[0]), self.position(rest[-1]) + 1, rest.step)

    def with_dealt(self, numbers: range) -> "PositionSet":
        """The set with the first positions that are not in it added."""
        n = len(numbers)
        if n == 0:
            return self
        end = self.position(n - 1) + 1
        return PositionSet(self.samples, end, self.more)

    def with_more(self, of: "PositionSet", numbers: Iterable[int]) -> "PositionSet":
        """The set with positions added, given as indices among those that are not in another set."""
        more = [of.position(n) for n in numbers]
        return PositionSet(self.samples, self.whole, [*self.more, *more]) if more else self
