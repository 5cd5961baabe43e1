"""The process group, put together."""

from __future__ import annotations

from .exchange_ops import ExchangeOps
from .gather_ops import GatherOps
from .reduce_ops import ReduceOps


class ProcessGroup(ReduceOps, GatherOps, ExchangeOps):
    """The ranks of one group, connected, with all operations that torch.distributed asks for."""
