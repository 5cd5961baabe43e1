"""Copies parts that are used elsewhere, like on a GPU, to the memory that is registered, beside the program."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Dict, List, Optional

import torch

from ...training import Training
from .parts import Part
from .registered import settle


class Bringing:
    """Brings parts after a commit. From a GPU a stream of its own copies them, after what the program has begun
    there::

        program's stream   ... commit | forward, backward | (waits for the copy) optimizer's step
        own stream                    | copy to pinned memory |
        thread                        | waits for it, and has the library copy from there |

    From memory of the host a thread does."""

    def __init__(self) -> None:
        self._streams: Dict[torch.device, Any] = {}
        self._threads: Optional[ThreadPoolExecutor] = None
        self._events: List[Any] = []  # of the streams
        self._here: Optional[Future] = None  # parts in the host's memory are copied
        self._all: Optional[Future] = None  # nothing is copied from the registered memory any more

    def at_once(self, parts: List[Part]) -> None:
        """Brings them, and waits for that."""
        self.join()
        with torch.no_grad():
            for part in parts:
                part.bring()
        settle(part.used() for part in parts)

    def begin(self, training: Training, parts: List[Part]) -> None:
        """Begins to bring them, and says to the library when they are there."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, "regroup-brings")
        devices = [part for part in parts if part.used().device.type == "cuda"]
        host = [part for part in parts if part.used().device.type != "cuda"]
        try:
            self._events = [self._enqueue(device, devices) for device in {part.used().device for part in devices}]
            self._here = self._threads.submit(_copy, host)
            self._all = self._threads.submit(_settle, training, self._events, self._here)
        except BaseException:
            training.brought(False)
            raise

    def _enqueue(self, device: torch.device, parts: List[Part]) -> Any:
        stream = self._streams.get(device)
        if stream is None:
            stream = self._streams[device] = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream), torch.no_grad():
            for part in parts:
                if part.used().device == device:
                    part.bring()
        return stream.record_event()

    def release(self) -> None:
        """Waits until the parts may change, on a GPU in the program's stream."""
        for event in self._events:
            event.wait()
        if self._here is not None:
            self._here.result()
        self._events, self._here = [], None

    def join(self) -> None:
        """Waits until the registered memory may change."""
        self.release()
        if self._all is not None:
            self._all.result()
        self._all = None

    def end(self) -> None:
        """Ends the thread."""
        if self._threads is not None:
            self._threads.shutdown()
        self._threads = None


def _copy(parts: List[Part]) -> None:
    with torch.no_grad():
        for part in parts:
            part.bring()


def _settle(training: Training, events: List[Any], here: Future) -> None:
    there = False
    try:
        here.result()
        for event in events:
            event.synchronize()
        there = True
    finally:
        training.brought(there)
