"""The world of this process: which generation it is in, and the communicator of it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Optional

from .. import _library as lib
from .. import place as places
from ..communicator import Communicator
from ..errors import NotInitializedError, RegroupError, UnsupportedError
from ..named import Named
from ..place import Place
from ..training import Training, communicator


class Renumbered:
    """A communicator in which rank 0 and another one have changed their numbers, for operations from a root."""

    def __init__(self, made: Communicator, first: int):
        self._made, self._first = made, first
        self.rank = self._turned(made.rank)

    def _turned(self, rank: int) -> int:
        return {0: self._first, self._first: 0}.get(rank, rank)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    gpus = None  # tensors on GPUs go through the host

    @property
    def named(self) -> "RenumberedNames":
        """Its operations by name."""
        return RenumberedNames(self._made.named, self._turned)

    def subset(self, name: str, ranks: List[int]) -> Any:
        """Not offered."""
        raise UnsupportedError("no process sets while rank 0 gives the others its state")

    def allgather_bytes(self, data: bytes) -> List[bytes]:
        """Gathers bytes, in the order of the ranks."""
        got = self._made.allgather_bytes(data)
        got[0], got[self._first] = got[self._first], got[0]
        return got


class RenumberedNames:
    """Operations by name of such a communicator: those whose result does not depend on the order of the ranks, and
    broadcasts."""

    def __init__(self, named: Named, turned: Callable[[int], int]):
        self._turned = turned
        self.allreduce, self.barrier = named.allreduce, named.barrier
        self.number, self.refuse, self._broadcast = named.number, named.refuse, named.broadcast

    def broadcast(self, *arguments: Any) -> Optional[int]:
        """Named.broadcast, whose sixth argument is the root."""
        what, (root, *rest) = arguments[:5], arguments[5:]
        return self._broadcast(*what, self._turned(root), *rest)

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(
            f"{name} is not offered while rank 0 gives the others its state: use broadcasts and allreduces"
        )


class World:
    """There is one, ``world``. Everything here belongs to the training thread.

    In a job with recovery in the process it has a ``job``, from init on: the way through the generations. Its sessions
    have a stage: before the state is registered, which elastic.run does; training; or None, when the training is over.
    """

    def __init__(self) -> None:
        self.mode: Optional[str] = None  # one of regroup.place; None = not initialised
        self.place = Place()
        self.job: Optional[Training] = None  # with recovery in the process
        self.stage: Optional[int] = None  # of regroup._library, of the job's session
        self.step = 0  # that the state had behind it at the begin of the session
        self.prologue: Any = None  # elastic.prologue.Prologue, until elastic.run
        self.training: Optional[Training] = None  # while elastic.run goes on
        self.sampler: Any = None  # the elastic sampler whose samples are accounted for
        self.consumed = False  # a step was made since the last commit
        self.entries = (
            0  # grows with every communicator: what belongs to one is made again for the next
        )
        self._communicator: Optional[Communicator] = None
        self._owned = False
        self._gpus: Any = None  # regroup.torch.gpus.Gpus of the newest generation
        self._pid = 0

    def init(self) -> None:
        """Finds the place of this process; connects it to the others where there are any."""
        if self.mode is not None:
            return
        place, mode = places.expected(), places.mode()
        self._pid = os.getpid()
        if mode == places.STATIC and place.size > 1:
            from . import mesh

            made = mesh.from_environment(place.rank, place.size)
            self._set(place, made, owned=True)
        elif mode == places.ELASTIC:
            self._join()
        else:
            self.place = place
        self.mode = mode
        atexit.unregister(self.at_exit)  # of an earlier init
        atexit.register(self.at_exit)

    def _join(self) -> None:
        """Joins the job, unless this process has before."""
        if self.job is not None:
            return
        from .elastic.prologue import Prologue

        self.job = Training(join=True)
        self.job.start()
        self.prologue = Prologue(self)
        self.go_on()

    def go_on(self) -> bool:
        """Waits for the next session of the job; False when the training is complete."""
        session = self.job.next()
        if session is None:
            return False
        self.enter(session)
        return True

    def shutdown(self) -> None:
        """Leaves the world. A worker of a job with recovery in the process stays a member: it may call init again."""
        self.mode = None
        if self.job is None:
            self._drop()
            self.place = Place()
            atexit.unregister(self.at_exit)

    def at_exit(self) -> None:
        """Says goodbye, so that the last bytes reach peers that are slower. A forked child has nothing to say."""
        if os.getpid() == self._pid:
            self._drop()
            self.quit()

    def quit(self) -> None:
        """Ends this process's part in its job. Where it is still waited for, the others learn why it goes."""
        job, self.job = self.job, None
        if job is None:
            return
        if self.stage is not None:
            why = getattr(sys, "last_value", None)
            said = "the process ends" if why is None else describe(why)
            self.stage = None
            try:
                job.leave(lib.FAILED, said)
            except RegroupError:
                pass  # it is in no session
        job.close()

    def _drop(self) -> None:
        made, self._communicator = self._communicator, None
        if made is not None and self._owned:
            made.close()

    def _set(self, place: Place, made: Optional[Communicator], owned: bool) -> None:
        self.place, self._communicator, self._owned = place, made, owned
        self.entries += 1
        if made is not None:
            from . import timeline

            timeline.begin(made, place.generation)

    def enter(self, session: lib.Session) -> None:
        """Takes the place that a session gives."""
        before, together = self._communicator, self.stage == lib.TOGETHER
        self.stage, self.step = session.stage, session.step
        place = Place(
            generation=session.generation,
            rank=session.rank,
            size=session.world,
            local_rank=session.local_rank,
            local_size=session.local_size,
            cross_rank=session.cross_rank,
            cross_size=session.cross_size,
        )
        if session.stage in (lib.LATE, lib.ASIDE):
            self._set(place, None, owned=False)
        elif together and before is not None and before.handle == session.comm:
            self.place = place  # from talking to training, in one generation
        else:
            self._set(place, communicator(session), owned=False)
            if session.stage == lib.TOGETHER:
                self.survey()

    @contextlib.contextmanager
    def led(self, here: bool) -> Iterator[None]:
        """Meanwhile rank 0 is one that was here before, if there is one: the lowest such rank and rank 0 change their
        numbers. It is what Horovod's users rely on when they give all ranks the state of rank 0; here a worker that is
        started again may have rank 0."""
        told = allgather_bytes(b"1" if here else b"0")
        first = told.index(b"1") if b"1" in told else 0
        if first == 0:
            yield
            return
        place, made = self.place, self._communicator
        self._communicator = Renumbered(made, first)
        self.place = replace(place, rank=self._communicator.rank)
        try:
            yield
        finally:
            self.place, self._communicator = place, made

    def survey(self) -> None:
        """Finds out whether all ranks of the generation have GPUs. All of them call it, before any operation."""
        from . import gpus

        made, place = self._communicator, self.place
        if made.gpus is not None:
            return
        told = made.allgather_bytes(gpus.absence().encode()) if made.world > 1 else []
        reason = gpus.agreed([b.decode() for b in told]) or gpus.absence()
        made.gpus = self._gpus = gpus.Gpus(
            made, reason, place.local_rank, place.local_size, self._gpus
        )

    def end(self) -> None:
        """Gives back what generations have handed on to each other."""
        left, self._gpus = self._gpus, None
        if left is not None:
            left.close()

    def leave(self) -> None:
        """Forgets the communicator of a session that is over; the place stays what it was last."""
        if not self._owned:
            self._communicator = None

    def initialized(self) -> Place:
        """The place, for whoever asks the API."""
        if self.mode is None:
            raise NotInitializedError("Regroup has not been initialized; call init() first")
        return self.place

    @property
    def communicator(self) -> Optional[Communicator]:
        """Of the generation; None where this process is alone and needs none."""
        made = self._communicator
        if made is not None:
            return made
        self.initialized()
        if self.mode != places.ELASTIC:
            return None
        if self.stage in (lib.LATE, lib.ASIDE):
            raise RegroupError(
                "the others are in the function of elastic.run already and would not answer: of what comes before it, a "
                "worker that comes later is given the results of synchronous broadcasts, allreduces and allgathers of "
                "its own calls, and of no other operation; move this one into the function"
            )
        raise RegroupError("this worker has left its generation; there is nobody to answer")

    def gpus(self) -> str:
        """How tensors on GPUs travel, for people."""
        self.initialized()
        made = self._communicator
        if made is None or made.gpus is None:
            return "there is nobody to exchange tensors with"
        return made.gpus.describe()

    def failed(self) -> Optional[Exception]:
        """Why the generation is over; None while it is not, or where there is none."""
        return None if self._communicator is None else self._communicator.failed()


world = World()


def describe(error: BaseException) -> str:
    """An exception in a line, as a traceback ends."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def allgather_bytes(data: bytes) -> List[bytes]:
    """What all ranks give, in the order of the ranks."""
    made = world.communicator
    return [data] if made is None else made.allgather_bytes(data)
