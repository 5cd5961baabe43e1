"""A backend "fakenccl" of torch.distributed for tests without a GPU: gloo, which behaves as NCCL's does
where groups begin and end. It connects when it is asked to, or in its first operation; its abort lasts,
and its shutdown waits for that. What it does it says, as lines of a process.

FAKE_ABORT: "gate:FILE" = until this FIFO was opened for writing; "sleep:SECONDS"; "fails". With
FAKE_ABORT_RANK only the process that has this rank of three, and not one that was started in place of another.
FAKE_CONNECT is how long it takes to connect.
FAKE_APART: the next group begins when the one before has ended, as it did once; for comparison.
FAKE_GPU: the models seem to be on a GPU; the start of CUDA lasts until this FIFO was opened for writing,
in a process that was started in place of another one.
"""

import contextlib
import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from regroup.torch.c10d import features
from regroup.torch.follower import ending, gpus, models

NAME = "fakenccl"

_KIND, _, _ARGUMENT = os.environ.get("FAKE_ABORT", "").partition(":")
_RANK = int(os.environ.get("FAKE_ABORT_RANK", "-1"))
_FIRST = os.environ.get("REGROUP_ATTEMPT", "1") == "1"
_CONNECT = float(os.environ.get("FAKE_CONNECT", "0"))


def says(what: str, **values: object) -> None:
    """Prints a line with its time and process."""
    pairs = " ".join(f"{k}={v}" for k, v in values.items())
    print(f"{what} at={time.time():.6f} pid={os.getpid()} {pairs}", flush=True)


class FakeNCCL(c10d.Backend if features.PYTHON_BACKEND else dist.ProcessGroup):  # type: ignore[misc]
    """One group."""

    def __init__(self, opts):
        super().__init__(opts.group_rank, opts.group_size)
        self._opts, self._store = opts, dist.PrefixStore("fake", opts.store)
        self._lock, self._inner = threading.Lock(), None
        self._aborted = False

    supports_splitting = property(lambda self: False)
    supports_coalescing = property(lambda self: False)
    supports_shrinking = property(lambda self: False)
    supports_reconfigure = property(lambda self: False)
    supports_window = property(lambda self: False)
    _supports_time_estimate = property(lambda self: False)

    def getBackendName(self):
        return NAME

    def get_error(self):
        return c10d.ErrorType.COMM_ERROR if self._aborted else c10d.ErrorType.SUCCESS

    def eager_connect_single_device(self, device):
        self._connected("asked")

    def _connected(self, why):
        """The connections, made if there are none."""
        if self._aborted:
            raise RuntimeError("the communicator was aborted")
        if self._inner is None:
            rank, size = self._opts.group_rank, self._opts.group_size
            says("connects", size=size, why=why)
            time.sleep(_CONNECT if size > 1 else 0)  # what the real one was measured to take
            self._inner = dist.ProcessGroupGloo(self._store, rank, size, timedelta(minutes=5))
        return self._inner

    def abort(self):
        if self._aborted:
            return
        self._aborted = True
        with self._lock:
            says("abort_begins", size=self._opts.group_size)
            if _RANK < 0 or (_FIRST and (self._opts.group_rank, self._opts.group_size) == (_RANK, 3)):
                self._lasts()
            says("abort_ends", size=self._opts.group_size)

    def _lasts(self):
        if _KIND == "gate":
            with open(_ARGUMENT, "rb"):  # waits for who writes
                pass
        elif _KIND == "sleep":
            time.sleep(float(_ARGUMENT))
        elif _KIND == "fails":
            raise RuntimeError("the abort has failed")

    def shutdown(self):
        with self._lock:
            self._inner = None
            says("shut_down", size=self._opts.group_size)


def _passed_on(name):
    return lambda self, *arguments: getattr(self._connected("used"), name)(*arguments)


for _name in ("allreduce", "broadcast", "allgather", "barrier", "send", "recv"):
    setattr(FakeNCCL, _name, _passed_on(_name))

def _fake_gpu(gate: str) -> None:
    """Has follow find a GPU, which is the host."""

    def prepare(bound: object) -> None:
        says("prepares")
        if int(os.environ["REGROUP_ATTEMPT"]) > 1:
            with open(gate, "rb"):
                pass
        says("prepared")

    gpus.used, gpus.prepare, gpus.wait = lambda backend: True, prepare, lambda: says("waits_for_gpu")
    models.gpu = lambda: torch.device("cpu")


def _apart() -> None:
    release = ending.Ending.release

    def released(self: ending.Ending, generation: int) -> None:
        release(self, generation)
        self.join()

    ending.Ending.release = released


if "FAKE_APART" in os.environ:
    _apart()
if "FAKE_GPU" in os.environ:
    _fake_gpu(os.environ["FAKE_GPU"])

with contextlib.suppress(RuntimeError):
    dist.Backend.register_backend(NAME, lambda opts, _: FakeNCCL(opts), extended_api=True, devices=["cpu"])
