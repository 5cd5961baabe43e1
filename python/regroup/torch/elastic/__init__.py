"""Training that survives the loss and the arrival of workers, in Horovod's words."""

from ...errors import HorovodInternalError, HostsUpdatedInterrupt, JobStoppedInterrupt
from .running import run
from .sampler import ElasticSampler
from .state import ObjectState, State, TorchState

__all__ = [
    "ElasticSampler",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "JobStoppedInterrupt",
    "ObjectState",
    "State",
    "TorchState",
    "run",
]
