"""Process sets: subsets of the ranks, with operations of their own."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Optional

from .. import _library as lib
from ..communicator import Communicator
from ..errors import InvalidArgumentError
from .world import world


class Group(NamedTuple):
    """The participants of an operation: a communicator (None: this process alone), this process's
    rank in the group, the size, and the ranks in the world (None: the same)."""

    comm: Optional[Communicator]
    rank: int
    size: int
    ranks: Optional[List[int]]

    def index(self, rank: int, what: str) -> int:
        """The rank in the group of a rank of the world."""
        ranks = range(self.size) if self.ranks is None else self.ranks
        if isinstance(rank, bool) or not isinstance(rank, int) or rank not in ranks:
            raise InvalidArgumentError(f"{what} {rank!r} is none of the ranks that take part: {list(ranks)}")
        return rank if self.ranks is None else self.ranks.index(rank)


class ProcessSet:
    """A subset of the ranks. It can be used after ``init(process_sets=[...])`` or
    ``add_process_set``.

    In elastic training the rank numbers stay, while the processes with these ranks change. Using a
    set with a rank that the world does not have is an error.
    """

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Iterable[int]):
        try:
            given = list(ranks)
        except TypeError:
            raise InvalidArgumentError(
                f"a ProcessSet is made of a list of ranks, not of a {type(ranks).__name__}"
            ) from None
        if any(isinstance(r, bool) or not isinstance(r, int) or r < 0 for r in given):
            raise InvalidArgumentError(f"a ProcessSet is made of ranks, 0 or more: {given}")
        if len(set(given)) != len(given):
            raise InvalidArgumentError(f"a ProcessSet has each rank once: {given}")
        self._ranks = sorted(given)
        self._comm: Optional[Communicator] = None
        self._entry = -1

    @property
    def ranks(self) -> List[int]:
        """The ranks, ascending."""
        return self._ranks

    def included(self) -> bool:
        """Whether this process takes part."""
        return world.initialized().rank in self.ranks

    def size(self) -> Optional[int]:
        """The number of ranks; None before the set was added."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self) -> Optional[int]:
        """The rank of this process in the set; None before the set was added, or if it does not
        take part."""
        if self.process_set_id is None or not self.included():
            return None
        return self.ranks.index(world.membership.rank)

    def group(self) -> Group:
        member, comm = world.initialized(), world.communicator
        if self.process_set_id is None:
            raise InvalidArgumentError(f"{self} was not added, or has been removed")
        if member.rank not in self.ranks:
            raise InvalidArgumentError(f"rank {member.rank} is not in {self}")
        if self.ranks[-1] >= member.size:
            raise InvalidArgumentError(f"{self} has a rank that a world of {member.size} has not")
        if comm is None:
            return Group(None, 0, 1, self.ranks)
        if self._entry != world.entries:
            self._comm = comm.subset(comm.named.number(f"set {self.ranks}"), self.ranks)
            self._entry = world.entries
        return Group(self._comm, self.ranks.index(member.rank), len(self.ranks), self.ranks)

    def close(self) -> None:
        """Drops the communicator of the set, when the generation ends."""
        if self._comm is not None and self._entry == world.entries:
            self._comm.close()
        self._comm, self._entry = None, -1

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class _GlobalProcessSet(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        super().__init__([])

    @property
    def ranks(self) -> List[int]:
        return list(range(world.initialized().size))

    def group(self) -> Group:
        comm = world.communicator
        member = world.membership
        if comm is None:
            return Group(None, 0, 1, None)
        return Group(comm, member.rank, member.size, None)

    def __repr__(self) -> str:
        return "ProcessSet(process_set_id=0, all ranks)"


#: All ranks.
global_process_set = _GlobalProcessSet()

_sets: Dict[int, ProcessSet] = {}
_last = 0  # the newest id; ids are not reused


def group_of(process_set: Any) -> Group:
    """The participants of an operation on a process set; None = all ranks."""
    if process_set is None:
        return global_process_set.group()
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgumentError(f"process_set is a {type(process_set).__name__}, not a ProcessSet")
    return process_set.group()


def add_process_set(process_set: Any) -> ProcessSet:
    """Adds a set of ranks, a ProcessSet or a list of ranks, and returns it. All ranks must call it
    with the same arguments."""
    global _last
    new = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    member = world.initialized()
    if new.process_set_id is not None:
        raise InvalidArgumentError(f"{new} was added before")
    for old in [global_process_set, *_sets.values()]:
        if old.ranks == new.ranks:
            raise InvalidArgumentError(f"{old} has these ranks already")
    if not new.ranks or new.ranks[-1] >= member.size:
        raise InvalidArgumentError(f"a process set needs ranks within 0 to {member.size - 1}: {new.ranks}")
    _agree(f"process set {new.ranks}")
    _last += 1
    new.process_set_id = _last
    _sets[_last] = new
    return new


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set; False if it does not exist. All ranks must call it with the same argument."""
    if process_set.process_set_id in (None, 0):
        return False
    _agree(f"without process set {process_set.ranks}")
    process_set.close()
    _sets.pop(process_set.process_set_id, None)
    process_set.process_set_id = None
    return True


def _agree(what: str) -> None:
    """Raises on all ranks unless their arguments are equal. A worker that joins a job in training
    has no peers to compare with."""
    if world.stage in (lib.LATE, lib.EXCLUDED):
        return
    comm = global_process_set.group().comm
    if comm is not None:
        labels = {"name": comm.named.number("process sets"), "detail": what}
        lib.wait(comm.named.broadcast(0, 0, lib.UINT8, 0, start=True, **labels))


def forget() -> None:
    """Removes all sets, when this process leaves the world."""
    for s in _sets.values():
        s.close()
        s.process_set_id = None
    _sets.clear()
