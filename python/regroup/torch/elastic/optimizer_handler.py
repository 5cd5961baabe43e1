"""The engine's handler of an optimizer in a TorchState."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, Callable, Dict, List

import torch

from ...errors import UnsupportedError
from ...training import Training
from .. import replicas
from .registered import RegisteredTensor, bring


class OptimizerHandler:
    """The state of an optimizer: tensors in memory of their own, numbers and parameter groups as an
    object.

    An optimizer creates its tensors at its first step, which a newcomer has not made. Their shapes
    are found out on a copy, so that neither weights nor state change.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, name: str):
        self.value, self._name = optimizer, name
        self._parameters: List[torch.Tensor] = []
        self._groups: List[int] = []  # how many of them each group has
        self._registered: List[Dict[str, RegisteredTensor]] = []

    def register(self, training: Training) -> None:
        """Registers memory for every tensor that the optimizer has or will make."""
        replicas.check_whole(self._name, self.value)
        self._parameters = self._current()
        self._groups = [len(g["params"]) for g in self.value.param_groups]
        for i, p in enumerate(self._parameters):
            replicas.check(f"parameter {i} of {self._name}", p)
        self._registered = []
        for i, (p, outline) in enumerate(zip(self._parameters, outlines(self.value, self._parameters))):
            self._registered.append({})
            for key, like in sorted(outline.items()):
                pin = p.device.type == "cuda" and like.dim() > 0  # numbers stay on the host
                memory = torch.zeros(like.shape, dtype=like.dtype, pin_memory=pin)
                self._registered[i][key] = RegisteredTensor(training, f"{self._name}.{i}.{key}", memory)

    def set_live(self, training: Training) -> int:
        """Says that only its steps change its tensors; returns their size in bytes."""
        return sum(t.set_live(training) for t in self.registered())

    def registered(self) -> List[RegisteredTensor]:
        """All tensors of its state that are in memory of their own."""
        return [t for registered in self._registered for t in registered.values()]

    def _current(self) -> List[torch.Tensor]:
        return [p for g in self.value.param_groups for p in g["params"]]

    def _update(self) -> None:
        """Notes the parameters that it has now: a model that was replaced may have given it others
        like those before. Raises UnsupportedError if they are not."""
        now, groups = self._current(), [len(g["params"]) for g in self.value.param_groups]
        if self._groups != groups or [p.shape for p in self._parameters] != [p.shape for p in now]:
            raise UnsupportedError(
                f"{self._name} had parameters in groups of {self._groups} when elastic.run began, and has others, in "
                f"groups of {groups}: a state keeps what it began with; add all parameter groups before"
            )
        self._parameters = now

    def capture(self) -> Any:
        """Finds the tensors in use; returns what is saved as an object."""
        replicas.check_whole(self._name, self.value)
        self._update()
        groups = [{key: value for key, value in g.items() if key != "params"} for g in self.value.param_groups]
        rest: List[Dict[str, Any]] = []
        present: List[List[str]] = []
        for t in self.registered():
            t.current = None
        for p, registered in zip(self._parameters, self._registered):
            state = self.value.state.get(p, {})
            there = []
            others = {}
            for key, value in state.items():
                tensor = registered.get(key)
                if tensor is None or not _fits(value, tensor.memory):
                    others[key] = value.detach().cpu() if torch.is_tensor(value) else value
                    continue
                there.append(key)
                tensor.capture(value)
                if value.device.type == "cpu" and tensor.elsewhere():
                    bring([tensor])
                    state[key] = tensor.current = tensor.memory  # where it is updated from now on
            rest.append(others)
            present.append(there)
        # What belongs to no parameter is under keys of the optimizer's own.
        more = {key: value for key, value in self.value.state.items() if not torch.is_tensor(key)}
        return {"groups": groups, "rest": rest, "present": present, "more": more}

    def apply(self, kept: Any) -> None:
        self._update()
        for key in [key for key in self.value.state if not torch.is_tensor(key)]:
            del self.value.state[key]
        self.value.state.update(kept.get("more", {}))
        for group, values in zip(self.value.param_groups, kept["groups"]):
            group.update(values)
        for i, p in enumerate(self._parameters):
            before = self.value.state.get(p, {})
            state: Dict[str, Any] = {}
            for key in kept["present"][i]:
                state[key] = self._tensor(before.get(key), p, self._registered[i][key], key)
            for key, value in kept["rest"][i].items():
                state[key] = value.to(p.device) if torch.is_tensor(value) else value
            if state:
                self.value.state[p] = state
            else:
                self.value.state.pop(p, None)

    def _tensor(self, current: Any, p: torch.Tensor, tensor: RegisteredTensor, key: str) -> torch.Tensor:
        if current is None or not _fits(current, tensor.memory):
            if p.device.type == "cpu":
                tensor.current = tensor.memory
                return tensor.memory
            # Step counters stay on the host, as in the optimizers of torch.
            current = torch.empty_like(tensor.memory, device="cpu" if key == "step" else p.device)
        tensor.apply(current)
        return current


def _fits(value: Any, memory: torch.Tensor) -> bool:
    return torch.is_tensor(value) and value.shape == memory.shape and value.dtype == memory.dtype


def _zeros(p: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(p, device="cpu")


def outlines(
    optimizer: torch.optim.Optimizer, parameters: List[torch.Tensor], stand_in: Callable[[torch.Tensor], torch.Tensor] = _zeros
) -> List[Dict[str, torch.Tensor]]:
    """The tensors that each parameter's state will have: those of a step on stand-ins, with zero
    gradients.

    Optimizers that cannot make such a step (LBFGS needs a closure) have none: all of their state is
    saved as an object.
    """
    copies = {id(p): stand_in(p).requires_grad_() for p in parameters}
    for p in parameters:
        copies[id(p)].grad = torch.zeros_like(copies[id(p)])
    base = next(c for c in type(optimizer).__mro__ if not hasattr(c, "_rg_init"))
    trial = base.__new__(base)
    trial.__dict__.update(
        {
            key: OrderedDict() if key.endswith("_hooks") else value
            for key, value in optimizer.__dict__.items()
            if key != "step"
        }
    )
    trial.param_groups = [
        {**g, "params": [copies[id(p)] for p in g["params"]], **_plain(g)} for g in optimizer.param_groups
    ]
    trial.state = defaultdict(dict)
    try:
        base.step(trial)
    except Exception:
        return [{} for _ in parameters]
    return [{k: v for k, v in trial.state.get(copies[id(p)], {}).items() if torch.is_tensor(v)} for p in parameters]


def _plain(group: dict) -> dict:
    """Options that must be off for a trial step in the host's memory."""
    return {key: False for key in ("capturable", "fused") if group.get(key)}
