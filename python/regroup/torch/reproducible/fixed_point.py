"""Gradients as 64-bit integers, whose sum does not depend on the order of the summands.

A gradient g becomes the integer g * 2**shift, rounded to nearest, ties to even. The shift belongs to a parameter and
a step, and is chosen from the largest magnitude M that any micro-batch has had, so that V summands cannot overflow::

    M = 0.3, so M < 2**-1;  V = 12 < 2**4
    bits that are left:  62 - HEADROOM - 4 = 46
    shift = 46 + 1 = 47:  0.3 becomes 42221246506598 (46 bits), 12 * 2**12 times as much still fits

The mean is the sum as float64, times 2**-shift, divided by V, each rounded once: the same bits on every processor
that follows IEEE 754. Demmel and Nguyen ("Fast reproducible floating-point summation", 2013) call sums like these
reproducible.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Sequence, Union

import torch

from ... import _library as lib

#: How many times 2 a gradient may grow from one step to the next before its shift no longer fits.
HEADROOM = 12

#: How many bits of the largest gradient must be left: float32 has as many.
PRECISION = 24

#: The largest gradient of a parameter that had none.
ABSENT = -1.0


def bits_for(summands: int, headroom: int = HEADROOM) -> int:
    """How many bits of an integer are for the largest magnitude, so that so many summands fit."""
    return 62 - headroom - (summands - 1).bit_length()


def shift_for(magnitude: float, summands: int, headroom: int = HEADROOM) -> int:
    """The shift at which summands of at most so large a magnitude can be added, even if they are 2**headroom times
    as large."""
    return bits_for(summands, headroom) - math.frexp(magnitude)[1]


def fits(magnitude: float, shift: int, summands: int) -> bool:
    """Whether summands of at most so large a magnitude can be added at a shift, and have PRECISION bits."""
    if magnitude <= 0:
        return True
    used = math.frexp(magnitude)[1] + shift
    return PRECISION <= used <= bits_for(summands, headroom=0)


#: The largest magnitude of a gradient's elements; a tensor without dimensions where the gradient is on a GPU, which nobody
#: waits for.
Magnitude = Union[float, torch.Tensor]


def magnitude(gradient: torch.Tensor) -> Magnitude:
    """The largest magnitude of the elements, as float32 has it; infinite if an element is not finite."""
    if gradient.numel() == 0:
        return 0.0
    low, high = torch.aminmax(gradient)  # a vector's norm takes 25 times as long
    largest = torch.nan_to_num(torch.maximum(-low, high).to(torch.float32), nan=math.inf, posinf=math.inf)
    return largest.item() if gradient.device.type == "cpu" else largest


def larger(a: Magnitude, b: Magnitude) -> Magnitude:
    """The larger one of two magnitudes of the same gradient."""
    return torch.maximum(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else max(a, b)


def joined(magnitudes: Sequence[Magnitude], device: torch.device) -> torch.Tensor:
    """Magnitudes as a vector of float32."""
    if any(isinstance(m, torch.Tensor) for m in magnitudes):
        return torch.stack([torch.as_tensor(m, dtype=torch.float32, device=device) for m in magnitudes])
    return torch.tensor(magnitudes, dtype=torch.float32, device=device)


def add(total: torch.Tensor, gradient: torch.Tensor, shift: int, first: bool = False) -> Magnitude:
    """Adds a gradient to a total, int64 and flat, of as many elements; returns its magnitude. The first one takes the
    place of what was there."""
    if fast(gradient):
        how = lib.FIXED_FIRST if first else lib.FIXED_ADD
        call = (lib.Fixed * 1)((total.data_ptr(), gradient.data_ptr(), gradient.numel(), shift, how))
        lib.fixed_add(call, 1)
        return call[0].largest
    if _fused(gradient):
        return _kernels().add(total, gradient, shift, first)
    integers = gradient.reshape(-1).to(torch.float64, copy=True).mul_(2.0**shift).round_().to(torch.int64)
    total.copy_(integers) if first else total.add_(integers)
    return magnitude(gradient)


def copy(to: torch.Tensor, gradient: torch.Tensor) -> Magnitude:
    """Copies a gradient to a flat tensor of its type; returns its magnitude."""
    to.copy_(gradient.reshape(-1))
    return magnitude(gradient)


def mean(
    means: torch.Tensor, parts: Sequence[torch.Tensor], lengths: Sequence[int], shifts: Sequence[int], summands: int
) -> None:
    """Makes means of so many summands, in place: of the sums of totals, or of gradients that have not been made integers.
    All are flat and as long; they have pieces of these lengths, with these shifts, one after the other."""
    if fast(means):
        kind = lib.INT64 if parts[0].dtype is torch.int64 else lib.FLOAT32
        lib.fixed_mean(kind, [p.data_ptr() for p in parts], means.data_ptr(), lengths, shifts, summands)
        return
    begin = 0
    for length, shift in zip(lengths, shifts):
        at, begin = slice(begin, begin + length), begin + length
        _mean(means[at], [p[at] for p in parts], shift, summands)


def _mean(means: torch.Tensor, parts: Sequence[torch.Tensor], shift: int, summands: int) -> None:
    if _fused(means) and len(parts) == 1 and parts[0].dtype is torch.int64:
        _kernels().mean(means, parts[0], shift, summands)
        return
    total = torch.zeros(means.shape, dtype=torch.int64, device=means.device)
    for part in parts:
        if part.dtype is torch.int64:
            total += part
        else:
            add(total, part, shift)
    means.copy_(total.to(torch.float64).mul_(2.0**-shift).div_(summands))


def fast(tensor: torch.Tensor) -> bool:
    """Whether the library does what is here with a tensor: in one pass over the memory, which takes a seventieth of the
    time."""
    dense = tensor.layout is torch.strided
    return dense and tensor.is_cpu and tensor.dtype is torch.float32 and tensor.is_contiguous()


def _fused(tensor: torch.Tensor) -> bool:
    """Whether there is a kernel of Triton for it."""
    return tensor.is_cuda and tensor.is_contiguous() and _kernels() is not None


@functools.lru_cache(maxsize=None)  # once
def _kernels() -> Any:
    try:
        from . import triton_kernels
    except ImportError:  # PyTorch comes with it where it comes with CUDA
        return None
    return triton_kernels
