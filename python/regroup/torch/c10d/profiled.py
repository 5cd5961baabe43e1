"""Names of operations in traces of torch.profiler, as torch's own backends give them: gloo:all_reduce
is regroup:all_reduce here."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Type, TypeVar

import torch

from .operations import BACKEND

#: The operations by their methods.
NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_single_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_single_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
    "barrier": "barrier",
}

_Class = TypeVar("_Class", bound=Type[Any])


def profiled(kind: _Class) -> _Class:
    """Decorates a class of operations: while a profiler runs, each call is in its trace. Other names
    of a method, which it has had in torch before, stay names of it."""
    names = {getattr(kind, name): f"{BACKEND}:{shown}" for name, shown in NAMES.items()}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if method in names:
            setattr(kind, name, _noted(method, names[method]))
    return kind


def _noted(method: Callable, name: str) -> Callable:
    enabled = torch._C._autograd._profiler_enabled

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if not enabled():
            return method(self, *arguments, **options)
        with torch.autograd.profiler.record_function(name):
            return method(self, *arguments, **options)

    return call
