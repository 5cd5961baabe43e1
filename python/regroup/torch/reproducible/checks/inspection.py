"""What the ranks do to find one of them that computes wrongly."""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

import torch

from ....errors import RegroupError, SilentCorruptionError
from .checksum import Checksum
from ..dealing import Dealing
from ..ranks import Ranks
from .verified import distrust
from .witness import Duty, Verdict, duty, judge


class Dispute(NamedTuple):
    """A micro-batch whose result is in doubt, and the checksums of those who have computed it."""

    micro_batch: int
    first: Dict[int, int]


#: No result has this checksum.
_WRONG = 0


class Inspection:
    """The inspection of a step. All ranks call its functions at the same places.

    Two ranks compute one micro-batch of each step; and one whose gradient is not finite, which would spoil all, is
    computed by all.
    """

    def __init__(self, ranks: Ranks, dealing: Dealing):
        self._ranks, self._dealing = ranks, dealing
        self._duty: Optional[Duty] = None
        self._sums: Optional[Checksum] = None  # of the micro-batch that two ranks compute
        self._broken: Optional[int] = None  # the first micro-batch of this rank that is not finite

    def begin(self, step: int) -> None:
        """Begins a pass whose gradients are added."""
        self._sums = self._broken = None
        sizes = self._dealing.sizes(self._ranks)
        self._duty = duty(step, sizes) if self._ranks.size > 1 and self._dealing.whole() else None

    def watches(self, micro_batch: int) -> Optional[Checksum]:
        """What takes the gradients of a micro-batch of this rank; None if nobody compares them."""
        if self._duty is None or self._duty[:2] != (micro_batch, self._ranks.rank):
            return None
        self._sums = Checksum()
        return self._sums

    def witnesses(self) -> List[int]:
        """What this rank computes a second time; watch must take its gradients."""
        if self._duty is None or self._duty.witness != self._ranks.rank:
            return []
        return [self._duty.micro_batch]

    def watch(self) -> Checksum:
        """What takes the gradients of a micro-batch that is computed once more."""
        self._sums = Checksum()
        return self._sums

    def ended(self, micro_batch: int, finite: bool) -> None:
        """Says that this rank has computed a micro-batch of its own."""
        if not finite and self._broken is None:
            self._broken = micro_batch

    def tells(self) -> List[int]:
        """What this rank tells of its results, to be added to what the others tell."""
        mine, row = 0 if self._sums is None else self._sums.value(), [0] * (2 + self._ranks.size)
        if self._duty is not None and self._duty.owner == self._ranks.rank:
            row[0] = mine
        elif self._duty is not None and self._duty.witness == self._ranks.rank:
            row[1] = mine
        row[2 + self._ranks.rank] = 0 if self._broken is None else self._broken + 1
        return row

    def dispute(self, told: Sequence[int]) -> Optional[Dispute]:
        """What all ranks must compute once more, by the sums of what they have told."""
        if self._duty is not None and told[0] != told[1]:
            return Dispute(self._duty.micro_batch, {self._duty.owner: told[0], self._duty.witness: told[1]})
        for r, broken in enumerate(told[2:] if self._ranks.size > 1 else ()):
            if broken:
                return Dispute(broken - 1, {r: _WRONG})
        return None

    def agreed(self) -> Sequence[int]:
        """The ranks of which two have computed the same in this step, with the same result."""
        return () if self._duty is None else (self._duty.owner, self._duty.witness)

    def settle(self, dispute: Dispute, finite: bool, step: int) -> None:
        """Decides, after all ranks have computed the micro-batch again, and ends those who are wrong."""
        assert self._sums is not None
        rows = self._ranks.gather(torch.tensor([self._sums.value(), int(finite)]))
        values, first = [int(row[0]) for row in rows], dict(dispute.first)
        verdict = judge(first, values)
        if not verdict.unknown and _WRONG in first.values():
            right = next(int(row[1]) for r, row in enumerate(rows) if r not in verdict.always)
            if not right:  # it is not finite wherever it is computed
                verdict = Verdict(verdict.always, [])
        accuse(self._ranks, verdict, f"micro-batch {dispute.micro_batch} of step {step}")


def accuse(ranks: Ranks, verdict: Verdict, what: str) -> None:
    """Ends those who have computed something else than the majority. The others wait for that, which is the loss of a
    member."""
    if verdict.unknown:
        raise RegroupError(f"the ranks disagree on {what}, and no majority says who is right")
    wrong = sorted(verdict.always + verdict.once)
    if ranks.rank in wrong:
        permanent = ranks.rank in verdict.always
        raise SilentCorruptionError(
            f"rank {ranks.rank} has another result for {what} than {ranks.size - len(wrong)} others"
            + ("" if permanent else ", which it did not repeat"),
            permanent,
        )
    if wrong:
        if verdict.always:
            distrust(ranks.rank == min(set(range(ranks.size)) - set(wrong)))
        ranks.gather(torch.tensor([0]))
        raise RegroupError(f"ranks {wrong} have another result for {what}, and go on")
