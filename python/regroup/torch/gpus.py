"""How GPU tensors are transferred: with the GPU engine if all ranks support it, else through the
host's memory.

All ranks make the same decision for every operation: they exchange whether each of them has a GPU
when they connect, and whether each can use it with the first GPU tensor.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import threading
from typing import Any, List, Optional, Sequence

import torch

from .. import settings
from ..communicator import Communicator
from ..errors import ForkedError, InvalidArgumentError, RegroupError, UnsupportedError
from ..gpu import Gpu
from .tensors import kind

log = logging.getLogger("regroup")


def no_gpu_reason() -> str:
    """Why this process has no GPU that the engine can use; empty if it has one."""
    if not settings.gpus():
        return "REGROUP_GPU=0"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not built for CUDA"
    if not torch.cuda.is_available():
        return "torch.cuda.is_available() is False"
    return ""


def first_reason(reasons: Sequence[str]) -> str:
    """Why the ranks, with these reasons, copy through the host; empty if all have a GPU."""
    for rank, why in enumerate(reasons):
        if why:
            return f"rank {rank} has no GPU: {why}"
    return ""


def nccl_dirs() -> List[str]:
    """The directories in which the wheels of PyTorch install NCCL."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ImportError:
        return []
    locations = (found.submodule_search_locations if found is not None else None) or []
    return [os.path.join(location, "lib") for location in locations]


class Engine:
    """The GPU engine on tensors. Operations run after the work that is queued on the current stream
    of the tensor's GPU.

    Later work on the stream is ordered after an operation that was executed; one that was started
    is finished by the GPU when its request ends. ``how`` is that of regroup.gpu.Gpu.
    """

    def __init__(self, gpu: Gpu, one_node: bool):
        self.gpu, self._one_node = gpu, one_node

    def allreduce(self, tensor: torch.Tensor, op: int, wire: int = 0, **how: Any) -> Optional[int]:
        """Reduces contiguous tensors in place."""
        where = tensor.data_ptr(), tensor.numel(), kind(tensor)
        return self.gpu.allreduce(*where, op, _stream(tensor), wire=wire, **how)

    def reduce(self, tensor: torch.Tensor, op: int, root: int, **how: Any) -> Optional[int]:
        """Reduces contiguous tensors to root, in place."""
        where = tensor.data_ptr(), tensor.numel(), kind(tensor)
        return self.gpu.reduce(*where, op, root, _stream(tensor), **how)

    def reduce_scatter(self, tensor: torch.Tensor, into: torch.Tensor, op: int, **how: Any) -> Optional[int]:
        """Reduces contiguous tensors; this rank gets its part of the result, which is as long as into.
        Afterwards tensor is undefined, unless keeps says otherwise."""
        what = into.numel(), kind(tensor)
        return self.gpu.reduce_scatter(tensor.data_ptr(), into.data_ptr(), *what, op, _stream(tensor), **how)

    def keeps(self, tensor: torch.Tensor) -> bool:
        """Whether reduce_scatter leaves a tensor as it is: NCCL does, where it does all of it."""
        return self._one_node and tensor.dtype is not torch.int16

    def broadcast(self, tensor: torch.Tensor, root: int, **how: Any) -> Optional[int]:
        """Copies root's contiguous tensor to all."""
        return self.gpu.broadcast(tensor.data_ptr(), _bytes(tensor), root, _stream(tensor), **how)

    def allgather(self, tensor: torch.Tensor, into: torch.Tensor, **how: Any) -> Optional[int]:
        """Concatenates contiguous tensors."""
        return self.gpu.allgather(tensor.data_ptr(), into.data_ptr(), _bytes(tensor), _stream(tensor), **how)

    def alltoall(
        self, tensor: torch.Tensor, into: torch.Tensor, counts: Sequence[int], back: Sequence[int], **how: Any
    ) -> Optional[int]:
        """Sends counts[r] elements of a contiguous tensor to rank r, and receives back[r] of it."""
        size = tensor.element_size()
        sizes = [n * size for n in counts], [n * size for n in back]
        return self.gpu.alltoall(tensor.data_ptr(), into.data_ptr(), *sizes, _stream(into), **how)


def _stream(tensor: torch.Tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


class Gpus:
    """How the GPU tensors of one communicator are transferred. ``previous`` is that of the
    generation before, if any."""

    def __init__(
        self, comm: Communicator, reason: str, local_rank: int, local_size: int, previous: Optional["Gpus"] = None
    ):
        self._comm, self._local = comm, (local_rank, local_size)
        self.reason = reason  # why they are copied through the host; empty = they are not
        self._warned = False
        self._gpu: Optional[Gpu] = None
        self._engine: Optional[Engine] = None
        self._previous = None if previous is None else previous.release()
        self._lock = threading.Lock()

    def beside(self, comm: Communicator) -> "Gpus":
        """The same for a communicator of the same ranks."""
        return Gpus(comm, self.reason, *self._local)

    def release(self) -> Optional[Gpu]:
        """Hands the GPU over to the next generation."""
        with self._lock:
            gpu = self._gpu or self._previous
            self._gpu = self._engine = self._previous = None
            return gpu

    def of(self, tensor: Any) -> Optional[Engine]:
        """The engine for a tensor; None if the tensor is copied through the host's memory."""
        if not tensor.is_cuda:
            return None
        with self._lock:
            if self._engine is None and not self.reason:
                self._open(tensor.device.index)
            if self.reason and not self._warned:
                self._warned = True
                log.warning("tensors on GPUs are copied through the host: %s", self.reason)
            if self._gpu is None or self._gpu.device != tensor.device.index:
                return None
            return self._engine

    def _open(self, device: int) -> None:
        """Opens the GPU. All ranks call it, with their first GPU tensor."""
        if self._previous is not None and self._previous.device != device:
            self._close(self._previous)
            self._previous = None
        try:
            self._gpu = Gpu(self._comm, device, *self._local, search=nccl_dirs(), before=self._previous)
        except (UnsupportedError, InvalidArgumentError) as e:
            self.reason = str(e)  # the same on all ranks
            return
        self._previous = None
        self._engine = Engine(self._gpu, one_node=self._local[1] == self._comm.world)
        log.info("tensors on GPUs: %s", self.describe())

    def describe(self) -> str:
        if self.reason:
            return f"copied through the host: {self.reason}"
        if self._gpu is None:
            return "none has come yet; every rank has a GPU"
        info = self._gpu.describe()
        return f"{info['engine']}; driver for CUDA {info['driver']}, from {info['from']}"

    def close(self) -> None:
        gpu = self.release()
        if gpu is not None:
            self._close(gpu)

    def _close(self, gpu: Gpu) -> None:
        try:
            gpu.close()
        except ForkedError:
            pass  # it is the parent's
        except RegroupError as e:
            log.warning("closing GPU %d: %s", gpu.device, e)


def engine(comm: Optional[Communicator], tensor: torch.Tensor) -> Optional[Engine]:
    """The GPU engine, if it handles a tensor."""
    return None if comm is None or comm.gpus is None else comm.gpus.of(tensor)
