"""The process group for torch since 2.14: who is in it, and under which ranks. Operations are those
of the backend that it holds.

torch has no way to change the rank and the size of a Backend that is written in Python; it asks a
group that is for them each time.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, List, Set, Union

import torch
import torch.distributed as dist

from ...errors import InvalidArgumentError, UnsupportedError
from .. import rendezvous
from .backend import Backend, DispatchedCompletedWork, Options
from .operations import BACKEND
from .profiled import NAMES


class Group(dist.ProcessGroup):
    """A group whose members can change while its processes stay."""

    def __init__(self, opts: Any, backend: Backend):
        super().__init__(opts.store, opts.group_rank, opts.group_size)
        self._inner, self._handle = backend, ""
        self._used: Set[int] = set()
        kind = dist.ProcessGroup.BackendType.CUSTOM
        for device in ("cpu", "cuda"):
            self._register_backend(torch.device(device), kind, backend)
        self._set_default_backend(kind)

    def getBackendName(self) -> str:
        return BACKEND

    def getRank(self) -> int:
        return self._inner.rank()

    def getSize(self) -> int:
        return self._inner.size()

    supports_reconfigure = property(lambda self: True)

    def get_reconfigure_handle(self) -> str:
        """What the others need to reach this process. It is the same as long as the group exists."""
        if not self._handle:
            self._handle = f"{BACKEND}:{rendezvous.Member.new().text()}"
        return self._handle

    def reconfigure(self, opts: Any) -> Any:
        """Connects the members with these handles, in their order if it is a list; all of them call
        it, with a uuid that was not used before. After an error the group is as it was."""
        given = rendezvous.take()
        if given is not None:
            self._inner.reconnect(given)
            return DispatchedCompletedWork([])
        handles = list(opts.handles) if isinstance(opts.handles, list) else sorted(opts.handles)
        own = self.get_reconfigure_handle()
        self._check(opts.uuid, handles, own)
        texts = [handle[len(BACKEND) + 1 :] for handle in handles]
        timeout = opts.timeout if opts.timeout is not None else self._inner._timeout
        comm = rendezvous.connect_members(opts.uuid, texts, handles.index(own), timeout)
        self._used.add(opts.uuid)
        self._inner.reconnect(comm)
        return DispatchedCompletedWork([])

    def _check(self, uuid: int, handles: List[str], own: str) -> None:
        if uuid in self._used:
            raise RuntimeError(
                f"{BACKEND}: reconfigure uuid {uuid} was already used; each reconfigure() requires a unique uuid"
            )
        if not handles:
            raise InvalidArgumentError("reconfigure requires at least one handle")
        if len(set(handles)) != len(handles):
            raise InvalidArgumentError("reconfigure handles must be unique")
        for handle in handles:
            if not handle.startswith(BACKEND + ":"):
                raise InvalidArgumentError(f"invalid reconfigure handle: {handle!r}")
        if own not in handles:
            raise InvalidArgumentError(f"the handle of this process, {own}, is not one of the new group's")


def _dispatch(name: str) -> Callable[..., Any]:
    """An operation for callers in Python: through torch's dispatcher, and back to the Work that the
    backend made. What the dispatcher returns in its place has only wait and get_future."""
    method = getattr(dist.ProcessGroup, name)

    @functools.wraps(method)
    def call(self: Group, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(method(self, *arguments, **options))

    # C++ calls the override again unless the calling code has this name.
    call.__code__ = call.__code__.replace(co_name=name)
    return call


for _name in NAMES:
    setattr(Group, _name, _dispatch(_name))


def _beside_others() -> bool:
    """Whether torch is making a group with several backends, such as "cpu:regroup,cuda:nccl". A Group
    takes the place of all of them. What a backend is made with does not say it; the function that
    calls for it has it in a variable."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = None if frame is None else frame.f_locals.get("backend_config")
    return config is not None and len(set(config.get_device_backend_map().values())) > 1


def create_group(opts: Any, options: Any) -> Union[Group, Backend]:
    """Creates a group for torch, which gives its own options, and the caller's or None; or one of the
    backends of a group."""
    options, beside = options or Options(BACKEND, opts.timeout), _beside_others()
    if opts.enable_reconfigure and beside:
        raise UnsupportedError("enable_reconfigure: a group with several backends cannot be reconfigured")
    comm = None
    if not opts.enable_reconfigure:
        comm = rendezvous.connect(opts.store, opts.group_rank, opts.group_size, opts.timeout)
    backend = Backend(opts.store, comm, opts.group_rank, opts.group_size, options)
    return backend if beside else Group(opts, backend)
