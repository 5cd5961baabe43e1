"""The engine's handler of a module in a TorchState."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

import torch

from ...errors import UnsupportedError
from ...training import Training
from .. import replicas
from .registered import RegisteredTensor, memory_for

#: Where a tensor of a module is: in which of its tables, and under which key.
_Place = Tuple[Dict[str, Any], str]


class ModelHandler:
    """Parameters, persistent buffers and extra state (``get_extra_state``) of a module."""

    def __init__(self, model: torch.nn.Module, name: str):
        self.value, self._name = model, name
        self._registered: Dict[str, RegisteredTensor] = {}

    def _tensors(self) -> Iterator[Tuple[str, _Place]]:
        """The names and places of all tensors; a tensor that several modules share, once. Raises
        UnsupportedError for a module that divides its tensors among the ranks."""
        seen = set()
        for prefix, module in self.value.named_modules():
            replicas.check_undivided(f"{self._name}.{prefix}" if prefix else self._name, module)
            temporary = getattr(module, "_non_persistent_buffers_set", ())
            for table in (module._parameters, module._buffers):
                for key, tensor in table.items():
                    if tensor is None or table is module._buffers and key in temporary:
                        continue
                    if id(tensor) not in seen:
                        seen.add(id(tensor))
                        yield f"{prefix}.{key}" if prefix else key, (table, key)

    def _places(self) -> List[Tuple[RegisteredTensor, _Place]]:
        """Where each registered tensor is now. A module may have been replaced by one with tensors of
        the same names; raises UnsupportedError if there are more, or fewer."""
        found = dict(self._tensors())
        if found.keys() != self._registered.keys():
            name = min(found.keys() ^ self._registered.keys())
            raise UnsupportedError(
                f"{self._name}.{name} was {'added' if name in found else 'removed'} after elastic.run had begun, and a "
                "state keeps what it began with: build the whole model before"
            )
        return [(tensor, found[name]) for name, tensor in self._registered.items()]

    def _extra(self) -> Iterator[Tuple[str, torch.nn.Module]]:
        """The modules that have a state which is no tensor."""
        for prefix, module in self.value.named_modules():
            if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
                yield prefix, module

    def addresses(self) -> Set[int]:
        return {table[key].data_ptr() for _, (table, key) in self._tensors()}

    def register(self, training: Training) -> None:
        self._registered = {}
        for name, (table, key) in self._tensors():
            full = f"{self._name}.{name}"
            self._registered[name] = RegisteredTensor(training, full, memory_for(full, table[key]))
        for prefix, module in self.value.named_modules():
            _check_saving(f"{self._name}.{prefix}" if prefix else self._name, module)

    def set_live(self, training: Training) -> int:
        """Says that only steps of optimizers change the parameters; returns their size in bytes."""
        places = [(t, table[key]) for t, (table, key) in self._places()]
        return sum(t.set_live(training) for t, current in places if isinstance(current, torch.nn.Parameter))

    def registered(self) -> List[RegisteredTensor]:
        """All of its tensors."""
        return list(self._registered.values())

    def capture(self) -> Any:
        """Finds the tensors in use; returns what is saved as an object."""
        for tensor, (table, key) in self._places():
            tensor.capture(table[key])
        return {prefix: module.get_extra_state() for prefix, module in self._extra()} or None

    def apply(self, kept: Optional[Dict[str, Any]]) -> None:
        with torch.no_grad():
            for tensor, (table, key) in self._places():
                tensor.apply(table[key])
        for prefix, module in self._extra():
            if kept and prefix in kept:
                module.set_extra_state(kept[prefix])


def _check_saving(name: str, module: torch.nn.Module) -> None:
    """Raises for a module that saves, in a way of its own, what is neither a parameter nor a buffer
    nor its extra state."""
    if type(module)._save_to_state_dict is torch.nn.Module._save_to_state_dict:
        return
    saved: Dict[str, Any] = {}
    module._save_to_state_dict(saved, "", True)
    own = [*module._parameters.values(), *module._buffers.values()]
    addresses = {t.data_ptr() for t in own if t is not None}
    for key, value in saved.items():
        if key != "_extra_state" and not (isinstance(value, torch.Tensor) and value.data_ptr() in addresses):
            raise UnsupportedError(
                f"{name} is a {type(module).__name__}, which saves {key!r} in a way of its own: a state keeps parameters, "
                "buffers and get_extra_state(); give the state a handler for it (set_handler_registry)"
            )
