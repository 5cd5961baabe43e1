"""What a TorchState has of models and optimizers of which each rank has parts, and of what is made with
them."""

from __future__ import annotations

import atexit
import gc
import importlib
import itertools
import sys
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

import torch

from ...errors import InvalidArgumentError, UnsupportedError
from ...training import Training
from .. import replicas
from . import moving, padded
from .arena import Arena, trim_heap
from .bringing import Bringing
from .optimizer_handler import outlines
from .parts import Part, StatePart
from .sampler import ElasticSampler
from .state_handlers import saves_its_own_way
from .writes import Former, Place, Writes

#: Makes the models and optimizers of a generation, and what belongs to them, like a learning rate
#: schedule, by name. fresh: their content may count.
Build = Callable[[bool], Dict[str, Any]]


class _Wanted(NamedTuple):
    """A tensor that an optimizer makes for a parameter at its first step."""

    optimizer: str
    of: str  # the name of the parameter
    key: str
    parameter: torch.Tensor
    outline: torch.Tensor  # see StatePart
    device: torch.device

    @property
    def name(self) -> str:
        return f"{self.optimizer}.{self.of}.{self.key}"

    @property
    def size(self) -> int:
        """Bytes of the memory that it is given; 0 = none."""
        return StatePart.size(self.parameter, self.outline)


