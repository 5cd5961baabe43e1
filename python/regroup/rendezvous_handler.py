"""Regroup's rendezvous for the agents of PyTorch: ``torchrun --rdzv-backend=regroup``.

torchrun finds it by the entry point ``torchrun.handlers``.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from datetime import timedelta
from typing import Any, List, Optional

from torch.distributed import TCPStore
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousGracefulExitError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)

from ._companion import Companion, Generation
from ._tcpstore import tcp_store

log = logging.getLogger(__name__)

#: The keys of --rdzv-conf that the companion reads.
PASSED_ON = (
    "join_timeout",
    "last_call_timeout",
    "close_timeout",
    "keep_alive_interval",
    "keep_alive_max_attempt",
    "is_host",
)

#: Seconds: the default of join_timeout, and the time beyond it in which the companion, which has
#: the same limit, says why nobody came.
JOIN_WITHIN, AND_SAY_SO = 600.0, 15.0

#: Seconds for a connection to the store of a generation, and for its operations.
CONNECT_WITHIN, ANSWER_WITHIN = 30.0, 300.0

#: Seconds that a node which is done waits for the others, as torchrun's exit barrier does.
OTHERS_WITHIN = 300.0

#: Failures are counted by the agents; this is the largest number that a job may have.
RESTARTS = "10000"


def get() -> Any:
    """The entry point: returns what makes a handler."""
    return create


def create(params: RendezvousParameters) -> "RegroupHandler":
    """Makes the handler of an agent."""
    return RegroupHandler(params)


def configured() -> bool:
    """Whether the environment names a server."""
    return bool(os.environ.get("REGROUP_SERVER") or os.environ.get("REGROUP_CONTEXT"))


def arguments(params: RendezvousParameters) -> List[str]:
    """The companion's command line, up to the command of the members."""
    nodes = f"{params.min_nodes}:{params.max_nodes}"
    line = ["torchrun", "--nnodes", nodes, "--nproc-per-node", "1", "--max-restarts", RESTARTS]
    line += ["--rdzv-backend", "c10d", "--rdzv-id", params.run_id]
    server = configured()
    if not params.endpoint and not server and params.max_nodes > 1:
        raise ValueError(
            "the rendezvous regroup needs the address of a server: give --rdzv-endpoint HOST:PORT, "
            "of one of the nodes and the same on all of them, or set REGROUP_SERVER"
        )
    if params.endpoint and not server:
        line += ["--rdzv-endpoint", params.endpoint]
    conf = [f"{k}={params.get(k)}" for k in PASSED_ON if params.get(k) is not None]
    if conf:
        line += ["--rdzv-conf", ",".join(conf)]
    if params.local_addr:
        line += ["--local-addr", params.local_addr]
    return line + ["--no-python"]


