"""torch.distributed's default group, given other members while this process stays."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from torch._C import _distributed_c10d as c10d

from ...errors import StuckError, UnsupportedError
from ..c10d import features
from ..c10d.operations import BACKEND
from . import ending
from .store import GenerationStore

#: How long members that all live may need to connect.
MEETING = timedelta(seconds=30)


class DefaultGroup:
    """The default group, and what its backends know of it."""

    def __init__(self, backend: str):
        self._own = backend == BACKEND  # ends within milliseconds, on the thread that asks for it
        self.stuck: Callable[[StuckError], None] = lambda error: None  # called if groups do not end
        self._ending: Optional[ending.Ending] = None  # of the groups that torch knows

    def failed(self) -> bool:
        """Whether the backend has noticed that the group does not work any more."""
        if not dist.is_initialized():
            return False
        asked = [b.get_error for b in ending.backends(dist.group.WORLD) if hasattr(b, "get_error")]
        return any(ask() != c10d.ErrorType.SUCCESS for ask in asked)

    def abort(self) -> None:
        """Begins to end what is in progress here, where the backends can."""
        raise NotImplementedError

    def leave(self, generation: int) -> List[ending.Ending]:
        """Has torch forget the groups of the generation before this one, but what this one goes on with.
        Returns those that go on ending."""
        raise NotImplementedError


class ReconfiguredGroup(DefaultGroup):
    """A default group that is one object for good, since torch 2.14."""

    def __init__(self, backend: str, store: GenerationStore, options: Dict[str, Any]):
        super().__init__(backend)
        dist.init_process_group(backend, store=store, rank=0, world_size=1, enable_reconfigure=True, **options)
        if not _can_be_reconfigured():
            dist.destroy_process_group()
            raise UnsupportedError(f"{backend} cannot be reconfigured")
        # A handle holds the number of the group before, which tells newcomers apart.
        self.connect(secrets.randbits(62) | 1 << 61, 0, [self.handle()])

    def handle(self) -> str:
        """What the others need to connect to this process."""
        return dist._get_reconfigure_handle()

    def abort(self) -> None:
        """Begins to abort all groups; of the default one that is little: it goes on."""
        if self._own:
            ending.abort(dist.group.WORLD)
        else:
            self._ending = ending.Ending(ending.current(), True, self.stuck)

    def leave(self, generation: int) -> List[ending.Ending]:
        """Waits until all are aborted, and destroys those beside the default one."""
        last, self._ending = self._ending, None
        if last is not None:
            last.wait_aborted()
        for other in ending.current():
            if other is not dist.group.WORLD:
                with suppress(RuntimeError, ValueError):  # it is of no use to anybody, whatever state it is in
                    dist.destroy_process_group(other)
        if last is None:
            return []
        last.groups = []  # torch has shut them down
        last.release(generation)
        return [last]

    def connect(self, generation: int, rank: int, handles: List[str]) -> None:
        """Makes the processes with these handles the members, in the order of their ranks."""
        dist._reconfigure(generation, handles, timeout=MEETING).wait()
        distributed_c10d._world.pg_group_ranks[dist.group.WORLD] = {r: r for r in range(len(handles))}

    def open(self, device: Optional[torch.device]) -> None:
        """Nothing: it is connected."""


class RenewedGroup(DefaultGroup):
    """A default group that is forgotten and initialised again, for torch before 2.14 and backends
    that cannot be reconfigured."""

    def __init__(self, backend: str, store: GenerationStore, options: Dict[str, Any]):
        super().__init__(backend)
        self._backend, self._store, self._options = backend, store, options
        dist.init_process_group(backend, store=store, rank=0, world_size=1, **options)

    def handle(self) -> str:
        """Nothing: the store connects the members."""
        return ""

    def abort(self) -> None:
        """Begins to abort all groups."""
        if self._own and dist.is_initialized():
            ending.abort(dist.group.WORLD)
        elif not self._own:
            self._ending = ending.Ending(ending.current(), True, self.stuck)

    def leave(self, generation: int) -> List[ending.Ending]:
        """Leaves the groups to threads, on which they end beside what follows."""
        last, self._ending = self._ending, None
        ends = [] if last is None else [last]
        if dist.is_initialized() and self._own:
            dist.destroy_process_group()
        elif dist.is_initialized():
            rest = [group for group in ending.current() if last is None or group not in last.groups]
            if rest:  # made since, or nothing has failed
                ends.append(ending.Ending(rest, last is not None, self.stuck))
            ending.forget()
        for one in ends:
            one.release(generation)
        return ends

    def connect(self, generation: int, rank: int, handles: List[str]) -> None:
        """Makes as many processes as there are handles the members."""
        set_group_count(0)  # a failed initialisation leaves it, and the names of keys, higher
        within = dist.PrefixStore(str(generation), self._store)
        dist.init_process_group(self._backend, store=within, rank=rank, world_size=len(handles), **self._options)

    def open(self, device: Optional[torch.device]) -> None:
        """Has the backend of a GPU connect the members now, for operations on this one, which it would do in the
        first of them otherwise. None = it is left to that. All members call it alike."""
        if device is None or self._options.get("device_id") is not None:  # for which torch has done it
            return
        backend = dist.group.WORLD._get_backend(device)
        if hasattr(backend, "eager_connect_single_device"):
            backend.eager_connect_single_device(device)


def create(backend: str, store: GenerationStore, options: Dict[str, Any]) -> Any:
    """Initialises the default group, with this process alone."""
    if features.RECONFIGURE:
        try:
            return ReconfiguredGroup(backend, store, options)
        except RuntimeError:  # another reason is that of the second attempt, too
            set_group_count(0)
    return RenewedGroup(backend, store, options)


def _can_be_reconfigured() -> bool:
    try:
        return dist._supports_reconfigure()
    except RuntimeError:  # the group has several backends
        return False


def group_count() -> int:
    """How many groups this process has named."""
    return distributed_c10d._world.group_count


def set_group_count(count: int) -> None:
    """Sets the number that the name of the next group is made of."""
    distributed_c10d._world.group_count = count
