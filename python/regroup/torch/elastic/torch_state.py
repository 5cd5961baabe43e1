"""TorchState: a state of models, optimizers and samplers."""

from __future__ import annotations

from typing import Any, Dict, List, Set

import torch

from ...errors import RegroupError, UnsupportedError
from ...training import Training
from .. import replicas
from ..world import world
from .engine_handlers import cannot_replace, engine_handler_for
from .object_state import ObjectState
from .sampler import ElasticSampler
from .state_handlers import StateHandler, state_handler_for


class TorchState(ObjectState):
    """A state of models, optimizers, samplers and plain attributes::

        state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)

    Any number of each, under any name. Tensors in the host's memory are registered in place: a
    commit is one copy of memory. Other tensors are copied to the host first. Further types need a
    handler in the registry, see state_handlers.StateHandler. Plain attributes are pickled, as those
    of ObjectState.

    All of it is a replica, the same on all ranks. A model that is sharded (fully_shard, a DTensor,
    FullyShardedDataParallel), an optimizer of which each rank has a part (ZeroRedundancyOptimizer),
    and tensors that are more than their bytes are an UnsupportedError, when they are given to the
    state or at the next commit. What is kept is settled when elastic.run begins.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any):
        self.__dict__["_handlers"] = {}
        self.__dict__["_engine_handlers"] = {}  # others use their own handler in elastic.run too
        given = {"model": model, "optimizer": optimizer, **kwargs}
        plain = {}
        for name, value in given.items():
            replicas.check_whole(name, value)
            handler = state_handler_for(value)
            if handler is not None:
                self._set_handler(name, handler)
                self.__dict__[name] = value
            elif value is not None or name in kwargs:
                plain[name] = value
        super().__init__(**plain)

    def _set_handler(self, name: str, handler: StateHandler) -> None:
        self._handlers[name] = handler
        engine_handler = engine_handler_for(handler, name)
        if engine_handler is not None:
            self._engine_handlers[name] = engine_handler

    def _self_managed(self) -> List[StateHandler]:
        """The handlers that are used within elastic.run too."""
        return [h for name, h in sorted(self._handlers.items()) if name not in self._engine_handlers]

    def __setattr__(self, name: str, value: Any) -> None:
        replicas.check_whole(name, value)
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None and value is not handler.value:
            if name not in self._engine_handlers:
                handler.set_value(value)
            elif world.training is not None:
                raise cannot_replace(name, handler.value, value)
            else:
                fresh = state_handler_for(value)
                if fresh is None:
                    kind = type(handler.value).__name__
                    raise RegroupError(f"{name} is a {kind}, and must stay one")
                self._set_handler(name, fresh)
        elif handler is None and not name.startswith("_") and name not in self._names:
            self._adopt(name, value)
        self.__dict__[name] = value

    def _adopt(self, name: str, value: Any) -> None:
        """Makes a value that was not named when the state was made a part of it, if it is of a kind
        that has a handler."""
        handler = state_handler_for(value)
        if handler is None:
            return
        if world.training is not None:
            raise UnsupportedError(
                f"state.{name} is new: what a state keeps is settled when elastic.run begins, so give it to the state "
                f"when that is made, TorchState({name}=...)"
            )
        self._set_handler(name, handler)

    def _parts(self) -> Dict[str, Any]:
        kept = {name: handler.capture() for name, handler in self._engine_handlers.items()}
        return {**super()._parts(), **kept}

    def _tracked(self) -> List[torch.Tensor]:
        kept: List[torch.Tensor] = []
        for handler in self._handlers.values():
            if isinstance(handler.value, torch.nn.Module):
                kept += handler.value.parameters()
            elif isinstance(handler.value, torch.optim.Optimizer):
                states = [e for e in handler.value.state.values() if isinstance(e, dict)]
                kept += [v for e in states for v in e.values() if torch.is_tensor(v)]
        return kept

    def _capture(self) -> Dict[str, Any]:
        return {"values": self._values(), "kept": {n: h.capture() for n, h in self._engine_handlers.items()}}

    def _apply(self, values: Dict[str, Any]) -> None:
        super()._apply(values["values"])
        for name, kept in values["kept"].items():
            self._engine_handlers[name].apply(kept)

    def save(self) -> None:
        """See ObjectState.save."""
        for handler in self._self_managed() if world.training is not None else self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """See ObjectState.restore."""
        for handler in self._self_managed() if world.training is not None else self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """See ObjectState.sync."""
        if world.training is None:
            for _, handler in sorted(self._handlers.items()):
                handler.sync()
        super().sync()

    def _register(self, training: Training) -> None:
        for engine_handler in self._engine_handlers.values():
            engine_handler.register(training)
        for name, handler in self._handlers.items():
            if name in self._engine_handlers:
                handler.forget()
            else:
                handler.save()
        super()._register(training)

    def _enter(self, training: Training, lost: bool, survivor: bool) -> None:
        super()._enter(training, lost, survivor)
        managed = self._self_managed()
        if not managed:
            return
        if lost:
            for handler in managed:
                handler.restore()
        with world.root_is_survivor(survivor):
            for handler in managed:
                handler.sync()

    def _samplers(self) -> List[ElasticSampler]:
        return [h.value for h in self._handlers.values() if isinstance(h.value, ElasticSampler)]

    def _addresses(self) -> Set[int]:
        return {a for h in self._engine_handlers.values() for a in getattr(h, "addresses", set)()}
