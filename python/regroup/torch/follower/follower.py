"""follow: torch.distributed's default group gets the members of the job."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional

import torch.distributed as dist

from ... import membership
from ...communicator import Communicator
from ...errors import ClosedError, InvalidArgumentError, RegroupError, StuckError, WorkerLostError
from .. import rendezvous
from ..world import world
from ..c10d.operations import BACKEND
from . import connections, ending, gpus, group, meshes, models, spans, store

#: The origin of the group's operations on the communicator of the job.
ORIGIN = 2

#: How long a failure of the group waits for the job's own notice of it, in seconds. The notice
#: says who was lost.
NOTICE = 2.0


def follow(backend: str = "gloo", **options: Any) -> None:
    """Initialises torch.distributed's default group, in place of ``init_process_group``, and keeps
    its members those of the job, while this process stays.

    backend is any of torch's, and options are those of ``init_process_group`` without init_method,
    store, rank and world_size. Under ``regroup run --recovery in-process`` this process is alone in
    the group until the function of ``elastic.run`` is called. In each of its calls the group's
    ranks are the generation's: since torch 2.14 the group is the same object, reconfigured; before,
    and where the backend cannot do that, it is a new one. DistributedDataParallel objects over the
    default group go on with it. Other groups, device meshes and sharded models belong to one
    generation, and are destroyed with it: make them in the function, or in the build of a state.

    When a member is lost, operations in progress end with an error on all others, also those of
    gloo, which waits for its timeout otherwise; elastic.run then calls the function again.

    With the ranks of a launcher (torchrun, or recovery by restart), and without one, the group is
    that of ``init_process_group``. Raises InvalidArgumentError for an option that is follow's own, or if
    the group is initialised.
    """
    own = sorted({"init_method", "store", "rank", "world_size", "enable_reconfigure"} & set(options))
    if own:
        raise InvalidArgumentError(f"follow: {', '.join(own)} cannot be given: the job sets it")
    if dist.is_initialized():
        raise InvalidArgumentError("follow takes the place of init_process_group, which was called")
    if backend == BACKEND:
        from .. import distributed  # noqa: F401  registers it, for torch before 2.14
    world.init()  # for elastic.run
    kind = membership.mode()
    if kind == membership.STATIC:
        dist.init_process_group(backend, **options)
        return
    if kind == membership.ALONE:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **options)
        return
    models.record()
    meshes.record()
    world.follower = Follower(backend, options)


class Follower:
    """The default group of this process, and how it gets the members of each generation.

    A group of the backend regroup uses the communicator of the job, which has connected the members
    already; others are connected beside it. Where the backend makes a group anew, the old one ends beside that,
    on threads.
    """

    def __init__(self, backend: str, options: dict):
        # The group holds the C++ part of the store, which calls the Python part.
        self._store = store.GenerationStore()
        self._group = group.create(backend, self._store, options)
        self._group.stuck = self._restart
        self._watch: Optional[_Watch] = None
        self._before: Optional[Dict[int, int]] = None  # sockets before the group was connected
        self._shares = backend == BACKEND  # the job's communicator
        self._gpu, self._bound = gpus.used(backend), options.get("device_id")
        self._endings: List[ending.Ending] = []  # of earlier generations
        #: That a group of an earlier generation does not end.
        self.stuck: Optional[StuckError] = None

    def prepare(self) -> None:
        """Does what takes time on a GPU before this process is let into a generation, alone."""
        if self._gpu:
            gpus.prepare(self._bound)

    def enter(self, comm: Communicator, generation: int) -> None:
        """Makes the ranks of a communicator of the generation the members of the group. All of them
        call it. Raises an error if one is lost meanwhile, or the group cannot be connected."""
        if self.stuck is not None:
            raise self.stuck
        if self._watch is not None:
            self._watch.end()
        if dist.is_initialized():  # else the last attempt to initialise it again has failed
            models.check(dist.group.WORLD)
            meshes.forget()
        count = group.group_count()
        self._endings = [e for e in self._endings if not e.ended] + self._group.leave(generation)
        self._watch = watch = _Watch(comm, self._group)
        handle = "" if self._shares else self._group.handle()
        device = models.gpu() if self._gpu else None
        mine = {"handle": handle, "count": count, "store": "", "opens": device is not None}
        server = None
        if comm.rank == 0:
            server, mine["store"] = store.serve()
        members = _gather(comm, mine)
        self._before = None if self._shares else connections.sockets()
        began = time.monotonic()
        try:
            self._store.replace(server, members[0]["store"], comm.failed)
            with rendezvous.give(comm.with_origin(ORIGIN) if self._shares else None):
                self._group.connect(generation, comm.rank, [m["handle"] for m in members])
            if comm.failed() is None:  # from here on a failure aborts the group
                self._group.open(device if all(m["opens"] for m in members) else None)
        except RuntimeError as e:
            watch.wait(NOTICE)
            if watch.noticed():
                raise WorkerLostError(f"a member was lost while the group was connected: {e}") from e
            raise
        spans.report(generation, spans.CONNECTS, began, time.monotonic())
        group.set_group_count(max(m["count"] for m in members))
        self.guard(comm)
        if self._gpu:
            gpus.wait()
        models.renew()

    def guard(self, comm: Communicator) -> None:
        """Has the connections that groups have made since enter shut down when a member is lost. All
        members call it."""
        if self._before is not None and self._watch is not None:
            self._watch.guard(connections.Mesh.between(self._before, lambda own: _gather(comm, own)))

    def failed(self) -> bool:
        """Whether the group has lost a member, or does not work for another reason: then what
        raised an error was not the program. If so, its kernels have ended when this returns."""
        watch = self._watch
        if watch is None or not (watch.noticed() or watch.broken()):
            return False
        watch.wait(NOTICE)
        if self._gpu and watch.noticed():
            gpus.wait()
        return True

    def finish(self) -> None:
        """Waits for the groups of earlier generations."""
        for one in self._endings:
            one.join()

    def _restart(self, error: StuckError) -> None:
        """Has the generation fail everywhere: this process leaves it as soon as its main thread hears of that."""
        self.stuck = error
        if self._watch is not None:
            self._watch.fail(str(error))


class _Watch:
    """Ends the group's operations when its generation fails."""

    def __init__(self, comm: Communicator, group: Any):
        self._comm, self._group = comm, group
        self._mesh: Optional[connections.Mesh] = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="regroup-follower", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        error = self._comm.wait_failed()
        with self._lock:
            if not isinstance(error, (ClosedError, InvalidArgumentError)):  # else it was left
                self._interrupt()
            self._ended.set()

    def _interrupt(self) -> None:
        """Ends what is in progress. The caller holds the lock."""
        if self._mesh is not None:
            self._mesh.shut_down()
        with suppress(RuntimeError):  # a group that is being connected has nothing to abort
            self._group.abort()

    def guard(self, mesh: connections.Mesh) -> None:
        """Makes these the connections that are shut down."""
        with self._lock:
            self._mesh = mesh
            if self._ended.is_set() and self._comm.failed() is not None:
                mesh.shut_down()

    def fail(self, why: str) -> None:
        """Has the generation fail, on all ranks."""
        with suppress(RegroupError):  # it is over
            self._comm.abort(why)

    def noticed(self) -> bool:
        """Whether the job has noticed a failure of the generation."""
        return self._comm.failed() is not None

    def broken(self) -> bool:
        """Whether the group does not work."""
        return self._mesh is not None and self._mesh.broken() or self._group.failed()

    def wait(self, limit: float) -> None:
        """Waits for the job's notice, for at most so many seconds."""
        self._ended.wait(limit)

    def end(self) -> None:
        """Waits for the end of the generation, which is over for this process, and for what that begins."""
        self._thread.join()


def _gather(comm: Communicator, mine: Any) -> List[Any]:
    """What all ranks give, in their order; each can be written as JSON."""
    return [json.loads(b) for b in comm.allgather_bytes(json.dumps(mine).encode())]
