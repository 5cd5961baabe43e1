"""Names of operations in traces of torch.profiler, as torch's own backends give them: gloo:all_reduce
is regroup:all_reduce here."""

from __future__ import annotations

import functools
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

#: Names that methods have had before.
_OLD_NAMES = {
    "_allgather_base": "all_gather_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "_reduce_scatter_base": "reduce_scatter_single",
    "reduce_scatter_tensor": "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
    "alltoall_base": "all_to_all_single",
}

_Class = TypeVar("_Class", bound=Type[Any])


def profiled(kind: _Class) -> _Class:
    """Decorates a class of operations: while a profiler runs, each call is in its trace."""
    for method, name in NAMES.items():
        setattr(kind, method, _noted(getattr(kind, method), f"{BACKEND}:{name}"))
    for old, method in _OLD_NAMES.items():
        if hasattr(kind, old):
            setattr(kind, old, getattr(kind, method))
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
