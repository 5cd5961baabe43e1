"""torch.distributed's default group, given other members while this process stays."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from torch._C import _distributed_c10d as c10d

from ...errors import UnsupportedError
from ..c10d import features
from ..c10d.operations import BACKEND
from .store import GenerationStore

#: How long members that all live may need to connect.
MEETING = timedelta(seconds=30)


class DefaultGroup:
    """The default group, and what its backends know of it."""

    def __init__(self, backend: str):
        self._devices = _devices(backend)
        self._own = backend == BACKEND and not features.PYTHON_BACKEND  # the group is its own backend

    def _asked(self, name: str) -> List[Callable[[], Any]]:
        """This method of the backends that have it."""
        if not dist.is_initialized():
            return []
        if self._own:
            backends = [dist.group.WORLD]
        else:
            backends = [dist.group.WORLD._get_backend(torch.device(d)) for d in self._devices]
        return [getattr(b, name) for b in backends if hasattr(b, name)]

    def failed(self) -> bool:
        """Whether the backend has noticed that the group does not work any more."""
        return any(ask() != c10d.ErrorType.SUCCESS for ask in self._asked("get_error"))

    def abort(self) -> None:
        """Ends what is in progress here, where the backend can."""
        for abort in self._asked("abort"):
            abort()


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

    def connect(self, generation: int, rank: int, handles: List[str]) -> None:
        """Makes the processes with these handles the members, in the order of their ranks."""
        dist._reconfigure(generation, handles, timeout=MEETING).wait()
        distributed_c10d._world.pg_group_ranks[dist.group.WORLD] = {r: r for r in range(len(handles))}


class RenewedGroup(DefaultGroup):
    """A default group that is destroyed and initialised again, for torch before 2.14 and backends
    that cannot be reconfigured."""

    def __init__(self, backend: str, store: GenerationStore, options: Dict[str, Any]):
        super().__init__(backend)
        self._backend, self._store, self._options = backend, store, options
        dist.init_process_group(backend, store=store, rank=0, world_size=1, **options)

    def handle(self) -> str:
        """Nothing: the store connects the members."""
        return ""

    def connect(self, generation: int, rank: int, handles: List[str]) -> None:
        """Makes as many processes as there are handles the members."""
        if dist.is_initialized():
            dist.destroy_process_group()
        set_group_count(0)  # a failed initialisation leaves it, and the names of keys, higher
        within = dist.PrefixStore(str(generation), self._store)
        dist.init_process_group(self._backend, store=within, rank=rank, world_size=len(handles), **self._options)


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


def _devices(backend: str) -> List[str]:
    """The types of the devices that a backend is for: of "cpu:gloo,cuda:nccl" both."""
    if ":" in backend:
        return [part.split(":")[0] for part in backend.split(",")]
    return ["cuda"] if backend.startswith("nccl") else ["cpu"]


def group_count() -> int:
    """How many groups this process has named."""
    return distributed_c10d._world.group_count


def set_group_count(count: int) -> None:
    """Sets the number that the name of the next group is made of."""
    distributed_c10d._world.group_count = count
