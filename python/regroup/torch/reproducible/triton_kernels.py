"""The arithmetic of fixed_point on GPUs, in one pass over the memory for each function: the bits are those of the library
and of plain PyTorch. TRITON_INTERPRET=1 runs it on the CPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_BLOCK = 1024


def add(total: torch.Tensor, gradient: torch.Tensor, shift: int, first: bool) -> torch.Tensor:
    """Does what fixed_point.add does, with a contiguous gradient; returns its magnitude."""
    largest = torch.zeros((), device=gradient.device)
    if gradient.numel():
        _add[_programs(total)](total, gradient, largest, total.numel(), shift, first, _BLOCK)
    return largest


def mean(means: torch.Tensor, total: torch.Tensor, shift: int, summands: int) -> None:
    """Makes means of so many summands of totals, in place."""
    exact = means if means.dtype in (torch.float32, torch.float64) else means.to(torch.float32)  # as PyTorch rounds
    if means.numel():
        _mean[_programs(means)](exact, total, means.numel(), shift, summands, _BLOCK)
    if exact is not means:
        means.copy_(exact)


def _programs(tensor: torch.Tensor) -> tuple:
    return (triton.cdiv(tensor.numel(), _BLOCK),)


@triton.jit
def _power(exponent):
    """2**exponent as float64; Triton's own floats from Python are float32."""
    return ((tl.zeros((1,), tl.int64) + exponent + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _add(total, gradient, largest, count, shift, first: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < count
    given = tl.load(gradient + at, mask=inside, other=0.0)
    scaled = given.to(tl.float64) * _power(shift)
    # Whatever is at least 2**52 is an integer; what is less is rounded, ties to even, by adding that.
    whole = tl.zeros((block,), tl.float64) + 4503599627370496
    whole = tl.where(scaled < 0, -whole, whole)
    integers = tl.where(tl.abs(scaled) < tl.abs(whole), (scaled + whole) - whole, scaled).to(tl.int64)
    if not first:
        integers += tl.load(total + at, mask=inside, other=0)
    tl.store(total + at, integers, mask=inside)
    size = tl.abs(given.to(tl.float32))
    tl.atomic_max(largest, tl.max(tl.where(size == size, size, float("inf")), 0))


@triton.jit
def _mean(means, total, count, shift, summands, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < count
    sums = tl.load(total + at, mask=inside, other=0).to(tl.float64)
    values = sums * _power(-shift) / (tl.zeros((block,), tl.float64) + summands)
    tl.store(means + at, values.to(means.dtype.element_ty), mask=inside)
