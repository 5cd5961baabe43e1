"""Reports to Regroup and events from it: report, generation, on, record. Standard library only."""

from __future__ import annotations

import atexit
import functools
import json
import math
import os
import signal
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, TypeVar, cast

from .errors import InvalidArgumentError
from .settings import number


def _world() -> Any:
    """The world of regroup.torch, if the script uses it."""
    module = sys.modules.get("regroup.torch.world")
    return None if module is None else module.world


def generation() -> int:
    """The number of the generation that this process is in; 0 = none."""
    world = _world()
    if world is not None and world.membership.generation:
        return world.membership.generation
    return number("REGROUP_GENERATION", 0)


def traceparent() -> Optional[str]:
    """The W3C trace context for spans of this process: with in-process recovery that of the
    generation that it is in, otherwise that of the process. None if there is no trace."""
    world = _world()
    now = "" if world is None else world.traceparent
    return now or os.environ.get("TRACEPARENT") or None


#: Seconds between two reports. A newer report replaces one that was not sent yet.
_INTERVAL = 0.1

#: Seconds that the exit of the process waits for the last report to be sent.
_FLUSH_TIMEOUT = 2.0


class _Reporter:
    """Sends the newest report on a background thread, so that no step waits for the agent."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._newest: Optional[dict] = None
        self._sending = False
        self._pid = 0

    def submit(self, report: dict) -> None:
        with self._lock:
            previous = self._newest
            if previous is not None and previous["generation"] == report["generation"]:
                # Metrics that were not sent yet are kept, unless they would get another step.
                if not report["metrics"] or not report["step"]:
                    report["metrics_step"] = previous.get("metrics_step", previous["step"])
                    report["metrics"] = {**previous["metrics"], **report["metrics"]}
                report["step"] = report["step"] or previous["step"]
                report["samples"] = report["samples"] or previous["samples"]
            self._newest = report
            self._lock.notify()
            if self._pid != os.getpid():  # the first, or a forked child's
                if not self._pid:
                    atexit.register(self._flush)
                self._pid = os.getpid()
                self._sending = False
                threading.Thread(target=self._run, name="regroup-report", daemon=True).start()

    def _run(self) -> None:
        from . import agent  # its import is slow, and seldom needed

        while True:
            with self._lock:
                while self._newest is None:
                    self._lock.wait()
                report, self._newest, self._sending = self._newest, None, True
            try:
                agent.call("POST", "/v1/report", report)
            except Exception:
                pass  # progress may be lost: the next report replaces it
            with self._lock:
                self._sending = False
                self._lock.notify_all()
            time.sleep(_INTERVAL)

    def _flush(self) -> None:
        """Sends the last report before the process ends."""
        with self._lock:
            if self._pid == os.getpid():
                self._lock.wait_for(lambda: self._newest is None and not self._sending, _FLUSH_TIMEOUT)


_reporter = _Reporter()


def report(
    step: Optional[int] = None, loss: Optional[float] = None, samples: Optional[int] = None, **metrics: float
) -> None:
    """Reports the progress of training, which ``regroup status`` shows and which proves that the
    job does not hang.

    Within elastic.run steps and samples are counted anyway, so only the metrics are used; those of
    rank 0 are shown. NaN and infinities are left out: the last finite value is shown then, with its
    step and age. Without an agent this does nothing.
    """
    values = {name: float(value) for name, value in metrics.items()}
    if loss is not None:
        values["loss"] = float(loss)
    values = {n: v for n, v in values.items() if math.isfinite(v)}  # JSON cannot represent others
    world = _world()
    if world is not None and world.training is not None:
        world.training.report(values)
    elif os.environ.get("REGROUP_SOCKET"):
        _reporter.submit(
            {
                "generation": number("REGROUP_GENERATION", 0),
                "step": int(step or 0),
                "samples": int(samples or 0),
                "metrics": values,
            }
        )


_callbacks: Dict[str, List[Callable[[], None]]] = {"preempt": []}


def on(event: str, function: Callable[[], None]) -> Callable[[], None]:
    """Registers a function for an event. ``preempt``: this process is asked to end soon (SIGTERM);
    it has the job's stop grace (30 s) to end by itself. Call it from the main thread."""
    if event not in _callbacks:
        raise InvalidArgumentError(f"{event!r} is no event; there is: {', '.join(_callbacks)}")
    if not _callbacks[event]:
        previous = signal.getsignal(signal.SIGTERM)

        def preempted(number: int, frame: Any) -> None:
            for f in list(_callbacks["preempt"]):
                f()
            if callable(previous):
                previous(number, frame)

        signal.signal(signal.SIGTERM, preempted)
    _callbacks[event].append(function)
    return function


_Function = TypeVar("_Function", bound=Callable[..., Any])


def record(function: _Function) -> _Function:
    """Decorates main: an exception that ends it is written to TORCHELASTIC_ERROR_FILE, in the
    format of torch's own decorator of this name. ``regroup status`` shows it."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as e:
            _write_error(e)
            raise

    return cast(_Function, wrapper)


def _write_error(e: Exception) -> None:
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    message = {
        "message": f"{type(e).__name__}: {e}",
        "extraInfo": {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))},
    }
    try:
        with open(file, "w", encoding="utf-8") as f:
            json.dump({"message": message}, f)
    except OSError as error:
        print(f"regroup: {file} cannot be written: {error}", file=sys.stderr)
