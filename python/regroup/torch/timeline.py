"""The timeline: a trace of operations, for chrome://tracing and Perfetto."""

from __future__ import annotations

import os
from typing import Optional

from ..communicator import Communicator
from ..errors import InvalidArgumentError
from .process_sets import group_of

#: The value of HOROVOD_TIMELINE with which start_timeline begins a timeline later.
DYNAMIC = "DYNAMIC"


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Makes rank 0 write the phases of all operations to a file, in Chrome's trace event format,
    until stop_timeline or the next generation. A timeline that is being written is ended first."""
    comm = group_of(None).comm
    if not file_path:
        raise InvalidArgumentError("start_timeline: file_path is empty")
    if comm is not None and comm.rank == 0:
        comm.named.start_timeline(os.path.abspath(file_path), mark_cycles)


def stop_timeline() -> None:
    """Ends the file."""
    comm = group_of(None).comm
    if comm is not None and comm.rank == 0:
        comm.named.stop_timeline()


def begin(comm: Communicator, generation: int) -> None:
    """Begins the timeline of HOROVOD_TIMELINE; HOROVOD_TIMELINE_MARK_CYCLES=1 marks cycles in it.
    In elastic training each generation has a file of its own: from the second on the file name has
    its number before the extension."""
    path: Optional[str] = os.environ.get("HOROVOD_TIMELINE")
    if not path or path == DYNAMIC or comm.rank != 0:
        return
    if generation > 1:
        root, ending = os.path.splitext(path)
        path = f"{root}.{generation}{ending}"
    mark = os.environ.get("HOROVOD_TIMELINE_MARK_CYCLES", "0") not in ("", "0")
    comm.named.start_timeline(os.path.abspath(path), mark)
