"""Commits of a sharded state whose parts are copied while the program goes on."""

from __future__ import annotations

import logging
import time
from typing import List, Optional

from ...training import Training
from ..world import world
from .live import COPIED, OVERLAPPED, check_mode
from .sampler import ElasticSampler
from .sharded import ShardedParts

#: The steps, each with a commit, that must have been as such commits need them before the first one.
_PROOFS = 2
#: The part of a step from which on it is worth while: a copy that takes a tenth of it.
_WORTH = 0.1

_log = logging.getLogger("regroup")


class OverlappedCommits:
    """Decides for each commit whether the parts that only optimizers change are copied in it, or beside
    what follows::

        state.commit()           # returns at once
        loss = model(x).sum()    # parts are copied
        loss.backward()
        optimizer.step()         # waits until they are

    What a rank alone has of a step is lost with it, so unlike with live commits nothing is left out.
    That parts do not change in between is looked at: in the first steps, whose commits are copies, bytes
    are compared as well. If they change later all the same, the commit is withdrawn on all ranks, and
    others follow that are copied at once.
    """

    #: Nothing is brought to registered memory later, see LiveCommits.
    stay = False

    def __init__(self, mode: Optional[str]):
        check_mode(mode, OVERLAPPED, COPIED)
        #: Why no commit is overlapped; None = some are.
        self.never: Optional[str] = "the state was made with commit_mode='copied'" if mode == COPIED else None
        self._wanted = mode == OVERLAPPED
        self._long = self._wanted  # a copy takes so long that it is worth while
        self._parts: Optional[ShardedParts] = None
        self._proofs = 0
        self._open = False  # the last commit may still be copying
        #: The commit that has begun copies parts while the program goes on.
        self.overlaps = False
        self._committed = False  # in this generation
        self._stepped = False  # an optimizer has, since the last commit
        self._ended: Optional[float] = None  # the last commit, in s of time.monotonic

    def begin(self, parts: ShardedParts) -> None:
        """Begins with a state."""
        self._parts = parts
        if self.never is None:
            parts.watch(self._before_step, self._wanted)
        else:
            self._stop(self.never)

    def describe(self) -> str:
        """What the next commits do, and why."""
        if self.never is not None:
            return f"every commit copies all parts before it returns: {self.never}"
        if self._parts is None:
            return "it is found out when elastic.run begins how commits copy"
        if self._proofs < _PROOFS:
            return "commits copy all parts before they return until a few steps were as other commits need them"
        if not self._long:
            return "commits copy all parts before they return, which takes less than a tenth of a step"
        return "commits copy parts that only optimizers change while the program goes on"

    def end(self) -> None:
        """Ends what begin began."""
        if self._parts is not None:
            self._parts.end()

    def enter(self) -> None:
        """Begins a generation."""
        self._open = self._committed = self._stepped = False
        self._ended = None

    def before(self) -> None:
        """Called when a commit begins, before its own operations."""
        if not self._stepped:
            self._settle()
        if self.never is None and self._parts is not None and not self._parts.lives():
            self._stop("none that only optimizers change is on the host, and on a GPU commit_mode='overlapped' asks for it")
        self.overlaps = self.never is None and self._proofs >= _PROOFS and self._long

    def _before_step(self) -> None:
        if not self._stepped:
            self._settle()
        self._stepped = True

    def _settle(self) -> None:
        """Called before the first thing after a commit that may change parts: nothing copies them then."""
        training = world.training
        if training is None or self._parts is None:
            return
        if self._open:
            self._withdraw_if_touched(training)
            self._parts.release(training)
            self._open = False
        elif self.never is None and self._proofs < _PROOFS and self._committed and self._parts.untouched():
            self._parts.bring()
            if training.unchanged():
                self._proofs += 1
            else:
                self._stop("the program changes them in a way that PyTorch does not count")

    def _withdraw_if_touched(self, training: Training) -> None:
        """Withdraws the last commit if parts may have changed while it copied them."""
        if self._open and not self._stepped and self._parts is not None and not self._parts.untouched():
            training.withdraw()
            self._stop("the program changes them between a commit and a step")

    def _stop(self, why: str) -> None:
        self.never = why
        _log.info("every commit copies all parts of the state before it returns: %s", why)

    def commit(self, training: Training, samplers: List[ElasticSampler]) -> None:
        """Commits, in one of the ways."""
        began, overlaps = time.monotonic(), self.overlaps
        self._open = self.overlaps = False  # of a commit that fails nothing is copied
        if overlaps and self._parts is not None:
            self._parts.commit_overlapped(training)
        else:
            training.commit()
        now = time.monotonic()
        if not overlaps and self._ended is not None:
            self._long = self._wanted or now - began > _WORTH * (began - self._ended)
        self._open, self._committed, self._stepped, self._ended = overlaps, True, False, now

    def leave(self, training: Training, complete: bool) -> None:
        """Called before a generation ends for the engine, with the training or without."""
        self._withdraw_if_touched(training)
        self._open = False
        if self._parts is not None:
            self._parts.settle()
            if complete:
                self._parts.bring()

    def commit_alone(self, *_: object) -> None:
        """Does nothing: what a lost rank had of a step is lost."""

    def restore(self, training: Training) -> None:
        """Called before the program returns to the last commit by itself."""
        self._withdraw_if_touched(training)
        self._open = False
        if self._parts is not None:
            self._parts.settle()
