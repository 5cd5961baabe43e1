"""Random numbers that depend on the step and the micro-batch alone."""

from __future__ import annotations

import functools
import random
import sys

import torch

_MASK = (1 << 64) - 1


def mix(x: int) -> int:
    """The step of splitmix64, see docs/samples.md."""
    z = (x + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
    return z ^ z >> 31


def seed_of(seed: int, step: int, micro_batch: int) -> int:
    """The seed of a micro-batch, of 63 bits."""
    return mix(mix(mix(seed) ^ step) ^ micro_batch) >> 1


def seed_all(seed: int) -> None:
    """Seeds the generators of PyTorch on all devices, of Python, and of NumPy if it has been imported."""
    initialized = torch.cuda.is_initialized()
    if _others() or not initialized and _gpus():
        torch.manual_seed(seed)
    else:  # the same in a fiftieth of the time: manual_seed notes where it was called from
        torch.default_generator.manual_seed(seed)
        if initialized:
            torch.cuda.manual_seed_all(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed & 0xFFFFFFFF)


@functools.lru_cache(maxsize=None)  # once
def _gpus() -> bool:
    """Whether this machine has GPUs of CUDA."""
    return torch.cuda.is_available()


@functools.lru_cache(maxsize=None)  # once
def _others() -> bool:
    """Whether this machine has other devices with generators than GPUs of CUDA."""
    return torch.backends.mps.is_available() or torch.xpu.is_available()
