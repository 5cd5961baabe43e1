"""State, ObjectState, TorchState: what a worker can return to."""

from __future__ import annotations

import pickle
from typing import Any, Callable, Dict, List

from ...errors import RegroupError
from ...training import Training
from ..functions import broadcast_object
from ..world import world
from .handlers import handler_for, unlike
from .sampler import ElasticSampler


class State:
    """What all states have. Derive from it for a state of your own: save, restore, sync and maybe reset.

    Such a state is kept by its own methods, in Horovod's way: ``save`` at each commit, ``restore`` after a loss,
    ``sync`` (from rank 0, who has been here longest) at the begin of each generation.
    """

    def __init__(self, bcast_object: Any = None, get_rank: Any = None):
        self._reset_callbacks: List[Callable[[], None]] = []

    def register_reset_callbacks(self, callbacks: List[Callable[[], None]]) -> None:
        """Adds functions that are called, without arguments, when the world has changed: to scale a learning rate or to
        build a loader again. They run on every rank at the begin of a generation, newcomers too, when the state is in
        sync and rank() and size() are the new ones."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Runs what has to be done when the world has changed."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: Any = None, update_res: Any = None) -> None:
        """Horovod's driver calls it; here the news of a change travel with the steps."""

    def commit(self) -> None:
        """Makes the state one that all ranks can return to. All must call it at the same step.

        Raises HostsUpdatedInterrupt, on all ranks at the same step and after having saved, if the members change.
        """
        self.save()
        training = world.training
        if training is not None:
            if not world.consumed:
                training.consume(0)  # a step without an account: commits must differ in their step
            world.consumed = False
            training.commit()

    def check_host_updates(self) -> None:
        """Commits if the members are about to change, and raises HostsUpdatedInterrupt. All ranks must call it."""
        training = world.training
        if training is None:
            return
        if not world.consumed:
            training.consume(0)
            world.consumed = True
        if training.commit_due():
            self.commit()

    def save(self) -> None:
        """Keeps the state, for restore."""
        raise NotImplementedError

    def restore(self) -> None:
        """Returns to what was kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of rank 0."""
        raise NotImplementedError

    def reset(self) -> None:
        """Hook for what must be done when the world has changed, before the callbacks."""

    # What elastic.run needs.

    def _register(self, training: Training) -> None:
        """Makes everything part of the state of a training that has not begun."""

    def _enter(self, training: Training, lost: bool) -> None:
        """Takes what the generation that begins has agreed on."""
        if lost:
            self.restore()
        self.sync()

    def _samplers(self) -> List[ElasticSampler]:
        return []


class ObjectState(State):
    """A state of plain attributes, which must be picklable: ``ObjectState(epoch=0, batch=0)``."""

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **kwargs: Any):
        self.__dict__["_names"] = []
        self.__dict__["_saved"] = None
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            self._names.append(name)
            setattr(self, name, value)

    def _collect(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def _spread(self, values: Dict[str, Any]) -> None:
        for name, value in values.items():
            self.__dict__[name] = value

    def save(self) -> None:
        """Brings what commit is about to make permanent up to date. By itself it promises nothing to other ranks."""
        values = pickle.dumps(self._collect())
        if world.training is not None:
            world.training.put("objects", values)
        else:
            self.__dict__["_saved"] = values

    def restore(self) -> None:
        """Returns to the last commit, on this rank; elastic.run does it after a loss."""
        if world.training is not None:
            world.training.restore()
            self._enter(world.training, lost=False)
        elif self._saved is not None:
            self._spread(pickle.loads(self._saved))

    def sync(self) -> None:
        """Gives all ranks the state of rank 0. elastic.run has done it, by what each member holds, before it calls the
        training function; it is for scripts that run without."""
        if world.training is None and world.communicator is not None:
            self._spread(broadcast_object(self._collect()))

    def _register(self, training: Training) -> None:
        training.put("objects", pickle.dumps(self._collect()))

    def _enter(self, training: Training, lost: bool) -> None:
        self._spread(pickle.loads(training.get("objects")))


class TorchState(ObjectState):
    """A state of models, optimizers, samplers and plain attributes::

        state = TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0, batch=0)

    Any number of each, under any name. Tensors in the host's memory are kept where they are: a commit is one copy of
    memory. Tensors elsewhere are copied to the host first.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any):
        self.__dict__["_handlers"] = {}
        given = {"model": model, "optimizer": optimizer, **kwargs}
        plain = {}
        for name, value in given.items():
            handler = handler_for(value, name)
            if handler is not None:
                self._handlers[name] = handler
                self.__dict__[name] = value
            elif value is not None or name in kwargs:
                plain[name] = value
        super().__init__(**plain)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self._handlers.get(name)
        if handler is not None and value is not handler.value:
            if world.training is not None:
                raise unlike(name, handler.value, value)
            fresh = handler_for(value, name)
            if fresh is None:
                raise RegroupError(f"{name} is a {type(handler.value).__name__}, and must stay one")
            self._handlers[name] = fresh
        self.__dict__[name] = value

    def _collect(self) -> Dict[str, Any]:
        values = super()._collect()
        return {"values": values, "kept": {n: h.take() for n, h in self._handlers.items()}}

    def _spread(self, values: Dict[str, Any]) -> None:
        super()._spread(values["values"])
        for name, kept in values["kept"].items():
            self._handlers[name].give(kept)

    def _register(self, training: Training) -> None:
        for handler in self._handlers.values():
            handler.register(training)
        super()._register(training)

    def _samplers(self) -> List[ElasticSampler]:
        return [h.value for h in self._handlers.values() if isinstance(h.value, ElasticSampler)]

    def sync(self) -> None:
        """See ObjectState.sync."""
        if world.training is not None or world.communicator is None:
            return
        from ..functions import broadcast_optimizer_state, broadcast_parameters
        from .handlers import ModelHandler, OptimizerHandler

        for name, handler in sorted(self._handlers.items()):
            if isinstance(handler, ModelHandler):
                broadcast_parameters(handler.value.state_dict())
            elif isinstance(handler, OptimizerHandler):
                broadcast_optimizer_state(handler.value)
            else:
                handler.value.load_state_dict(broadcast_object(handler.value.state_dict()))
        super()._spread(broadcast_object(super()._collect()))
