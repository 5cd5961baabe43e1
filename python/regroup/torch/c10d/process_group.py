"""The process group."""

from __future__ import annotations

from .exchange_ops import ExchangeOps
from .gather_ops import GatherOps
from .reduce_ops import ReduceOps


class ProcessGroup(ReduceOps, GatherOps, ExchangeOps):
    """The connected ranks of one group, with all operations of torch.distributed."""
