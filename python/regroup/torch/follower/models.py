"""The DistributedDataParallel objects of this process, which keep what they know of their group."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any, Callable, Optional

import torch
from torch.nn.parallel import DistributedDataParallel

from ...errors import UnsupportedError

#: All that were made since record, and the calls that have given each of them its communication
#: hooks.
_models: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

_HOOKS = ("register_comm_hook", "_register_builtin_comm_hook")


@functools.lru_cache(maxsize=None)  # once
def record() -> None:
    """Notes each DistributedDataParallel from here on, of which torch has no list."""
    _around("__init__", lambda model, *_: _models.setdefault(model, []))
    for name in _HOOKS:
        _around(name, lambda model, call: _models.setdefault(model, []).append(call))


def _around(name: str, note: Callable) -> None:
    """Has note called with the object and the call, before a method of the class."""
    method = getattr(DistributedDataParallel, name)

    @functools.wraps(method)
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self, (method, args, kwargs))
        return method(self, *args, **kwargs)

    setattr(DistributedDataParallel, name, noted)


def check(group: Any) -> None:
    """Checks that all of them are over this group, the default one."""
    if _all_over(group):
        return
    gc.collect()  # what the function has made in the generation before may be in cycles
    if not _all_over(group):
        raise UnsupportedError(
            "a DistributedDataParallel over another group than the default one does not outlive a "
            "change of the members: make it, and its group, in the function that elastic.run calls"
        )


def _all_over(group: Any) -> bool:
    return all(getattr(model, "process_group", group) is group for model in list(_models))


def gpu() -> Optional[torch.device]:
    """The one GPU that all of them are on; None if they are on several, or on none."""
    found = {parameter.device for model in list(_models) for parameter in model.module.parameters()}
    device = found.pop() if len(found) == 1 else None
    return device if device is not None and device.type == "cuda" else None


def renew() -> None:
    """Gives each of them a new reducer, over the default group.

    The old one may be amidst a backward pass that was cut off, and has its gradients in the order
    that its group has agreed on after the first step. A newcomer has not: gradients of parameters
    of the same size would be exchanged for each other, without an error. A new one begins alike
    everywhere.
    """
    for model, hooks in list(_models.items()):
        old = model.__dict__.get("reducer")
        if old is None:  # its making has failed
            continue
        old._remove_autograd_hooks()
        del model.reducer, model.logger, old
        model.__setstate__({})  # as after pickling: makes a reducer
        model._has_rebuilt_buckets = False
        for method, args, kwargs in hooks:
            listed = list(getattr(model, "_comm_hooks", []))  # torch's own list has it already
            method(model, *args, **kwargs)
            if listed:
                model._comm_hooks[:] = listed
        if model.mixed_precision is not None:
            model.reducer._set_mixed_precision_param_dtype(model.mixed_precision.param_dtype)
        if any(hasattr(p, "_in_backward_optimizers") for p in model.module.parameters()):
            model.reducer._set_optimizer_in_backward()
