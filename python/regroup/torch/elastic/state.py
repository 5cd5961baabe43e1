"""The states that a worker can restore, and the handlers of their parts."""

from .object_state import ObjectState, State
from .state_handlers import (
    DictStateHandler,
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    get_handler_registry,
    set_handler_registry,
)
from .torch_state import TorchState

# fmt: off
__all__ = [
    "DictStateHandler", "ModelStateHandler", "ObjectState", "OptimizerStateHandler",
    "SamplerStateHandler", "State", "StateHandler", "TorchState", "get_handler_registry",
    "set_handler_registry",
]
# fmt: on
