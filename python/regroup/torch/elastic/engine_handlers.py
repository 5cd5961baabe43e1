"""The engine's handlers of a TorchState: memory that the C library reads and writes in place."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import torch

from ...errors import RegroupError
from ...training import Training
from .model_handler import ModelHandler
from .optimizer_handler import OptimizerHandler
from .state_handlers import (
    DictStateHandler,
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
)


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
