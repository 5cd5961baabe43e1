"""The process group, put together."""

from __future__ import annotations

from .exchanging import Exchanging
from .gathering import Gathering
from .reducing import Reducing


class ProcessGroup(Reducing, Gathering, Exchanging):
    """The ranks of one group, connected, with all operations that torch.distributed asks for."""
