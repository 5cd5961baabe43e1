"""Spans of a recovery that are beside its phases, in the trace of the job."""

from __future__ import annotations

import http.client
import os
import threading
import time
from contextlib import suppress

from ... import agent
from ...errors import RegroupError

#: The groups of the generation before, from the beginning of their abort or shutdown until they are released.
ENDS = "group ends"

#: The group of this generation, from when its members know each other.
CONNECTS = "group connects"


def report(generation: int, name: str, began: float, ended: float) -> None:
    """Reports a span, of monotonic times, to the agent. Nothing waits for the agent, and without one this does
    nothing."""
    if not os.environ.get("REGROUP_SOCKET"):
        return

    def send() -> None:
        now = time.monotonic()
        body = {"generation": generation, "name": name, "age_ms": 1e3 * (now - began), "ms": 1e3 * (ended - began)}
        with suppress(OSError, http.client.HTTPException, RegroupError):  # a trace lacks it then
            agent.call("POST", "/v1/span", body)

    threading.Thread(target=send, name="regroup-span", daemon=True).start()
