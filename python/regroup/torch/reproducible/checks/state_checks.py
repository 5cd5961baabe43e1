"""Compares the states of the ranks every so many steps, and reports their hash to the job."""

from __future__ import annotations

import http.client
import os
import threading
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional

import torch

from .... import agent, reporting
from ....errors import RegroupError
from ..ranks import Ranks
from .inspection import accuse
from .state_hash import Named, StateHash, hash_state
from .witness import judge

#: Of the numbers of checks those are reported that have so many binary digits, and zeros behind them: all of the first
#: 64, every second of the next 64, and so on. So two trainings have reports of the same steps, and a long one has few.
_DIGITS = 6


def reported(number: int) -> bool:
    """Whether the hash of the n-th check is reported."""
    return number >> max(0, number.bit_length() - _DIGITS) << max(0, number.bit_length() - _DIGITS) == number


class StateChecks:
    """The checks of a training's state. All ranks call its functions at the same places."""

    def __init__(self, ranks: Ranks, state: Callable[[], Named], every: int, sharded: bool):
        self._ranks, self._state, self._every, self._sharded = ranks, state, every, sharded
        self._sending: Optional[threading.Thread] = None

    def due(self, step: int) -> bool:
        """Whether the state is checked before a step."""
        return self._every > 0 and step > 0 and step % self._every == 0

    def check(self, step: int, dealt: Callable[[], List[Dict[str, Any]]]) -> None:
        """Makes sure that all ranks have the same state before a step; of a sharded model each has a part, and nothing
        is compared. dealt is as in report."""
        report = reported(step // self._every)
        if self._sharded and not report:
            return
        found = self.find(step)
        if report:
            self.report(found, dealt)

    def find(self, step: int) -> StateHash:
        """The hash of the state after so many steps, which all ranks have found, unless one has another."""
        found = hash_state(step, self._state(), self._ranks, self._sharded)
        if not self._sharded and self._ranks.size > 1:
            rows = self._ranks.gather(torch.tensor([int(found.hash[:15], 16)]))
            accuse(self._ranks, judge({}, [int(row[0]) for row in rows]), f"the state before step {step}")
        return found

    def reports(self) -> bool:
        """Whether there is a job to report to."""
        return bool(os.environ.get("REGROUP_SOCKET"))

    def report(self, found: StateHash, dealt: Callable[[], List[Dict[str, Any]]], last: bool = False) -> None:
        """Reports a hash to the job, if there is one, with what dealt returns, and forgets; the last one before this
        process may end."""
        if not self.reports():
            return
        entries = dealt()  # on all ranks
        if self._ranks.rank != 0:
            return
        body = {
            "generation": reporting.generation(),
            "step": found.step,
            "hash": found.hash,
            "tensors": found.grouped(),
            "dealt": entries,
        }

        def send(after: Optional[threading.Thread]) -> None:
            if after is not None:
                after.join()
            with suppress(OSError, http.client.HTTPException, RegroupError):  # the job lacks it then
                agent.call("POST", "/v1/hash", body)

        self._sending = threading.Thread(target=send, args=(self._sending,), name="regroup-hash", daemon=True)
        self._sending.start()
        if last:
            self._sending.join()
