"""Commits that copy nothing: while only an optimizer changes the weights, they are the last commit."""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Callable, List, Optional

from torch.optim.optimizer import register_optimizer_step_pre_hook

from ... import _library as lib
from ...errors import DivergedError, HostsUpdatedInterrupt, InvalidArgumentError, WorkerLostError
from ...training import Training
from ..world import world
from .registered import RegisteredTensor, bring, settle
from .sampler import ElasticSampler

#: What TorchState takes as commit_mode.
LIVE, OVERLAPPED, COPIED = "live", "overlapped", "copied"
#: Bytes of weights and optimizer state below which a copy costs nothing worth mentioning.
_WORTH = 4 << 20
#: The steps, each with a commit, that must have been as live commits need them before the first one.
_PROOFS = 2

_log = logging.getLogger("regroup")


def check_mode(mode: Optional[str], *modes: str) -> None:
    """Raises for a commit_mode that a state cannot have."""
    if mode is not None and mode not in modes:
        whose = "with parts of its own on each rank" if OVERLAPPED in modes else "that is the same on all ranks"
        raise InvalidArgumentError(
            f"commit_mode={mode!r}: for a state {whose} it is {' or '.join(map(repr, modes))}, or left out"
        )


class LiveCommits:
    """Decides for each commit whether tensors are copied.

    They need not be if nothing changes them but one step of an optimizer for each commit, with no
    operation of the library between the two. Then a loss comes before the step, or finds the ranks
    that have made it in the commit::

        loss.backward()       # lost here: the tensors are those of the last commit
        optimizer.step()
        state.commit()        # lost here: they are those of this one, on all ranks that came here

    That is looked at, step by step: where tensors change in another way, or a step is not like that,
    commits are copies, as they are at the beginning. All ranks make a copy if one of them does, and
    now and then, so that something is left when this was wrong.
    """

    #: Parts of a sharded state are not brought later, see OverlappedCommits.
    overlaps = False

    def __init__(self, mode: Optional[str]):
        check_mode(mode, LIVE, COPIED)
        #: Whether that is what the program wants, also where not all can be seen that speaks against it.
        self.wanted = mode == LIVE
        #: Why no commit is live; None = some are.
        self.never: Optional[str] = "the state was made with commit_mode='copied'" if mode == COPIED else None
        self._tensors: List[RegisteredTensor] = []
        #: Whether those that are elsewhere than in registered memory are brought there when it is known that a commit
        #: copies them, and not before.
        self.stay = False
        self._versions: List[int] = []
        self._proofs = 0
        self._live = False  # the last commit was a live one, as far as this rank is concerned
        self._steps = 0  # of optimizers since the last commit
        self._started = 0  # operations that were started until the last of them
        self._early = False  # tensors had changed before the first of them
        self._pure = False  # the step before this commit was as live commits need it
        self._training: Optional[Training] = None
        self._optimizers: List[Any] = []
        self._explain: Callable[[], None] = lambda: None
        self._agreed = False  # on the next commit, as far as that is done before
        self._request: Optional[int] = None  # of the operation for it
        self._ballot: Any = None  # its memory
        self._hook: Any = None

    def begin(
        self,
        training: Training,
        tensors: List[RegisteredTensor],
        size: int,
        optimizers: List[Any],
        explain: Callable[[], None],
    ) -> None:
        """Begins with a state whose live tensors have size bytes, and are changed by optimizers. explain
        raises an error about what is not alike on all ranks."""
        if self.never is None and size < (1 if self.wanted else _WORTH):
            self.never = f"a copy of {size} bytes costs nothing"
        if self.never is not None:
            self._stop(self.never)
            return
        self._tensors, self._training, self._optimizers, self._explain = tensors, training, optimizers, explain
        self._hook = register_optimizer_step_pre_hook(self._before_step)
        world.reduced = self.reduced

    def describe(self) -> str:
        """What the next commits do, and why."""
        if self.never is not None:
            return f"every commit copies all tensors: {self.never}"
        if self._hook is None:
            return "it is found out when elastic.run begins what commits copy"
        if self._proofs < _PROOFS:
            return "commits copy all tensors until a few steps were as commits without copies need them"
        return "commits copy nothing that only optimizers change"

    def end(self) -> None:
        """Ends what begin began."""
        if self._hook is not None:
            self._hook.remove()
            self._hook, world.reduced = None, None

    def enter(self) -> None:
        """Begins a generation: there is a copy of the state."""
        self._live, self._request = False, None
        self._note()

    def _note(self) -> None:
        self._steps, self._early, self._agreed = 0, False, False
        try:
            self._versions = self._count()
        except RuntimeError as e:  # inference tensors have no version
            self._stop(str(e))

    def _count(self) -> List[int]:
        return [t.current._version for t in self._tensors if t.current is not None]

    def _touched(self) -> bool:
        """Whether tensors may have changed since the last commit."""
        return self._steps > 0 or self._versions != self._count()

    def _before_step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        if self._steps == 0:
            self._await()
            self._early = self._touched()
            self._compare()
            if any(optimizer is o for o in self._optimizers):
                try:
                    self._agree()
                except DivergedError:
                    self._explain()
                    raise
        self._steps += 1
        self._started = lib.started

    def _await(self) -> None:
        """Waits for the gradients, if they are not on the host: that the step was made must prove that they were
        complete. A loss stops what a GPU does with others, which looks like its end."""
        if self.never is not None or not any(t.elsewhere() for t in self._tensors):
            return
        settle(t.current for t in self._tensors if t.current is not None)
        if world.failed() is not None or world.follower is not None and world.follower.failed():
            raise WorkerLostError("a peer was lost while gradients were reduced")

    def reduced(self) -> None:
        """Called when the reductions of all gradients of a step were started."""
        if not any(t.elsewhere() for t in self._tensors):
            self._ask()

    def _ask(self) -> None:
        training, comm = world.training, world.communicator
        if training is None or comm is None or self._agreed or self._request is not None:
            return
        self._ballot = training.ballot()
        if self._ballot is not None:
            at, count = ctypes.addressof(self._ballot), len(self._ballot)
            self._request = comm.named.allreduce(at, count, lib.INT64, lib.MAX, start=True, name="regroup.commit")

    def _agree(self) -> None:
        """Agrees with the other ranks on the commit of this step, after its gradients were reduced:
        after the step they would wait for the slowest."""
        self._ask()  # unless that was done before
        self._agreed = True
        request, self._request = self._request, None
        if request is None:
            return
        try:
            lib.wait(request)
        except WorkerLostError:
            return  # this rank can make the step, and so it does
        world.training.agreed(self._ballot)

    def _compare(self) -> None:
        """Finds out, in the first steps, whether tensors have changed since the last commit without
        a trace."""
        proved = self._live or self._proofs >= _PROOFS
        if self.never is not None or proved or self._training is None:
            return
        bring(self._tensors)
        if not self._training.unchanged():
            self._stop("the program changes them in a way that PyTorch does not count")

    def _stop(self, why: str) -> None:
        self.never, self._live = why, False
        _log.info("every commit copies all tensors of the state: %s", why)

    def before(self) -> None:
        """Called when a commit begins, before its own operations."""
        self.stay = self.never is None and self._hook is not None
        self._pure = self._steps == 1 and not self._early and self._started == lib.started

    def commit(self, training: Training, samplers: List[ElasticSampler]) -> None:
        """Commits, in one of the ways."""
        if self._hook is not None and not self._agreed:  # without a step, but others may have made one
            self._agree()
        if self.never is not None:
            self._agreed = False
            self._commit(training, False)
            return
        live = True
        if not self._touched():
            self._compare()
        else:
            # One such step now and then costs a copy, and is no reason to make more of them.
            live = self._pure and all(s.alike for s in samplers)
            self._proofs += live
        live = live and self.never is None and self._proofs >= _PROOFS
        try:
            self._commit(training, live)
        except HostsUpdatedInterrupt:
            self._made(False)
            raise
        self._made(live)

    def _commit(self, training: Training, live: bool) -> None:
        if self.stay and any(t.elsewhere() for t in self._tensors) and training.agree(live):
            bring(self._tensors)
        (training.commit_live if live else training.commit)()

    def _made(self, live: bool) -> None:
        """Notes that the tensors are those of a commit."""
        self._live = live
        self._note()

    def leave(self, training: Training, complete: bool) -> None:
        """Called before a generation ends for the engine, with the training or without: says whether the tensors are
        still those of the last commit, and has them where they are registered."""
        if self._live and not complete and self._touched():
            training.changed()
        elif self._live or complete:
            bring(self._tensors)

    def commit_alone(self, training: Training, samplers: List[ElasticSampler], save: Callable[[], None]) -> None:
        """Makes the state a commit, when a peer was lost in this one."""
        if not self._live or not self._pure or not all(s.assume(training) for s in samplers):
            return
        save()
        training.changed()
        training.commit_alone()
        self._made(True)

    def restore(self, training: Training) -> None:
        """Called before the program returns to the last commit by itself."""
        if self._live and self._touched():
            training.changed()
            self._stop("the program restores the state")
        elif self._live:
            bring(self._tensors)
        self._steps, self._agreed = 0, False
