"""The timeline: a trace of operations, for chrome://tracing and Perfetto. That of HOROVOD_TIMELINE
begins with a generation, see world."""

from __future__ import annotations

import os

from ..errors import InvalidArgumentError
from .world import world


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Makes rank 0 write the phases of all operations to a file, in Chrome's trace event format,
    until stop_timeline or the next generation. A timeline that is being written is ended first."""
    comm = world.communicator
    if not file_path:
        raise InvalidArgumentError("start_timeline: file_path is empty")
    if comm is not None and comm.rank == 0:
        comm.named.start_timeline(os.path.abspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the file."""
    comm = world.communicator
    if comm is not None and comm.rank == 0:
        comm.named.stop_timeline()
