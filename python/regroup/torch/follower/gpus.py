"""The GPU of a process whose group is for GPUs."""

from __future__ import annotations

from typing import Optional

import torch
import torch.distributed as dist

from . import models


def used(backend: str) -> bool:
    """Whether a backend, of torch's or several ("cpu:gloo,cuda:nccl"), is for a GPU, and there is one."""
    parts = [part.partition(":") for part in backend.split(",")]
    cuda = any(device == "cuda" if separator else device.startswith("nccl") for device, separator, _ in parts)
    return cuda and torch.cuda.is_available()


def prepare(bound: Optional[torch.device]) -> None:
    """Has CUDA and NCCL start on the GPU of this process, while it is alone in its group: a newcomer that does so
    in its first step has the others wait.

    The GPU is the one that the group was given, else that of the models, else torch's current one if the program
    has used it: a program that has said nothing yet may still choose another one.
    """
    device = bound or models.gpu()
    if device is None:
        current = torch.cuda.current_device() if torch.cuda.is_initialized() else -1
        if current < 0 or not torch._C._cuda_hasPrimaryContext(current):
            return
        device = torch.device("cuda", current)
    with torch.cuda.device(device):
        torch.cuda.current_blas_handle()
        dist.all_reduce(torch.zeros(1, device=device))
        torch.cuda.synchronize()


def wait() -> None:
    """Waits until the GPUs that this process uses have nothing to do. Kernels of a group that is being aborted end
    first; they must not write into a state that has been restored."""
    for device in range(torch.cuda.device_count()):
        if torch._C._cuda_hasPrimaryContext(device):
            torch.cuda.synchronize(device)
