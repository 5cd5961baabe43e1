"""TorchState: a state of models, optimizers and samplers."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch
import torch.distributed as dist

from ...errors import HostsUpdatedInterrupt, RegroupError, UnsupportedError
from ...training import Training
from .. import replicas
from ..world import world
from .live import LiveCommits
from .model_handler import ModelHandler
from .object_state import ObjectState
from .optimizer_handler import OptimizerHandler
from .overlapped import OverlappedCommits
from .registered import RegisteredTensor, bring
from .sampler import ElasticSampler
from .sharded import Build, ShardedParts
from .state_handlers import (
    DictStateHandler,
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    state_handler_for,
)


class DictHandler:
    """The engine's handler of anything with a state_dict, like the position of a sampler."""

    def __init__(self, value: Any, name: str):
        self.value = value

    def register(self, training: Training) -> None:
        """Does nothing: it has no tensors."""

    def capture(self) -> Any:
        """Returns what is saved as an object."""
        return self.value.state_dict()

    def apply(self, kept: Any) -> None:
        self.value.load_state_dict(kept)


#: The engine's handlers, which are used within elastic.run, by those outside: memory that the C
#: library reads and writes in place. User-defined handlers are used in both.
_ENGINE_HANDLERS: Dict[type, Callable[[Any, str], Any]] = {
    ModelStateHandler: ModelHandler,
    OptimizerStateHandler: OptimizerHandler,
    SamplerStateHandler: DictHandler,
    DictStateHandler: DictHandler,
}


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

    Models of which each rank has parts are made by a function, in each generation anew::

        def build(fresh):
            mesh = init_device_mesh("cpu", (dist.get_world_size(),))
            model = fully_shard(Net(), mesh=mesh)
            return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}

        state = TorchState(build=build, copies=1, steps=0)

    ``state.model`` and ``state.optimizer`` are what it has returned last. Their tensors, DTensors
    and others, are filled from the last commit, whichever ranks have had which parts. fresh is True
    until there is a commit of a step: what build puts into them may count. ``copies`` other ranks,
    one if it is not given, keep a copy of each part, on other nodes if there are some: so many ranks
    may be lost at once. With ``parity=k`` instead, groups of k+1 ranks keep parity for each other, in
    1/k of the memory of a copy: one rank of each may be lost.

    ``commit_mode`` is "live" or "copied", with build "overlapped" or "copied": what commits copy while
    the program waits. It is chosen by itself if it is left out; describe() says how.
    """

    def __init__(
        self,
        model: Any = None,
        optimizer: Any = None,
        build: Optional[Build] = None,
        copies: Optional[int] = None,
        commit_mode: Optional[str] = None,
        parity: Optional[int] = None,
        **kwargs: Any,
    ):
        if build is None:  # they are attributes like any other
            kwargs.update({name: n for name, n in (("copies", copies), ("parity", parity)) if n is not None})
        self.__dict__["_handlers"] = {}
        self.__dict__["_sharded"] = None if build is None else ShardedParts(build, copies, parity or 0)
        self.__dict__["_commits"] = LiveCommits(commit_mode) if build is None else OverlappedCommits(commit_mode)
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

    def describe(self) -> str:
        """What commits copy in elastic.run, and why."""
        return self._commits.describe()

    def _make(self, fresh: bool, place: Optional[Tuple[int, int]] = None) -> None:
        """Has the models and optimizers made that are sharded."""
        before = self._values()
        self._sharded.make(fresh, place)
        for name, value in self._values().items():
            if value is not before[name]:
                raise UnsupportedError(
                    f"build has set state.{name}, and what that is comes from the last commit afterwards: set it before "
                    "elastic.run, or where the training function begins"
                )
        for name, value in self._sharded.made.items():
            if name in self._handlers or name in self._names:
                raise RegroupError(f"build has returned {name}, which was given to the state as well")
            self.__dict__[name] = value

    def _arrange(self, training: Training) -> None:
        """Makes and registers what this rank has in a generation."""
        for name in self._sharded.made:
            self.__dict__.pop(name, None)  # so that its memory is free before
        self._make(world.step == 0, (world.membership.rank, world.membership.size))
        self._sharded.register(training)

    def _set_handler(self, name: str, handler: StateHandler) -> None:
        self._handlers[name] = handler
        make = _ENGINE_HANDLERS.get(type(handler))
        if make is not None:
            self._engine_handlers[name] = make(handler.value, name)

    def _used(self, training: bool) -> List[StateHandler]:
        """The handlers that are used; within elastic.run those without an engine's handler."""
        return [h for name, h in sorted(self._handlers.items()) if not (training and name in self._engine_handlers)]

    def __setattr__(self, name: str, value: Any) -> None:
        replicas.check_whole(name, value)
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None and value is not handler.value:
            if name not in self._engine_handlers:
                handler.set_value(value)
            elif world.training is not None:
                raise RegroupError(
                    f"{name} cannot be replaced while training: its tensors are registered "
                    f"({type(handler.value).__name__} by {type(value).__name__}); load its state_dict instead"
                )
            else:
                fresh = state_handler_for(value)
                if fresh is None:
                    raise RegroupError(f"{name} is a {type(handler.value).__name__}, and must stay one")
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
        kept: List[torch.Tensor] = [] if self._sharded is None else self._sharded.tracked()
        for handler in self._handlers.values():
            if isinstance(handler.value, torch.nn.Module):
                kept += handler.value.parameters()
            elif isinstance(handler.value, torch.optim.Optimizer):
                states = [e for e in handler.value.state.values() if isinstance(e, dict)]
                kept += [v for e in states for v in e.values() if torch.is_tensor(v)]
        return kept

    def _capture(self) -> Dict[str, Any]:
        kept = {n: h.capture() for n, h in self._engine_handlers.items()}
        bring(t for t in self._registered() if not (t.live and self._commits.stay))
        if self._sharded is None:
            return {"values": self._values(), "kept": kept}
        return {"values": self._values(), "kept": kept, "sharded": self._sharded.capture(self._commits.overlaps)}

    def _apply(self, values: Dict[str, Any]) -> None:
        super()._apply(values["values"])
        if self._sharded is not None:
            self._sharded.apply(values["sharded"])
        for name, kept in values["kept"].items():
            self._engine_handlers[name].apply(kept)

    def save(self) -> None:
        for handler in self._used(world.training is not None):
            handler.save()
        super().save()

    def restore(self) -> None:
        if world.training is None and self._sharded is not None and self._sharded.made:
            raise UnsupportedError(
                f"what build has made ({', '.join(self._sharded.made)}) is not kept without a job of regroup: load a checkpoint"
            )
        if world.training is not None:
            self._commits.restore(world.training)
        for handler in self._used(world.training is not None):
            handler.restore()
        super().restore()

    def sync(self) -> None:
        if world.training is None and self._sharded is not None and not self._sharded.made:
            self._make(True)
        if world.training is None:
            for handler in self._used(False):
                handler.sync()
        super().sync()

    def _register(self, training: Training) -> None:
        if self._sharded is not None:
            training.sharded(self._sharded.copies, self._sharded.parity)
            self._commits.begin(self._sharded)
        for engine_handler in self._engine_handlers.values():
            engine_handler.register(training)
        for name, handler in self._handlers.items():
            if name in self._engine_handlers:
                handler.forget()
            else:
                handler.save()
        super()._register(training)
        if self._sharded is None:
            self._begin_live(self._commits, training)

    def _begin_live(self, live: LiveCommits, training: Training) -> None:
        """Finds out whether commits may be live."""
        size = 0
        handlers = [h for h in self._engine_handlers.values() if isinstance(h, (ModelHandler, OptimizerHandler))]
        if len(self._engine_handlers) < len(self._handlers):
            live.never = live.never or "a handler that saves in a way of its own saves at each commit"
        elif not live.wanted and any(t.device.type != "cpu" for t in self._tracked()):
            live.never = live.never or "tensors are in the memory of a GPU, for which commit_mode='live' asks for it"
        elif not live.wanted and _foreign_backend():
            live.never = live.never or f"operations of the backend {dist.get_backend()} before a commit cannot be seen"
        if live.never is None:
            size = sum(h.set_live(training) for h in handlers)
        optimizers = [h.value for h in handlers if isinstance(h, OptimizerHandler)]
        live.begin(training, [t for t in self._registered() if t.live], size, optimizers, self._tell_difference)

    def _registered(self) -> Iterator[RegisteredTensor]:
        """The tensors in registered memory that are no parts of a sharded state."""
        handlers = self._engine_handlers.values()
        return (t for h in handlers if isinstance(h, (ModelHandler, OptimizerHandler)) for t in h.registered())

    def _enter(self, training: Training, lost: bool, survivor: bool) -> None:
        super()._enter(training, lost, survivor)
        self._commits.enter()
        managed = self._used(True)
        if not managed:
            return
        if lost:
            for handler in managed:
                handler.restore()
        with world.root_is_survivor(survivor):
            for handler in managed:
                handler.sync()

    def _before_commit(self) -> None:
        self._commits.before()

    def _commit(self, training: Training) -> None:
        try:
            self._commits.commit(training, self._samplers())
        except HostsUpdatedInterrupt:  # it has committed
            self._parts_committed()
            raise
        self._parts_committed()
        for sampler in self._samplers():
            sampler.committed()

    def _parts_committed(self) -> None:
        if self._sharded is not None:
            self._sharded.committed()

    def _commit_alone(self, training: Training) -> None:
        self._commits.commit_alone(training, self._samplers(), self.save)

    def _returned(self) -> None:
        made = {} if self._sharded is None else self._sharded.made
        for value in [*(h.value for h in self._handlers.values()), *made.values()]:
            if hasattr(type(value), "training_ended"):
                value.training_ended()

    def _leaves(self, training: Training, complete: bool) -> None:
        self._commits.leave(training, complete)

    def _end(self) -> None:
        self._commits.end()

    def _samplers(self) -> List[ElasticSampler]:
        return [h.value for h in self._handlers.values() if isinstance(h.value, ElasticSampler)]

    def _addresses(self) -> Set[int]:
        return {a for h in self._engine_handlers.values() for a in getattr(h, "addresses", set)()}


def _foreign_backend() -> bool:
    """Whether the default group of torch.distributed has a backend that is not ours."""
    if not dist.is_available() or not dist.is_initialized():
        return False
    from ..c10d.operations import BACKEND

    return BACKEND not in dist.get_backend()
