"""Who computes which micro-batches of a step, and which were computed."""

from __future__ import annotations

import math
from typing import List, NamedTuple, Optional, Sequence, Set

import torch

from ...errors import DivergedError, RegroupError
from .ranks import Ranks, digest
from .shares import Shares, cut, even


class Agreement(NamedTuple):
    """What the ranks of a generation have agreed on."""

    passes: int  #: over the step's micro-batches that have ended, on the rank that has ended most
    keeps: bool  #: whether what this rank has computed counts


#: What a rank says of a micro-batch in an agreement.
_COMPUTED, _TO_COMPUTE = 1, 2


class _Said(NamedTuple):
    """What a rank says in an agreement."""

    what: int
    step: int
    passes: int
    again: int
    of: List[int]  #: by micro-batch


class Done(NamedTuple):
    """A step whose micro-batches were all computed."""

    ranks: List[int]  #: by micro-batch: that which has computed it
    again: int  #: how many had been dealt to a rank that was lost


class Dealing:
    """The micro-batches of a step, as one rank sees them.

    In a new generation the ranks say what they have computed of the step, and deal out the rest. Without a change of
    the members nothing is said: each knows its share.
    """

    def __init__(self, count: int, what: str):
        self._count, self._what = count, what
        self.step: Optional[int] = None
        self._done: Set[int] = set()  # by this rank, in this pass
        self.partial: Optional[int] = None  # what it has begun, and must end
        self._entry: Optional[int] = None  # of the last agreement
        self._left: List[int] = []  # what the ranks had still to compute then
        self._mine: Set[int] = set()  # what this rank had of that
        self._again = 0  # micro-batches of this step that had been dealt to a rank that was lost
        self.passes = 0  # over the step's micro-batches, that have ended
        self.shares = Shares(count)

    def begin(self, step: int) -> None:
        """Begins a step of which nothing was computed."""
        self.step, self.passes, self._again = step, 0, 0
        self._start()

    def again(self) -> None:
        """Begins another pass over the step's micro-batches."""
        self.passes += 1
        self._start()

    def _start(self) -> None:
        self._done.clear()
        self.partial = None
        self._mine.clear()
        self._left = list(range(self._count))

    def done(self, micro_batch: int) -> None:
        """Says that this rank has computed a micro-batch."""
        self._done.add(micro_batch)
        if micro_batch == self.partial:
            self.partial = None

    def changed(self, ranks: Ranks) -> bool:
        """Whether the members have changed since the last agreement."""
        return ranks.entry() != self._entry

    def agree(self, ranks: Ranks) -> Optional[Agreement]:
        """Agrees with the other ranks of a new generation on what is to be computed; None in the generation of the last
        agreement."""
        entry = ranks.entry()
        if not self.changed(ranks):
            return None
        has = self._done | {self.partial}
        mine = [_COMPUTED if m in has else _TO_COMPUTE * (m in self._mine) for m in range(self._count)]
        row = torch.tensor([digest(self._what), self.step, self.passes, self._again, *mine])
        rows = [_Said(*r[:4], r[4:]) for r in (r.tolist() for r in ranks.gather(row))]
        for r, said in enumerate(rows):
            if said.what != rows[0].what:
                raise DivergedError(f"rank {r} accumulates something else than rank 0; here it is {self._what}")
            if said.step != rows[0].step:
                raise DivergedError(f"rank {r} is at step {said.step}, and rank 0 at step {rows[0].step}")
        passes, done, keeps = max(said.passes for said in rows), set(), True
        for r, said in enumerate(rows):
            own = {m for m, how in enumerate(said.of) if how == _COMPUTED}
            # One that was away may have computed what others have computed in its place.
            if said.passes < passes or own & done:
                keeps = keeps and r != ranks.rank
            else:
                done |= own
        if not keeps:
            self._done.clear()
            self.partial = None
        self.passes, self._left = passes, [m for m in range(self._count) if m not in done]
        self._again = max(said.again for said in rows)
        if any(any(said.of) for said in rows):  # else nothing was dealt before
            waiting = {m for said in rows for m, how in enumerate(said.of) if how == _TO_COMPUTE}
            self._again += len(set(self._left) - waiting)
        self._entry = entry
        self.shares.begin(ranks.size)
        return Agreement(passes, keeps)

    def share(self, ranks: Ranks) -> List[int]:
        """What this rank has to compute, of what was not computed when the members changed last, after what it has
        begun."""
        share = cut(self._left, self.sizes(ranks), ranks.rank)
        self._mine = set(share)
        return share if self.partial is None else [self.partial, *share]

    def sizes(self, ranks: Ranks) -> List[int]:
        """How much of that each rank has to compute."""
        return self.shares.now if self.whole() else even(len(self._left), ranks.size)

    def whole(self) -> bool:
        """Whether nothing of the step was computed when the members changed last."""
        return len(self._left) == self._count

    def one_each(self, ranks: Ranks) -> bool:
        """Whether each rank has one micro-batch to compute, and none has one already."""
        return self.whole() and ranks.size == self._count

    def fillers(self, ranks: Ranks) -> List[int]:
        """What this rank computes once more, because others have one more to compute."""
        sizes = self.sizes(ranks)
        return self._left[:1] * (max(sizes) - sizes[ranks.rank])

    def tell(self, ranks: Ranks) -> List[float]:
        """What this rank has computed, in numbers of which check takes the greatest of all ranks: by micro-batch the rank,
        and then its negative, so that both are of one rank if one alone has computed it."""
        mine = [m in self._done for m in range(self._count)]
        return [float(sign * ranks.rank) if has else -math.inf for sign in (1, -1) for has in mine]

    def check(self, told: Sequence[float]) -> Done:
        """Makes sure that the ranks have computed each micro-batch once."""
        last, first = told[: self._count], told[self._count :]
        wrong = [m for m in range(self._count) if last[m] != -first[m]]  # nobody has -inf, and -inf
        if wrong:
            raise RegroupError(f"micro-batches {wrong} of step {self.step} were not computed once")
        return Done([int(r) for r in last], self._again)
