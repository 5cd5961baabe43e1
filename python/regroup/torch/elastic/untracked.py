"""Finds what is trained and is in no state: it would not outlive a change of the members."""

from __future__ import annotations

import gc
import warnings
from collections import Counter
from typing import Any, Dict, Iterable, List, Set, Tuple

import torch

#: The number of commits that are watched: there are gradients after the first step only.
_COMMITS = 2


class Watch:
    """Looks at all modules and optimizers of the process when the training function begins, and at
    its first commits."""

    def __init__(self) -> None:
        modules, _ = _existing()
        # Keeps the parameters, so that no other gets the id of one that is freed.
        self._before: Dict[int, Tuple[torch.Tensor, int]] = {
            id(p): (p, _version(p)) for m in modules for p in _parameters(m)
        }
        self._commits = 0

    def over(self) -> bool:
        """Whether it has seen enough."""
        return self._commits >= _COMMITS

    def warn(self, tracked: Iterable[torch.Tensor], pickled: List[str]) -> None:
        """Warns of modules and optimizers that the function has trained and that are not kept.
        tracked are the tensors that the state keeps in their place; pickled describes those in its
        other attributes, which may be copies of a model's."""
        self._commits += 1
        own = {id(t) for t in tracked}
        copies = Counter(pickled)
        for what, tensors in self._trained():
            missing = [t for t in tensors if id(t) not in own]
            wanted = Counter(f"{t.dtype}{list(t.shape)}" for t in missing)
            if not missing or all(copies[text] >= n for text, n in wanted.items()):
                continue
            warnings.warn(
                f"{what} is trained and is in no state: {len(missing)} of its tensors, the first of shape "
                f"{tuple(missing[0].shape)}, are not carried over when the members change, while what is in the state "
                "is; give it to the TorchState",
                RuntimeWarning,
                stacklevel=5,
            )
            self._commits = _COMMITS

    def _trained(self) -> List[Tuple[str, List[torch.Tensor]]]:
        modules, optimizers = _existing()
        stepped: Set[int] = {id(p) for o in optimizers for p, entries in o.state.items() if entries}
        found = []
        ids = set()
        for module in modules:
            mine = [p for p in _parameters(module) if self._changed(p, stepped)]
            ids.update(id(p) for p in mine)
            if mine:
                found.append((f"a {type(module).__name__}", mine))
        for o in optimizers:
            entries = [e for p, e in o.state.items() if id(p) in ids and isinstance(e, dict)]
            tensors = [v for e in entries for v in e.values() if torch.is_tensor(v) and v.dim() > 0]
            if tensors:
                found.append((f"the state of the optimizer {type(o).__name__}", tensors))
        return found

    def _changed(self, p: torch.Tensor, stepped: Set[int]) -> bool:
        before = self._before.get(id(p))
        if before is None:
            return p.grad is not None or id(p) in stepped
        return _version(p) != before[1]


def _existing() -> Tuple[List[torch.nn.Module], List[torch.optim.Optimizer]]:
    """The modules and the optimizers that there are."""
    modules: List[torch.nn.Module] = []
    optimizers: List[torch.optim.Optimizer] = []
    for thing in gc.get_objects():
        kind = type(thing)
        if issubclass(kind, torch.nn.Module):
            modules.append(thing)
        elif issubclass(kind, torch.optim.Optimizer):
            optimizers.append(thing)
    return modules, optimizers


def _parameters(module: torch.nn.Module) -> List[torch.Tensor]:
    """The parameters of a module's own, which need not be complete."""
    table: Any = module.__dict__.get("_parameters") or {}
    return [p for p in table.values() if isinstance(p, torch.Tensor) and p.requires_grad]


def _version(p: torch.Tensor) -> int:
    """Grows with each change in place."""
    return 0 if p.is_inference() else p._version
