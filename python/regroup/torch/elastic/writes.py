"""Whether the memory of a rank's parts still has what the last commit has."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterable, List, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

_uncounted = itertools.count(-1, -1)


class Place(NamedTuple):
    """Where the part of a tensor is, and the tensor, which are the same if all ranks have the same."""

    name: str
    memory: torch.Tensor
    tensor: torch.Tensor

    def versions(self) -> List[int]:
        """What grows with each change in place, and is new each time for tensors that do not count."""
        return [next(_uncounted) if t.is_inference() else t._version for t in (self.memory, self.tensor)]


class Writes:
    """Finds out whether memory may have been written to since it was that of a commit, as far as PyTorch
    counts that: any step of an optimizer, and any change in place of a tensor that is there. A DTensor and
    its part do not count what is done to the other."""

    def __init__(self) -> None:
        self._versions: Dict[str, List[int]] = {}
        self._hook: Any = None
        self._before_step: Callable[[], None] = lambda: None

    def begin(self, before_step: Callable[[], None]) -> None:
        """Begins to look. before_step is called before each step of an optimizer."""
        self._before_step = before_step
        if self._hook is None:
            self._hook = register_optimizer_step_pre_hook(self._step)

    def end(self) -> None:
        """Looks no more."""
        if self._hook is not None:
            self._hook.remove()
        self._hook, self._versions = None, {}

    def _step(self, optimizer: Any, arguments: Any, options: Any) -> None:
        self._before_step()
        self._versions = {}

    def note(self, places: Iterable[Place]) -> None:
        """Says that what is there is what the last commit has."""
        if self._hook is not None:
            self._versions = {p.name: p.versions() for p in places}

    def none(self, place: Place) -> bool:
        """Whether there was none since note."""
        return self._versions.get(place.name) == place.versions()


class Former:
    """The memory of the parts in the generation before. As long as this is there, nothing else gets it."""

    def __init__(self, writes: Writes, places: Iterable[Place] = ()):
        self._memory, self._unchanged = {}, set()
        for place in places:
            self._memory[place.name] = place.memory
            if writes.none(place):
                self._unchanged.add(place.name)
        writes.note(())  # of others of these names nothing is known before the next commit

    def unchanged(self, name: str, memory: torch.Tensor) -> bool:
        """Whether a part is in the memory that it had, and nothing has written to that."""
        if name not in self._unchanged:
            return False
        former = self._memory[name]
        return (former.data_ptr(), former.nbytes) == (memory.data_ptr(), memory.nbytes)
