"""This process's ranks, as the environment gives them. Does not depend on torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from .errors import InvalidArgumentError
from .settings import number

ALONE = "alone"  #: no launcher: a world of one process
STATIC = "static"  #: a launcher assigns the rank: torchrun, or regroup with recovery by restart
ELASTIC = "elastic"  #: regroup with in-process recovery: each generation assigns ranks


@dataclass(frozen=True)
class Membership:
    """A process's ranks in a generation. With ``generation`` 0 it is not a member yet, and the
    other fields are the expected ones."""

    generation: int = 0
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1


def mode() -> str:
    """Where the rank of this process comes from."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return STATIC
    if os.environ.get("REGROUP_SOCKET"):
        return ELASTIC
    return ALONE


def expected() -> Membership:
    """The membership, as far as the environment tells."""
    kind = mode()
    if kind == ALONE:
        return Membership(generation=1)
    if kind == ELASTIC:
        return Membership()  # each generation assigns one
    rank, size = number("RANK", 0), number("WORLD_SIZE", 1)
    if not 0 <= rank < size:
        raise InvalidArgumentError(f"RANK={rank} must be below WORLD_SIZE={size}")
    local_size = number("LOCAL_WORLD_SIZE", 1, least=1)
    return replace(
        Membership(),
        generation=number("REGROUP_GENERATION", 0) or number("TORCHELASTIC_RESTART_COUNT", 0) + 1,
        rank=rank,
        size=size,
        local_rank=number("LOCAL_RANK", 0),
        local_size=local_size,
        cross_rank=number("GROUP_RANK", rank // local_size),
        cross_size=number("GROUP_WORLD_SIZE", max(1, size // local_size)),
    )
