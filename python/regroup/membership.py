"""Where this process stands, as its environment says. Knows nothing of torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from .errors import InvalidArgumentError
from .settings import number

ALONE = "alone"  #: no launcher: a world of this process
STATIC = (
    "static"  #: a launcher that has given a rank: torchrun, or regroup with recovery by restart
)
ELASTIC = "elastic"  #: regroup with recovery in the process: ranks come with each generation


@dataclass(frozen=True)
class Membership:
    """A process's place in a generation. ``generation`` 0: it is in none yet, and the rest is what to expect."""

    generation: int = 0
    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1


def mode() -> str:
    """Who says what this process's rank is."""
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return STATIC
    if os.environ.get("REGROUP_SOCKET"):
        return ELASTIC
    return ALONE


def expected() -> Membership:
    """The place as far as the environment knows it."""
    kind = mode()
    if kind == ALONE:
        return Membership(generation=1)
    if kind == ELASTIC:
        return Membership()  # it comes with each generation
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
