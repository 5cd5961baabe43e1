"""State, ObjectState, TorchState: the state that a worker can restore."""

from __future__ import annotations

import copy
import json
import pickle
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Set

from ...errors import RegroupError
from ...training import Training
from ..functions import broadcast_object
from ..world import allgather_bytes, world
from .engine_handlers import engine_handler_for, cannot_replace
from .state_handlers import (
    DictStateHandler,
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
    state_handler_for,
    set_handler_registry,
)
from .sampler import ElasticSampler


__all__ = [
    "DictStateHandler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]


class State:
    """The base class of states. Derive from it for a state of your own: save, restore, sync and
    maybe reset.

    Such a state is managed by its own methods, as in Horovod: ``save`` is called at each commit,
    ``restore`` after a loss, ``sync`` at the start of each generation. Then rank 0 is a survivor,
    if there is one.
    """

    def __init__(self, bcast_object: Any = None, get_rank: Any = None):
        self._reset_callbacks: List[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Adds functions that are called, without arguments, when the world has changed: to scale a
        learning rate or to rebuild a loader. They run on every rank at the start of a generation,
        also on newcomers, when the state is in sync and rank() and size() are the new ones."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Calls reset and the reset callbacks."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any = None, update_res: Any = None) -> None:
        """For compatibility: Horovod's driver calls it. Here the steps carry the notice of a
        change."""

    def commit(self) -> None:
        """Makes the state one that all ranks can restore. All must call it at the same step.

        Raises HostsUpdatedInterrupt if the members change, on all ranks at the same step and after
        saving.
        """
        training = world.training
        if training is not None:
            merge_samplers(self._samplers())
        self.save()
        if training is not None:
            if world.sampler is None and not world.consumed:
                training.consume()  # commits must differ in their step
            world.consumed = False
            training.commit()

    def check_host_updates(self) -> None:
        """Commits if the members are about to change, and raises HostsUpdatedInterrupt. All ranks
        must call it."""
        training = world.training
        if training is None:
            return
        if world.sampler is None and not world.consumed:
            training.consume()
            world.consumed = True
        if training.commit_due():
            self.commit()

    def save(self) -> None:
        """Saves the state, for restore."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores what was saved."""
        raise NotImplementedError

    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks."""
        raise NotImplementedError

    def reset(self) -> None:
        """A hook that is called when the world has changed, before the callbacks."""

    # For elastic.run.

    def _register(self, training: Training) -> None:
        """Registers the state with a training that has not begun."""
        self.save()

    def _enter(self, training: Training, lost: bool, survivor: bool) -> None:
        """Applies the state that the new generation has agreed on. survivor: this worker was in the
        previous one."""
        if lost:
            self.restore()
        with world.root_is_survivor(survivor):
            self.sync()

    def _samplers(self) -> List[ElasticSampler]:
        return []

    def _addresses(self) -> Set[int]:
        """The addresses of the tensors that a worker which joins later gets with the state."""
        return set()


def merge_samplers(samplers: List[ElasticSampler]) -> None:
    """Merges what the ranks have recorded with samplers."""
    if not samplers:
        return
    mine = json.dumps([s.progress() for s in samplers]).encode()
    reports = [json.loads(b) for b in allgather_bytes(mine)]
    for i, s in enumerate(samplers):
        s.merge([r[i] for r in reports])


class ObjectState(State):
    """A state of plain attributes, which must be picklable: ``ObjectState(epoch=0, batch=0)``.

    They are unpickled on every rank that restores, syncs or continues from a checkpoint, and
    unpickling can run any code. A checkpoint that another user owns, or may write, is refused.
    """

    if TYPE_CHECKING:  # the attributes are the caller's

        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **kwargs: Any):
        self.__dict__["_names"] = []
        self.__dict__["_saved"] = None
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            self._names.append(name)
            setattr(self, name, value)
        self._save_local()

    def _values(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _capture(self) -> Dict[str, Any]:
        return self._values()

    def _apply(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            self.__dict__[name] = value

    def _save_local(self) -> None:
        """Saves the attributes outside of elastic.run. Values that cannot be copied are referenced.
        """
        kept = {}
        for name, value in self._values().items():
            try:
                kept[name] = copy.deepcopy(value)
            except Exception:
                kept[name] = value
        self.__dict__["_saved"] = kept

    def save(self) -> None:
        """Updates what commit is about to save. It does not communicate with other ranks."""
        if world.training is not None:
            world.training.put("objects", pickle.dumps(self._capture()))
        else:
            self._save_local()

    def restore(self) -> None:
        """Returns to the last commit, on this rank; elastic.run calls it after a loss. Outside of
        elastic.run it returns to the last save, or to the initial values."""
        if world.training is not None:
            world.training.restore()
            self._apply(pickle.loads(world.training.get("objects")))
        elif self._saved is None:
            raise RegroupError(
                "there is nothing to return to: what was saved before elastic.run went over to it; save() keeps the "
                "state as it is now"
            )
        else:
            ObjectState._apply(self, copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Copies the state of rank 0 to all ranks. Within elastic.run, which has synced the state
        before it calls the training function, it does nothing."""
        if world.training is not None:
            return
        if world.communicator is not None:
            ObjectState._apply(self, broadcast_object(self._values()))
        self._save_local()

    def _register(self, training: Training) -> None:
        training.put("objects", pickle.dumps(self._capture()))
        self.__dict__["_saved"] = None

    def _enter(self, training: Training, lost: bool, survivor: bool) -> None:
        self._apply(pickle.loads(training.get("objects")))


class TorchState(ObjectState):
    """A state of models, optimizers, samplers and plain attributes::

        state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)

    Any number of each, under any name. Tensors in the host's memory are registered in place: a
    commit is one copy of memory. Other tensors are copied to the host first. Further types need a
    handler in the registry, see state_handlers.StateHandler. Plain attributes are pickled, as those
    of ObjectState.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any):
        self.__dict__["_handlers"] = {}
        self.__dict__["_engine_handlers"] = {}  # others use their own handler in elastic.run too
        given = {"model": model, "optimizer": optimizer, **kwargs}
        plain = {}
        for name, value in given.items():
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
        handler = self._handlers.get(name)
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
        self.__dict__[name] = value

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
