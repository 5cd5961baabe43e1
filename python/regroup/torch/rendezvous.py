"""Connects ranks that exchange their addresses over a c10d store, or that know them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import socket
import urllib.parse
from datetime import timedelta
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from ..communicator import Communicator, endpoint
from ..errors import InvalidArgumentError, RegroupError
from .gpus import Gpus, first_reason, no_gpu_reason

#: The default time limit for connecting the ranks.
CONNECT_TIMEOUT = timedelta(minutes=5)

_store = None  # of the environment; rank 0's holds the server, which must live as long as the process


#: The communicator of the group that is being made; see give.
_given: Optional[Communicator] = None


@contextlib.contextmanager
def give(comm: Optional[Communicator]) -> Iterator[None]:
    """Has the next group of this process that is made or reconfigured within the context use this
    communicator, instead of connecting its ranks. The group closes it. None = nothing is given."""
    global _given
    _given = comm
    try:
        yield
    finally:
        unused, _given = _given, None
        if unused is not None:
            unused.close()


def take() -> Optional[Communicator]:
    """The communicator that was given, once."""
    global _given
    comm, _given = _given, None
    return comm


def machine_id() -> str:
    """An id that is equal for processes that can share memory: one kernel, one network namespace,
    one PID namespace."""
    parts = []
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            parts.append(f.read().strip())
        parts += [os.readlink("/proc/self/ns/" + kind) for kind in ("net", "pid")]
    except OSError:
        parts.append(socket.gethostname())
    return " ".join(parts)


def advertised(master: str) -> str:
    """The address of this machine that peers dial: REGROUP_ADVERTISE, or the local address of the
    route to master."""
    given = os.environ.get("REGROUP_ADVERTISE", "")
    if given:
        return given
    try:
        family, _, _, _, address = socket.getaddrinfo(master, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as s:
            s.connect(address)  # sends nothing: it only looks up the route
            return s.getsockname()[0]
    except OSError as e:
        raise RegroupError(f"no address of this machine leads to {master} ({e}): set REGROUP_ADVERTISE") from e


def local_ranks(machines: List[str], rank: int) -> Tuple[int, int]:
    """The local rank and the local size; 0, 0 if the ranks of this machine are not adjacent."""
    mine = [r for r, m in enumerate(machines) if m == machines[rank]]
    if mine[-1] - mine[0] + 1 != len(mine):
        return 0, 0
    return rank - mine[0], len(mine)


def connect(
    store, rank: int, size: int, timeout: Optional[timedelta] = None, host: Optional[str] = None
) -> Communicator:
    """Connects the ranks of a store, which must not be used with the same prefix for anything else.
    It may be called repeatedly.

    Rank 0 gathers the data of the others and publishes all of it, so that the number of requests to
    the store is linear in the number of ranks.
    """
    timeout = timeout or CONNECT_TIMEOUT
    own = Member.new(host)
    at = endpoint(own.host)
    mine = {**own._asdict(), "generation": at.generation}
    prefix = f"regroup/{store.add(f'regroup/times/{rank}', 1)}"
    store.set(f"{prefix}/{rank}", json.dumps(mine))
    if rank == 0:
        ranks = [json.loads(store.get(f"{prefix}/{r}")) for r in range(size)]
        gathered = {
            "token": secrets.token_hex(16),
            # Generations ascend at each endpoint, so that groups are not confused.
            "generation": 1 + max(r.pop("generation") for r in ranks),
            "members": ranks,
        }
        store.set(f"{prefix}/all", json.dumps(gathered))
    table = json.loads(store.get(f"{prefix}/all"))
    members = [Member(**m) for m in table["members"]]
    return _connect("c10d", table["generation"], table["token"], members, rank, timeout)


class Member(NamedTuple):
    """What others need to know of a process to connect to it. It holds as long as the process."""

    host: str  # of the endpoint
    address: str  # what others dial
    machine: str  # processes with the same can share memory
    absence: str  # why the engine cannot use a GPU; empty = it can
    id: str  # of the process, and of the group that asked

    @staticmethod
    def new(host: Optional[str] = None) -> "Member":
        """This process."""
        host = host or advertised(os.environ.get("MASTER_ADDR", "127.0.0.1"))
        return Member(host, endpoint(host).address, machine_id(), no_gpu_reason(), secrets.token_hex(8))

    def text(self) -> str:
        """One word, for Member.of."""
        return "/".join(urllib.parse.quote(part, safe=":[]") for part in self)

    @staticmethod
    def of(text: str) -> "Member":
        """The member that a text stands for."""
        parts = [urllib.parse.unquote(part) for part in text.split("/")]
        if len(parts) != len(Member._fields):
            raise InvalidArgumentError(f"no description of a process of regroup: {text!r}")
        return Member(*parts)


def connect_members(uuid: int, texts: Sequence[str], rank: int, timeout: timedelta) -> Communicator:
    """Connects processes that know each other by their texts, in the order of their ranks. All of
    them give the same uuid, which is used once."""
    members = [Member.of(text) for text in texts]
    known = f"{uuid} " + " ".join(texts)
    token = hashlib.sha256(known.encode()).hexdigest()[:32]
    return _connect(f"c10d/{token}", 1, token, members, rank, timeout)


def _connect(
    job: str, generation: int, token: str, members: Sequence[Member], rank: int, timeout: timedelta
) -> Communicator:
    local_rank, local_size = local = local_ranks([m.machine for m in members], rank)
    if os.environ.get("REGROUP_SHARED_MEMORY") == "0":  # for comparison
        local_rank, local_size = 0, 0
    comm = endpoint(members[rank].host).connect(
        job=job,
        generation=generation,
        token=token,
        rank=rank,
        world=len(members),
        peers=[m.address for m in members],
        local_rank=local_rank,
        local_size=local_size,
        connect_within_ms=max(1, int(timeout.total_seconds() * 1000)),
    )
    comm.gpus = Gpus(comm, first_reason([m.absence for m in members]), *local)
    return comm


def from_environment(rank: int, size: int) -> Communicator:
    """Connects the ranks of a launcher that sets torchrun's environment."""
    global _store
    import torch.distributed as dist

    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise RegroupError(
                f"RANK and WORLD_SIZE are set but {name} is not: which launcher is this? "
                "torchrun and regroup run set all of them"
            )
    # The same daemon serves a later init_process_group("env://") of this process.
    _store, _, _ = next(iter(dist.rendezvous("env://", rank, size, timeout=CONNECT_TIMEOUT)))
    return connect(dist.PrefixStore("regroup-hvd", _store), rank, size)
