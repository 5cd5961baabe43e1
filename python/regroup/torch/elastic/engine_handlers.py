"""The engine's handlers of a TorchState: memory that the C library reads and writes in place."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

import torch

from ...errors import RegroupError
from ...training import Training
from .state_handlers import (
    DictStateHandler,
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
)


class RegisteredTensor:
    """One tensor of the state. ``memory`` is registered with the library; the tensor in use shares
    it where possible."""

    def __init__(self, name: str, memory: torch.Tensor):
        self.name, self.memory = name, memory

    def register(self, training: Training) -> None:
        """Registers the memory. The name contains what must be equal on all ranks."""
        size = self.memory.numel() * self.memory.element_size()
        name = f"{self.name} {self.memory.dtype} {tuple(self.memory.shape)}"
        training.tensor(name, self.memory.data_ptr(), size)

    def capture(self, current: torch.Tensor) -> None:
        """Copies the tensor in use to the memory."""
        if current.data_ptr() != self.memory.data_ptr():
            self.memory.copy_(current)

    def apply(self, current: torch.Tensor) -> None:
        """Copies the memory to the tensor in use."""
        if current.data_ptr() != self.memory.data_ptr():
            current.copy_(self.memory)


def memory_for(current: torch.Tensor) -> torch.Tensor:
    """Memory to register for a tensor: its own, if that is contiguous in the host's memory."""
    current = current.detach()
    if current.device.type == "cpu" and current.is_contiguous():
        return current
    pin = current.device.type == "cuda"
    return torch.empty(current.shape, dtype=current.dtype, device="cpu", pin_memory=pin)


class ModelHandler:
    """Parameters and persistent buffers of a module."""

    def __init__(self, model: torch.nn.Module, name: str):
        self.value, self._name = model, name
        self._registered: List[Tuple[RegisteredTensor, dict, str]] = []

    def _tensors(self) -> Iterator[Tuple[str, dict, str]]:
        """The locations of all tensors; a tensor that several modules share, once."""
        seen = set()
        for prefix, module in self.value.named_modules():
            temporary = getattr(module, "_non_persistent_buffers_set", ())
            for table in (module._parameters, module._buffers):
                for key, tensor in table.items():
                    if tensor is None or table is module._buffers and key in temporary:
                        continue
                    if id(tensor) not in seen:
                        seen.add(id(tensor))
                        yield f"{prefix}.{key}" if prefix else key, table, key

    def addresses(self) -> Set[int]:
        """The addresses of its tensors."""
        return {table[key].data_ptr() for _, table, key in self._tensors()}

    def register(self, training: Training) -> None:
        """Registers all tensors."""
        self._registered = []
        for name, table, key in self._tensors():
            tensor = RegisteredTensor(f"{self._name}.{name}", memory_for(table[key]))
            tensor.register(training)
            self._registered.append((tensor, table, key))

    def capture(self) -> Any:
        """Updates the memory; returns what is saved as an object."""
        with torch.no_grad():
            for tensor, table, key in self._registered:
                tensor.capture(table[key])
        return None

    def apply(self, kept: Any) -> None:
        """Updates the model."""
        with torch.no_grad():
            for tensor, table, key in self._registered:
                tensor.apply(table[key])


class OptimizerHandler:
    """The state of an optimizer: tensors in memory of their own, numbers and parameter groups as an
    object.

    An optimizer creates its tensors at its first step, which a newcomer has not made. Their shapes
    are found out on a copy, so that neither weights nor state change.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, name: str):
        self.value, self._name = optimizer, name
        self._parameters: List[torch.Tensor] = []
        self._registered: List[Dict[str, RegisteredTensor]] = []

    def register(self, training: Training) -> None:
        """Registers memory for every tensor that the optimizer has or will make."""
        self._parameters = [p for g in self.value.param_groups for p in g["params"]]
        self._registered = []
        for i, outline in enumerate(outlines(self.value, self._parameters)):
            self._registered.append({})
            for key, like in sorted(outline.items()):
                memory = torch.zeros(like.shape, dtype=like.dtype)
                tensor = RegisteredTensor(f"{self._name}.{i}.{key}", memory)
                tensor.register(training)
                self._registered[i][key] = tensor

    def capture(self) -> Any:
        """Updates the memory; returns what is saved as an object."""
        groups = [
            {key: value for key, value in g.items() if key != "params"}
            for g in self.value.param_groups
        ]
        rest: List[Dict[str, Any]] = []
        present: List[List[str]] = []
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
                if value.device.type == "cpu" and value.data_ptr() != tensor.memory.data_ptr():
                    state[key] = tensor.memory  # from now on it is updated in the registered memory
            rest.append(others)
            present.append(there)
        return {"groups": groups, "rest": rest, "present": present}

    def apply(self, kept: Any) -> None:
        """Updates the optimizer."""
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
                return tensor.memory
            # Step counters stay on the host, as in the optimizers of torch.
            current = torch.empty_like(tensor.memory, device="cpu" if key == "step" else p.device)
        tensor.apply(current)
        return current


def _fits(value: Any, memory: torch.Tensor) -> bool:
    return torch.is_tensor(value) and value.shape == memory.shape and value.dtype == memory.dtype


def outlines(
    optimizer: torch.optim.Optimizer, parameters: List[torch.Tensor]
) -> List[Dict[str, torch.Tensor]]:
    """The tensors that each parameter's state will have: those of a step on copies, with zero
    gradients.

    Optimizers that cannot make such a step (LBFGS needs a closure) have none: all of their state is
    saved as an object.
    """
    copies = {id(p): torch.zeros_like(p, device="cpu").requires_grad_() for p in parameters}
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
        {**g, "params": [copies[id(p)] for p in g["params"]], **_plain(g)}
        for g in optimizer.param_groups
    ]
    trial.state = defaultdict(dict)
    try:
        base.step(trial)
    except Exception:
        return [{} for _ in parameters]
    return [
        {k: v for k, v in trial.state.get(copies[id(p)], {}).items() if torch.is_tensor(v)}
        for p in parameters
    ]


def _plain(group: dict) -> dict:
    """Options that must be off for a trial step in the host's memory."""
    return {key: False for key in ("capturable", "fused") if group.get(key)}


class DictHandler:
    """Anything with a state_dict, like the position of a sampler in the data."""

    def __init__(self, value: Any, name: str):
        self.value = value

    def register(self, training: Training) -> None:
        """Does nothing: it has no tensors."""

    def capture(self) -> Any:
        """Returns what is saved as an object."""
        return self.value.state_dict()

    def apply(self, kept: Any) -> None:
        """Updates the object."""
        self.value.load_state_dict(kept)


#: The handlers within elastic.run, by those outside. User-defined handlers are used in both.
_ENGINE_HANDLERS: Dict[type, Callable[[Any, str], Any]] = {
    ModelStateHandler: ModelHandler,
    OptimizerStateHandler: OptimizerHandler,
    SamplerStateHandler: DictHandler,
    DictStateHandler: DictHandler,
}


def engine_handler_for(handler: StateHandler, name: str) -> Optional[Any]:
    """The engine's handler for a part of the state; None if its own handler is used within
    elastic.run too."""
    make = _ENGINE_HANDLERS.get(type(handler))
    return None if make is None else make(handler.value, name)


def cannot_replace(name: str, old: Any, new: Any) -> RegroupError:
    """The error for replacing a value whose tensors are registered."""
    return RegroupError(
        f"{name} cannot be replaced while training: its tensors are registered "
        f"({type(old).__name__} by {type(new).__name__}); load its state_dict instead"
    )
