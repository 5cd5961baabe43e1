"""The world of this process: its generation and the communicator."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Optional

from .. import _library as lib
from .. import membership, settings
from ..communicator import Communicator
from ..errors import NotInitializedError, RegroupError, UnsupportedError
from ..named import Named
from ..membership import Membership
from ..training import Training, communicator
from . import gpus, rendezvous


class SwappedCommunicator:
    """A communicator in which rank 0 and another rank are swapped, for operations from a root."""

    def __init__(self, comm: Communicator, first: int):
        self._comm, self._first = comm, first
        self.rank = self._swap(comm.rank)

    def _swap(self, rank: int) -> int:
        return {0: self._first, self._first: 0}.get(rank, rank)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._comm, name)

    gpus = None  # tensors on GPUs go through the host

    @property
    def named(self) -> "SwappedNamed":
        return SwappedNamed(self._comm.named, self._swap)

    def subset(self, name: str, ranks: List[int]) -> Any:
        raise UnsupportedError("no process sets while rank 0 gives the others its state")

    def allgather_bytes(self, data: bytes) -> List[bytes]:
        """Gathers bytes, in the order of the ranks."""
        got = self._comm.allgather_bytes(data)
        got[0], got[self._first] = got[self._first], got[0]
        return got


class SwappedNamed:
    """The named operations of such a communicator: broadcasts, and those whose result does not
    depend on the order of the ranks."""

    def __init__(self, named: Named, swap: Callable[[int], int]):
        self._swap = swap
        self.allreduce, self.barrier = named.allreduce, named.barrier
        self.number, self.refuse, self._broadcast = named.number, named.refuse, named.broadcast

    def broadcast(self, data: int, count: int, kind: int, root: int, **how: Any) -> Optional[int]:
        return self._broadcast(data, count, kind, self._swap(root), **how)

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(
            f"{name} is not offered while rank 0 gives the others its state: use broadcasts and allreduces"
        )


class World:
    """The world of this process, of which there is one, ``world``. It belongs to the training
    thread.

    With in-process recovery it has a ``job`` from init on, which yields a session for each
    generation. A session has a stage: preparing, until elastic.run has registered the state;
    arranging, in each generation, if the state is sharded; training; or None, when the training is
    over.
    """

    def __init__(self) -> None:
        self.mode: Optional[str] = None  # one of regroup.membership; None = not initialised
        self.membership = Membership()
        self.job: Optional[Training] = None  # with in-process recovery
        self.stage: Optional[int] = None  # of regroup._library, of the job's session
        self.step = 0  # of the state at the start of the session
        self.traceparent = ""  # of the session
        self.recording = False  # in a job, until elastic.run: results of operations are recorded
        self.prologue: Any = None  # elastic.prologue.Prologue, which records them, from the first on
        self.training: Optional[Training] = None  # while elastic.run goes on
        self.sampler: Any = None  # the elastic sampler whose samples are accounted for
        #: Called when the reductions of all gradients of a step were started, among all ranks.
        self.reduced: Optional[Callable[[], None]] = None
        self.consumed = False  # a step was made since the last commit
        self.entries = 0  # grows with every communicator: resources of one are created again for the next
        self._communicator: Optional[Communicator] = None
        self._owned = False
        self.follower: Any = None  # follower.Follower, if torch's default group follows the job
        self._gpus: Any = None  # regroup.torch.gpus.Gpus of the newest generation
        self._pid = 0

    def init(self) -> None:
        """Determines the ranks of this process, and connects it to the others, if any."""
        if self.mode is not None:
            return
        member, mode = membership.expected(), membership.mode()
        self._pid = os.getpid()
        if mode == membership.STATIC and member.size > 1:
            comm = rendezvous.from_environment(member.rank, member.size)
            self._set(member, comm, owned=True)
        elif mode == membership.ELASTIC:
            self._join()
        else:
            self.membership = member
        self.mode = mode
        atexit.unregister(self.at_exit)  # of an earlier init
        atexit.register(self.at_exit)

    def _join(self) -> None:
        """Joins the job, unless this process has before."""
        if self.job is not None:
            return
        self.job = Training(join=True)
        self.job.start()
        self.recording = True
        self.next_generation()

    def next_generation(self) -> bool:
        """Waits for the next session of the job; False when the training is complete."""
        session = self.job.next()
        if session is None:
            return False
        self.enter(session)
        return True

    def shutdown(self) -> None:
        """Leaves the world. A worker of a job with recovery in the process stays a member: it may
        call init again."""
        self.mode = None
        if self.job is None:
            self._drop()
            self.membership = Membership()
            atexit.unregister(self.at_exit)

    def at_exit(self) -> None:
        """Closes the connections in order, so that the last bytes reach slower peers. Does nothing
        in a forked child."""
        if os.getpid() == self._pid:
            self._drop()
            self.quit()

    def quit(self) -> None:
        """Ends this process's part in its job. If the others still wait for it, they learn the
        reason."""
        job, self.job = self.job, None
        if job is None:
            return
        if self.stage is not None:
            error = getattr(sys, "last_value", None)
            reason = "the process ends" if error is None else describe(error)
            self.stage = None
            try:
                job.leave(lib.FAILED, reason)
            except RegroupError:
                pass  # it is in no session
        job.close()

    def _drop(self) -> None:
        comm, self._communicator = self._communicator, None
        if comm is not None and self._owned:
            comm.close()

    def _set(self, member: Membership, comm: Optional[Communicator], owned: bool) -> None:
        self.membership, self._communicator, self._owned = member, comm, owned
        self.entries += 1
        timeline = settings.timeline(member.generation)
        if comm is not None and comm.rank == 0 and timeline is not None:
            comm.named.start_timeline(*timeline)

    def enter(self, session: lib.Session) -> None:
        previous, preparing = self._communicator, self.stage in (lib.TOGETHER, lib.ARRANGING)
        self.stage, self.step = session.stage, session.step
        self.traceparent = session.traceparent.decode()
        local = session.local_rank, session.local_size
        member = Membership(
            session.generation, session.rank, session.world, *local, session.cross_rank, session.cross_size
        )
        if session.stage in (lib.LATE, lib.EXCLUDED):
            self._set(member, None, owned=False)
        elif preparing and previous is not None and previous.handle == session.comm:
            self.membership = member  # from one stage to the next, in one generation
        else:
            self._set(member, communicator(session), owned=False)
            if session.stage == lib.TOGETHER:
                self.check_gpus()

    @contextlib.contextmanager
    def root_is_survivor(self, survivor: bool) -> Iterator[None]:
        """Makes rank 0 a survivor of the previous generation, if there is one: the lowest such rank
        and rank 0 are swapped. Horovod's users rely on that when they broadcast the state of rank
        0; here a restarted worker may have rank 0."""
        answers = allgather_bytes(b"1" if survivor else b"0")
        first = answers.index(b"1") if b"1" in answers else 0
        if first == 0:
            yield
            return
        member, comm = self.membership, self._communicator
        self._communicator = SwappedCommunicator(comm, first)
        self.membership = replace(member, rank=self._communicator.rank)
        try:
            yield
        finally:
            self.membership, self._communicator = member, comm

    def check_gpus(self) -> None:
        """Finds out whether all ranks of the generation have GPUs. All ranks call it, before any
        operation."""
        comm, member = self._communicator, self.membership
        if comm.gpus is not None:
            return
        answers = comm.allgather_bytes(gpus.no_gpu_reason().encode()) if comm.world > 1 else []
        reason = gpus.first_reason([b.decode() for b in answers]) or gpus.no_gpu_reason()
        comm.gpus = self._gpus = gpus.Gpus(comm, reason, member.local_rank, member.local_size, self._gpus)

    def end(self) -> None:
        """Frees the GPU that the generations hand over to each other."""
        gpus, self._gpus = self._gpus, None
        if gpus is not None:
            gpus.close()

    def leave(self) -> None:
        """Drops the communicator of a session that is over. The membership stays as it was."""
        if not self._owned:
            self._communicator = None

    def initialized(self) -> Membership:
        """The membership, for the functions of the API."""
        if self.mode is None:
            raise NotInitializedError("Regroup has not been initialized; call init() first")
        return self.membership

    @property
    def communicator(self) -> Optional[Communicator]:
        """The communicator of the generation; None if this process is alone."""
        comm = self._communicator
        if comm is not None:
            return comm
        self.initialized()
        if self.mode != membership.ELASTIC:
            return None
        if self.stage in (lib.LATE, lib.EXCLUDED):
            raise RegroupError(
                "the others are in the function of elastic.run already and would not answer: of what comes before it, a "
                "worker that comes later is given the results of synchronous broadcasts, allreduces and allgathers of "
                "its own calls, and of no other operation; move this one into the function"
            )
        raise RegroupError("this worker has left its generation; there is nobody to answer")

    def gpus(self) -> str:
        """How GPU tensors are transferred, for people."""
        self.initialized()
        comm = self._communicator
        if comm is None or comm.gpus is None:
            return "there is nobody to exchange tensors with"
        return comm.gpus.describe()

    def failed(self) -> Optional[Exception]:
        """Why the generation has failed; None if it has not, or if there is none."""
        return None if self._communicator is None else self._communicator.failed()


world = World()


def describe(error: BaseException) -> str:
    """An exception in one line, like the end of a traceback."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def allgather_bytes(data: bytes) -> List[bytes]:
    """Gathers bytes of all ranks, in the order of the ranks."""
    comm = world.communicator
    return [data] if comm is None else comm.allgather_bytes(data)