class RegroupHandler(RendezvousHandler):
    """The rendezvous of one agent. Its companion starts with the first round. Any thread may call its
    methods."""

    def __init__(self, params: RendezvousParameters):
        self._arguments = arguments(params)
        self._run_id = params.run_id
        self._min_nodes = params.min_nodes
        self._server = [] if configured() else ["--server", f"nats://{params.endpoint}"]
        self._join_within = float(params.get("join_timeout") or JOIN_WITHIN)
        self._companion: Optional[Companion] = None
        self._closed = False
        self._current: Optional[Generation] = None

    def get_backend(self) -> str:
        return "regroup"

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        """The store of a generation is served by a companion until the generation is over."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Returns the next generation, once the agents of all its nodes are here."""
        if self._closed:
            raise RendezvousClosedError(f"run {self._run_id} is closed here")
        if self._companion is None:
            self._companion = Companion(self._arguments)
            atexit.register(self._leave)  # an agent that gets a signal does not shut down
        self._companion.poll()
        if self._current is not None and self._companion.node.closed:
            raise RendezvousClosedError(f"run {self._run_id} is closed")
        if self._current and not self._current.over:
            self._current.end(1)  # the workers are restarted, for which all nodes are needed
        self._current = None
        while True:
            g = self._await(self._companion)
            store = self._meet(self._companion, g)
            if store is not None:
                break
        self._current = g
        log.info("regroup: node %d of %d in generation %d", g.rank, g.size, g.number)
        return RendezvousInfo(store, g.rank, g.size, RendezvousStoreInfo(g.address, g.port))

    def _limit(self) -> float:
        """The time at which a node that begins to wait for others now gives up. The companion has a
        limit as well, and says why."""
        return time.monotonic() + self._join_within + AND_SAY_SO

    def _await(self, companion: Companion) -> Generation:
        """Waits for a generation. A node that is redundant waits for as long as it is, as with
        torchrun."""
        limit = self._limit()
        while True:
            ended = companion.ended()
            companion.poll(0 if ended else 0.2)
            g = companion.newest()
            if g is not None:
                return g
            if ended:
                raise self._refused(companion)
            if companion.node.membership == "spare":
                limit = self._limit()
            if time.monotonic() > limit:
                raise RendezvousTimeoutError(
                    f"no generation of run {self._run_id} has begun:\n{companion.last_words()}"
                )

    def _refused(self, companion: Companion) -> Exception:
        """Why a companion has ended."""
        text = f"regroup has ended this node's part in run {self._run_id}:\n{companion.last_words()}"
        membership = companion.node.membership
        if membership == "timed-out":
            return RendezvousTimeoutError(text)
        if membership == "over" and self._current is None:
            return RendezvousGracefulExitError(text)  # it was redundant to the end
        if membership in ("closed", "over"):
            return RendezvousClosedError(text)
        return RendezvousConnectionError(text)

    def _meet(self, companion: Companion, g: Generation) -> Optional[TCPStore]:
        """Returns the store of a generation, once all its agents are there, which may have to stop
        workers first; None if the generation is over before."""
        limit = self._limit()
        try:
            store = tcp_store(g.address, g.port, is_master=False, timeout=timedelta(seconds=CONNECT_WITHIN))
            store.set_timeout(timedelta(seconds=ANSWER_WITHIN))
            store.add("regroup/agents", 1)
            pause = 0.005
            while store.add("regroup/agents", 0) < g.size:
                if time.monotonic() > limit:
                    raise RendezvousTimeoutError(
                        f"not all {g.size} agents of run {self._run_id} have come to generation {g.number}"
                    )
                companion.poll(pause)
                if g.over:
                    return None
                pause = min(2 * pause, 0.25)
            return store
        except RendezvousTimeoutError:
            raise
        except Exception as e:  # the store's errors have no common type
            until = time.monotonic() + 1
            while not g.over and time.monotonic() < until:
                companion.poll(0.1)
            if g.over:
                return None
            raise RendezvousConnectionError(f"the store {g.address}:{g.port}: {e}") from e

    def num_nodes_waiting(self) -> int:
        """The number of nodes that wait until the workers are started again, for which any agent may
        ask by next_rendezvous; at least 1 if the generation of the workers is over."""
        if self._companion is None or self._current is None:
            return 0
        self._companion.poll()
        return max(int(self._current.over), self._companion.node.waiting)

    def is_closed(self) -> bool:
        if self._closed or self._companion is None:
            return self._closed
        self._companion.poll()
        return self._companion.node.closed or self._companion.ended()

    def set_closed(self) -> None:
        """Closes the run on all nodes: those that are in go on with what they do, and none meet
        again."""
        companion = self._companion
        if companion is not None and not companion.ended() and companion.node.job:
            companion.close_job(companion.node.job, self._server)
        else:
            self._closed = True

    def shutdown(self) -> bool:
        """Ends this node's part: it is done, or it leaves if the agent ends by an exception. If its
        workers have failed for good and the others are too few without it, the run is over."""
        companion = self._companion
        failed = isinstance(sys.exc_info()[1], ChildFailedError)
        current = self._current
        if companion and current and failed and current.size - 1 < self._min_nodes:
            companion.stop_job(current.job, f"node {current.rank} has failed for good", self._server)
        if companion is not None and not self._closed and sys.exc_info()[0] is None:
            companion.poll()
            companion.finish()
            if companion.wait(OTHERS_WITHIN):
                self._closed = True
                companion.close()
        self._leave()
        return True

    def _leave(self) -> None:
        closed, self._closed = self._closed, True
        if self._companion is not None and not closed:
            self._companion.leave()