class ShardedParts:
    """The models and optimizers that a function makes anew in each generation, and the memory of this
    rank's parts of them."""

    def __init__(self, build: Build, copies: Optional[int] = None, parity: int = 0):
        if not callable(build):
            raise InvalidArgumentError(
                f"build is a {type(build).__name__}, not a function that makes models and optimizers"
            )
        if copies is None:
            copies = 0 if parity else 1
        if copies < 0 or parity < 0:
            raise InvalidArgumentError(f"copies={copies} is negative" if copies < 0 else f"parity={parity} is negative")
        if parity == 1:
            raise InvalidArgumentError("parity=1 is a copy: use copies=1 instead")
        if copies and parity:
            raise InvalidArgumentError(f"copies={copies} and parity={parity}: choose one of them")
        _load()
        self._build, self.copies, self.parity = build, copies, parity
        self._fresh = True  # what is in the tensors may count
        self._first = True  # nothing was made yet
        self._trim = False  # what was freed is still in the heap
        self._arena = Arena()  # of models and optimizers
        self._place: Optional[Tuple[int, int]] = None  # of this rank, see make
        self._writes = Writes()
        self._former = Former(self._writes)
        self.made: Dict[str, Any] = {}
        self._parts: List[Part] = []  # of models
        self._live: List[Part] = []  # parts that only optimizers change
        self._devices = False  # live parts on a GPU may be brought after a commit
        self._bringing = Bringing()
        self._states: Dict[str, Dict[str, Dict[str, StatePart]]] = {}  # by optimizer, parameter and key

    def make(self, fresh: bool, place: Optional[Tuple[int, int]] = None) -> None:
        """Has the function make them. place is the rank and the number of ranks: where they stay, the
        parts may do, and what is in them."""
        same, self._place = not fresh and place is not None and place == self._place, place
        self._former = Former(self._writes, self._in_place() if same else ())
        self._bringing.join()
        self.made, self._parts, self._states, self._live = {}, [], {}, []
        self._free()
        self._fresh, made = fresh, self._build(fresh)
        if not isinstance(made, dict):
            raise InvalidArgumentError(f"build returned a {type(made).__name__}, not a dict of models and optimizers")
        for name, value in made.items():
            _check(name, value)
        self.made = made

    def _free(self) -> None:
        """Frees what was made before. A sharded model is in cycles, which Python looks for when there are
        many new objects: by then there may be dozens of such models. What the process has before it
        makes the first one, most of it PyTorch's own, is not looked at, which would take 0.14 s."""
        if self._first:
            gc.freeze()
            atexit.register(gc.unfreeze)  # at its end Python looks at all, else libraries report leaks
        else:
            gc.collect()
            self._trim = True
        self._first = False

    def register(self, training: Training) -> None:
        """Registers the parts of this rank. The tensors that an optimizer makes at its first step have
        memory before."""
        tensors = dict(self._tensors())
        movable = moving.movable((model for _, model in self._modules()), tensors.values())
        wanted = self._wanted()
        memory = self._arena.allocate([x.size for x in [*movable, *wanted] if x.size])
        for part in movable:
            part.move(next(memory), self._fresh)
        self._trim = self._trim or bool(movable)
        for _, model in self._modules():
            padded.settle(model)
        for name, tensor in tensors.items():
            self._parts.append(Part(name, tensor))
            self._register(training, self._parts[-1], isinstance(tensor, torch.nn.Parameter))
        for w in wanted:
            own = next(memory) if w.size else None
            part = StatePart(w.name, w.parameter, w.outline, _distinct(w.parameter.dim()), w.device, own)
            self._states[w.optimizer].setdefault(w.of, {})[w.key] = part
            if self._fresh and own is not None:
                part.clear()
            self._register(training, part, True)
        self._arena.trim()
        self._former = Former(self._writes)
        self._bringing.at_once(self._away())

    def _register(self, training: Training, part: Part, only_optimizers: bool) -> None:
        part.register(training, self._former)
        if only_optimizers and (self._devices or part.used().device.type == "cpu"):
            training.live(part.name, part.away())
            self._live.append(part)

    def _all(self) -> Iterator[Part]:
        states = (part for of in self._states.values() for parts in of.values() for part in parts.values())
        return itertools.chain(self._parts, states)

    def _away(self) -> List[Part]:
        """The parts that are used elsewhere than where they are registered."""
        return [part for part in self._all() if part.away()]

    def _later(self) -> List[Part]:
        """Those of them that may be brought after a commit."""
        return [part for part in self._live if part.away()]

    def _wanted(self) -> List[_Wanted]:
        """What the optimizers make at their first step."""
        wanted = []
        for name, optimizer in self._optimizers():
            self._states[name] = {}
            parameters = list(self._parameters(name, optimizer))
            stand_ins = {id(p): torch.zeros(_distinct(p.dim()), dtype=p.dtype) for _, p, _ in parameters}
            found = outlines(optimizer, [p for _, p, _ in parameters], lambda p: stand_ins[id(p)])
            for (of, p, group), outline in zip(parameters, found):
                outline = outline or _outline(optimizer.state.get(p, {}), p)
                # Numbers are on the host, unless the optimizer works on the device alone.
                device = p.device if group.get("fused") or group.get("capturable") else torch.device("cpu")
                self._states[name][of] = {}
                for key, like in sorted(outline.items()):
                    wanted.append(_Wanted(name, of, key, p, like, device))
        return wanted

    def watch(self, before_step: Callable[[], None] = lambda: None, devices: bool = False) -> None:
        """Begins to look for changes of the parts after a commit: those that there were none of need not
        be filled when the training goes on from it. before_step is called before each step of an optimizer.
        devices: commits may overlap with what follows on a GPU."""
        self._devices = devices
        self._writes.begin(before_step)

    def untouched(self) -> bool:
        """Whether nothing has changed the parts since the last commit that only optimizers change, as far as PyTorch
        counts it."""
        return all(self._writes.none(part.watched()) for part in self._live)

    def lives(self) -> bool:
        """Whether there are parts that a commit can copy while the program goes on."""
        return bool(self._live)

    def bring(self) -> None:
        """Has all parts in the registered memory."""
        self._bringing.at_once(self._away())

    def commit_overlapped(self, training: Training) -> None:
        """Commits; live parts are copied while the program goes on, until release."""
        later = self._later()
        if later and training.agree(True):
            self.bring()
            later = []
        try:
            training.commit_live()
        except BaseException:
            if later:  # and it waits for them
                training.brought(False)
            raise
        if later:
            self._bringing.begin(training, later)

    def release(self, training: Training) -> None:
        """Waits until live parts may change."""
        self._bringing.release()
        training.changed()

    def settle(self) -> None:
        """Waits until nothing is brought any more."""
        self._bringing.join()

    def end(self) -> None:
        """Ends what watch began."""
        self._writes.end()
        self._bringing.end()

    def committed(self) -> None:
        """Says that the parts are as in the last commit."""
        self._writes.note(part.watched() for part in self._all())

    def _in_place(self) -> Iterator[Place]:
        """Where the parts are that are registered where they are used."""
        return filter(None, (part.place() for part in self._all()))

    def capture(self, overlaps: bool = False) -> Dict[str, Any]:
        """Updates the registered memory, but for what a commit that overlaps may have later; returns what is
        saved as an object, the same on all ranks. Raises UnsupportedError if the tensors in use are not those
        that build has made."""
        self._reshard()
        if self._trim:  # not while all wait for each other, and before the commit needs memory
            trim_heap()
            self._trim = False
        now = dict(self._tensors())
        with torch.no_grad():
            for part in self._parts:
                part.capture(now.pop(part.name, None))
            if now:
                raise UnsupportedError(f"{min(now)} was added since build was called: make all of the model there")
            kept = {name: self._capture(name, optimizer) for name, optimizer in self._optimizers()}
        later = {id(part) for part in self._later()} if overlaps else set()
        self._bringing.at_once([part for part in self._away() if id(part) not in later])
        return {**kept, **{name: value.state_dict() for name, value in self._others()}}

    def _capture(self, name: str, optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
        absent = []
        for of, p, _ in self._parameters(name, optimizer):
            state = optimizer.state.get(p)
            if not state:
                absent.append(of)
                continue
            parts = self._states[name].get(of, {})
            if parts.keys() != state.keys():
                key = min(parts.keys() ^ state.keys())
                raise UnsupportedError(
                    f"{name}.{of} has {sorted(state)} in {type(optimizer).__name__}, and {sorted(parts)} were expected: "
                    f"{key} of a sharded parameter cannot be kept"
                )
            for key, part in parts.items():
                state[key] = part.capture(state[key])
        groups = [{key: value for key, value in g.items() if key != "params"} for g in optimizer.param_groups]
        return {"groups": groups, "absent": absent}

    def apply(self, kept: Dict[str, Any]) -> None:
        """Puts what is in the registered memory, and what capture returned, into use."""
        self._reshard()
        with torch.no_grad():
            for part in self._parts:
                part.apply()
            for name, optimizer in self._optimizers():
                if name in kept:
                    self._apply(name, optimizer, **kept[name])
        for name, value in self._others():
            if name in kept:
                value.load_state_dict(kept[name])
        self.committed()

    def _apply(self, name: str, optimizer: torch.optim.Optimizer, groups: List[dict], absent: List[str]) -> None:
        count = len(optimizer.param_groups)
        if count != len(groups):
            raise UnsupportedError(f"{name} had {len(groups)} parameter groups, and build has made {count}")
        for group, values in zip(optimizer.param_groups, groups):
            group.update(values)
        optimizer.state.clear()
        for of, p, _ in self._parameters(name, optimizer):
            if of not in absent:
                optimizer.state[p] = {key: part.tensor() for key, part in self._states[name][of].items()}

    def tracked(self) -> List[torch.Tensor]:
        """The tensors in use."""
        states = [e for _, optimizer in self._optimizers() for e in optimizer.state.values() if isinstance(e, dict)]
        return [t for _, t in self._tensors()] + [v for e in states for v in e.values() if torch.is_tensor(v)]

    def _modules(self) -> Iterator[Tuple[str, torch.nn.Module]]:
        return ((name, value) for name, value in self.made.items() if isinstance(value, torch.nn.Module))

    def _optimizers(self) -> Iterator[Tuple[str, torch.optim.Optimizer]]:
        return ((name, value) for name, value in self.made.items() if isinstance(value, torch.optim.Optimizer))

    def _others(self) -> Iterator[Tuple[str, Any]]:
        return ((name, value) for name, value in self.made.items() if not _divided(value))

    def _reshard(self) -> None:
        """Ends the use of whole parameters in place of this rank's parts, which lasts beyond a forward
        pass that no backward pass follows."""
        for _, model in self._modules():
            for module in model.modules():
                if replicas.divides(type(module)) == "FSDPModule":
                    module.reshard()  # type: ignore[operator]

    def _tensors(self) -> Iterator[Tuple[str, torch.Tensor]]:
        """The parameters and persistent buffers of the models, each once."""
        seen = set()
        for name, model in self._modules():
            for prefix, module in model.named_modules():
                temporary = getattr(module, "_non_persistent_buffers_set", ())
                for table in (module._parameters, module._buffers):
                    for key, tensor in table.items():
                        if tensor is None or id(tensor) in seen or table is module._buffers and key in temporary:
                            continue
                        seen.add(id(tensor))
                        yield ".".join(filter(None, (name, prefix, key))), tensor

    def _parameters(self, name: str, optimizer: torch.optim.Optimizer) -> Iterator[Tuple[str, torch.Tensor, dict]]:
        """The parameters of an optimizer, with the names that they have in a model, and their groups."""
        names = {id(tensor): of for of, tensor in self._tensors()}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if id(p) not in names:
                    raise UnsupportedError(f"{name} has a parameter that is in no model which build has returned")
                yield names[id(p)], p, group


def _load() -> None:
    """Imports what torch imports when the first model is sharded: a newcomer has done it before the
    others wait for its model."""
    if "torch.distributed.fsdp" in sys.modules:
        importlib.import_module("torch._dynamo")


def _check(name: str, value: Any) -> None:
    """Raises for what a function must not return."""
    if isinstance(value, ElasticSampler):
        raise InvalidArgumentError(f"build returned {name}, a sampler: give it to the state, TorchState({name}=...)")
    if not _divided(value) and not (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
        raise InvalidArgumentError(
            f"build returned {name}, a {type(value).__name__}: neither a module or an optimizer, nor anything with "
            "state_dict and load_state_dict"
        )
    if isinstance(value, torch.optim.Optimizer) and saves_its_own_way(value):
        raise UnsupportedError(
            f"{name} is a {type(value).__name__}, which saves its state in a way of its own, and no parts of that are "
            "known: return the optimizer that it wraps"
        )
    for module in value.modules() if isinstance(value, torch.nn.Module) else ():
        kind = replicas.divides(type(module))
        if kind not in ("", "FSDPModule"):
            raise UnsupportedError(
                f"{name} is sharded by {kind}, which does not say what of which tensor this rank has: use fully_shard"
            )


def _outline(state: Dict[str, Any], p: torch.Tensor) -> Dict[str, torch.Tensor]:
    """What an optimizer has for a parameter that has made it before its first step, and needs it there:
    as if for a small one."""
    tensors = {key: value for key, value in state.items() if torch.is_tensor(value)}
    shapes = {key: _distinct(p.dim()) if t.shape == p.shape else t.shape for key, t in tensors.items()}
    return {key: torch.zeros(shapes[key], dtype=t.dtype) for key, t in tensors.items()}


def _divided(value: Any) -> bool:
    """Whether a value is of a kind of which each rank may have parts."""
    return isinstance(value, (torch.nn.Module, torch.optim.Optimizer))


def _distinct(dims: int) -> Tuple[int, ...]:
    """A small shape with another size in each dimension."""
    return tuple(range(2, 2 + dims))
