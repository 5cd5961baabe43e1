"""Training that survives the loss and the arrival of workers, in Horovod's words."""

from ...errors import HorovodInternalError, HostsUpdatedInterrupt, JobStoppedInterrupt, WorkerExit
from .run_loop import run
from .sampler import ElasticSampler
from .state import ObjectState, State, StateHandler, TorchState, get_handler_registry, set_handler_registry

# fmt: off
__all__ = [
    "ElasticSampler", "HorovodInternalError", "HostsUpdatedInterrupt", "JobStoppedInterrupt",
    "ObjectState", "State", "StateHandler", "TorchState", "WorkerExit", "get_handler_registry",
    "run", "set_handler_registry",
]
# fmt: on
