"""What the ranks do to find one of them that computes wrongly."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch

from ....errors import RegroupError, SilentCorruptionError
from ..dealing import Dealing
from ..ranks import Ranks
from .checksum import Checksum
from .verified import distrust
from .witness import Duty, Verdict, duties, judge


class Dispute(NamedTuple):
    """A micro-batch whose result is in doubt, and the checksums of those who have computed it."""

    micro_batch: int
    first: Dict[int, int]


#: No result has this checksum.
_WRONG = 0


class Inspection:
    """The inspection of a step. All ranks call its functions at the same places.

    Two ranks compute some micro-batches of each step, as many as count says; and all compute one whose gradient is not
    finite, which would spoil everything. together says that all ranks take part in each micro-batch, as those of a
    sharded model do.
    """

    def __init__(self, ranks: Ranks, dealing: Dealing, count: int = 1, together: bool = False):
        self._ranks, self._dealing, self._count, self._together = ranks, dealing, count, together
        self._duties: List[Duty] = []
        self._sums: Dict[int, Checksum] = {}  # of what two ranks compute, by micro-batch
        self._broken: Optional[int] = None  # the first micro-batch of this rank that is not finite

    def begin(self, step: int) -> None:
        """Begins a pass whose gradients are added."""
        self._sums, self._broken, self._duties = {}, None, []
        if self._ranks.size > 1 and self._dealing.whole():
            self._duties = duties(step, self._dealing.sizes(self._ranks), self._count)

    def watches(self, micro_batch: int) -> Optional[Checksum]:
        """What takes the gradients of a micro-batch of this rank; None if nobody compares them."""
        if any(d.micro_batch == micro_batch and d.owner == self._ranks.rank for d in self._duties):
            return self.watch(micro_batch)
        return None

    def witnesses(self) -> List[Tuple[int, bool]]:
        """What this rank computes a second time, and whether watch must take its gradients: where all compute together,
        one with less to do than another computes something for nothing."""
        mine = [(d.micro_batch, True) for d in self._duties if d.witness == self._ranks.rank]
        if self._together and self._duties:
            most = max(Counter(d.witness for d in self._duties).values())
            mine += [(self._duties[0].micro_batch, False)] * (most - len(mine))
        return mine

    def watch(self, micro_batch: int) -> Checksum:
        """What takes the gradients of a micro-batch that is computed once more."""
        self._sums[micro_batch] = Checksum()
        return self._sums[micro_batch]

    def ended(self, micro_batch: int, finite: bool) -> None:
        """Says that this rank has computed a micro-batch of its own."""
        if not finite and self._broken is None:
            self._broken = micro_batch

    def tells(self) -> List[int]:
        """What this rank tells of its results, to be added to what the others tell: for each duty those of its owner
        and its witness."""
        row = [
            self._sums[d.micro_batch].value() if self._ranks.rank == r else 0
            for d in self._duties
            for r in (d.owner, d.witness)
        ]
        broken = [0] * self._ranks.size
        broken[self._ranks.rank] = 0 if self._broken is None else self._broken + 1
        return row + broken

    def disputes(self, told: Sequence[int]) -> List[Dispute]:
        """What all ranks must compute once more, by the sums of what they have told."""
        found: Dict[int, Dispute] = {}
        for n, d in enumerate(self._duties):
            first, second = told[2 * n : 2 * n + 2]
            if first != second:
                found[d.micro_batch] = Dispute(d.micro_batch, {d.owner: first, d.witness: second})
        for r, broken in enumerate(told[2 * len(self._duties) :] if self._ranks.size > 1 else ()):
            if broken and broken - 1 not in found:
                found[broken - 1] = Dispute(broken - 1, {r: _WRONG})
        return list(found.values())

    def agreed(self) -> Set[int]:
        """The ranks of which two have computed the same in this step, with the same result."""
        return {r for d in self._duties for r in (d.owner, d.witness)}

    def settle(self, dispute: Dispute, finite: bool, step: int) -> None:
        """Decides, after all ranks have computed the micro-batch again, and ends those who are wrong."""
        rows = self._ranks.gather(torch.tensor([self._sums[dispute.micro_batch].value(), int(finite)]))
        values, first = [int(row[0]) for row in rows], dict(dispute.first)
        verdict = judge(first, values)
        if not verdict.unknown and _WRONG in first.values():
            right = next(int(row[1]) for r, row in enumerate(rows) if r not in verdict.always)
            if not right:  # it is not finite wherever it is computed
                verdict = Verdict(verdict.always, [])
        accuse(self._ranks, verdict, f"micro-batch {dispute.micro_batch} of step {step}")


def accuse(ranks: Ranks, verdict: Verdict, what: str) -> None:
    """Ends those who have computed something else than the majority, when all know it. The others wait for that, which is
    the loss of a member. Without a majority all end."""
    if verdict.unknown:
        distrust(ranks.rank == 0, all_end=True)
        with suppress(Exception):  # all know it before one ends: who takes that for a loss goes on alone
            ranks.gather(torch.tensor([0]))
        raise RegroupError(f"the ranks disagree on {what}, and no majority says who is right")
    wrong = sorted(verdict.always + verdict.once)
    if ranks.rank in wrong:
        permanent = ranks.rank in verdict.always
        with suppress(Exception):  # it ends, even if another one is lost meanwhile
            ranks.gather(torch.tensor([0]))
        raise SilentCorruptionError(
            f"rank {ranks.rank} has another result for {what} than {ranks.size - len(wrong)} others"
            + ("" if permanent else ", which it did not repeat"),
            permanent,
        )
    if wrong:
        if verdict.always:
            distrust(ranks.rank == min(set(range(ranks.size)) - set(wrong)))
        for _ in range(2):  # all know it; one of them has ended
            ranks.gather(torch.tensor([0]))
        raise RegroupError(f"ranks {wrong} have another result for {what}, and go on")
