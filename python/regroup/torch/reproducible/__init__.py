"""The same bits, whatever number of workers there is."""

from .accumulator import GradientAccumulator
from .ddp_hook import allreduce_hook

__all__ = ["GradientAccumulator", "allreduce_hook"]
