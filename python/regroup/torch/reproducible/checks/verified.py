"""Which commits are right, so that a job can go back to one when a rank is found that computes wrongly."""

from __future__ import annotations

import sys
from typing import Iterable, Optional, Set

from ...world import world


class VerifiedCommits:
    """The commits of a job whose ranks compare what they compute. All ranks call its functions at the same places.

    A commit at which all ranks have the same state is held. When each of them has computed a micro-batch after it with
    the same result as another, none was computing wrongly before, and it is verified.
    """

    def __init__(self) -> None:
        self._missing: Optional[Set[int]] = None  # ranks that have not been compared since; None = nothing is held

    def changed(self) -> None:
        """Says that the members have changed: those who have left can be compared no more."""
        self._missing = None

    def compared(self, size: int) -> None:
        """Says that so many ranks have the same state, which is that of the newest commit."""
        if self._missing is None and size > 1 and world.training is not None and world.training.hold():
            self._missing = set(range(size))

    def before_commit(self) -> None:
        """Says that the state is compared after the next commit."""
        if self._missing is None and world.training is not None:
            world.training.copy_next()

    def right(self, ranks: Iterable[int]) -> None:
        """Says that ranks have computed what others have computed, too, with one result."""
        if self._missing is None:
            return
        self._missing.difference_update(ranks)
        if not self._missing:
            world.training.verify()
            self._missing = None


def distrust(says: bool, all_end: bool = False) -> None:
    """Has the job go back to the last verified commit, if there is one, because a rank computes wrongly. all_end says that
    nobody is left who could: what counts then are the checkpoints."""
    if world.training is None:
        return
    step = world.training.distrust()
    if not says:
        return
    if all_end:
        where = (
            "no commit was verified, so they may be in all checkpoints of this run"
            if step is None
            else f"checkpoints after step {step}, which is verified, are removed"
        )
    else:
        where = (
            "there is no verified commit, so they stay"
            if step is None
            else f"all go back to step {step}, which is verified"
        )
    print(f"regroup: the results of a rank that computes wrongly may be in the weights: {where}", file=sys.stderr)
