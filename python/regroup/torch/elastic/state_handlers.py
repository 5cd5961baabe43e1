"""Horovod's state handlers: they manage the parts of a TorchState outside of elastic.run, and
user-defined ones everywhere."""

from __future__ import annotations

import copy
from typing import Any, List, Optional, Tuple

import torch

from ...errors import RegroupError
from ..functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .object_state import NOTHING_SAVED, merge_samplers
from .sampler import ElasticSampler


class StateHandler:
    """Saves and restores one part of a state. Derive from it, or from one of those below, and
    register the class::

        class TableHandler(StateHandler):
            def save(self): self._saved = self.value.copy()
            def restore(self): self.value.replace(self._saved)
            def sync(self): self.value.replace(hvd.broadcast_object(self.value.rows(), root_rank=0))

        registry = get_handler_registry()
        registry.insert(0, (Table, TableHandler))
        set_handler_registry(registry)

    Within elastic.run ``save`` is called at each commit, ``restore`` after a loss, and ``sync`` at
    the start of each generation, on all ranks. Then rank 0 is a survivor, if there is one.
    """

    def __init__(self, value: Any):
        self.value = value

    def save(self) -> None:
        """Saves the value, on this rank."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores what was saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies the value of rank 0 to all ranks."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        self.value = value
        self.save()


class _CopyHandler(StateHandler):
    """Saves a copy of a state_dict."""

    def __init__(self, value: Any):
        super().__init__(value)
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        if self._saved is None:
            raise RegroupError(NOTHING_SAVED)
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), 0))
        self.save()

    def forget(self) -> None:
        """Drops the copy: elastic.run has its own."""
        self._saved = None


class ModelStateHandler(_CopyHandler):
    """Handles a torch.nn.Module."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(_CopyHandler):
    """Handles an optimizer."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(_CopyHandler):
    """Handles an ElasticSampler: merges what all ranks have recorded."""

    def sync(self) -> None:
        merge_samplers([self.value])
        super().sync()


class DictStateHandler(_CopyHandler):
    """Handles anything else with a state_dict: schedulers, gradient scalers."""


_registry: List[Tuple[type, type]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> List[Tuple[type, type]]:
    """The handlers by type; the first that matches is used."""
    return _registry


def set_handler_registry(registry: List[Tuple[type, type]]) -> None:
    """Sets the registry that new states use."""
    global _registry
    _registry = list(registry)


def state_handler_for(value: Any) -> Optional[StateHandler]:
    """A handler for a value; None if it is an ordinary object."""
    for kind, make in _registry:
        if isinstance(value, kind):
            if make is OptimizerStateHandler and saves_its_own_way(value):
                return DictStateHandler(value)
            return make(value)
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return DictStateHandler(value)
    return None


def saves_its_own_way(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the state of an optimizer may be more than its attributes ``state`` and
    ``param_groups``, like that of one that wraps another: then its state_dict is kept as it is."""
    kinds = type(optimizer).__mro__
    own = kinds[: kinds.index(torch.optim.Optimizer)]
    return any("state_dict" in vars(k) or "load_state_dict" in vars(k) for k in own)
