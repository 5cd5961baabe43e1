"""The kernels for GPUs, which Triton interprets here (TRITON_INTERPRET=1)."""

import itertools
import math

import torch

from regroup.torch.reproducible import fixed_point, triton_kernels


def gradients():
    """Of many sizes and magnitudes, of which a third is half way between two integers."""
    g = torch.Generator().manual_seed(1)
    for n, shift in itertools.product((0, 1, 7, 1024, 2500), (-30, 0, 20, 55)):
        gradient = torch.randn(n, generator=g) * torch.exp2(torch.randint(-30, 3, (n,), generator=g).float())
        gradient[::3] = (torch.randint(-9, 9, (len(gradient[::3]),), generator=g) + 0.5) * 2.0**-shift
        yield gradient.clamp_(-60, 60) if shift > 50 else gradient, shift


def check_sums():
    for (gradient, shift), dtype in itertools.product(gradients(), (torch.float32, torch.bfloat16, torch.float64)):
        gradient = gradient.to(dtype)
        totals = torch.zeros(len(gradient), dtype=torch.int64), torch.full((len(gradient),), 7)
        for first in True, False:
            size = fixed_point.add(totals[0], gradient, shift, first)
            assert triton_kernels.add(totals[1], gradient, shift, first).item() == size
            assert torch.equal(*totals), (len(gradient), shift, dtype, first)


def check_means():
    g = torch.Generator().manual_seed(2)
    for n, (shift, summands) in itertools.product((0, 1, 7, 3000), ((-30, 1), (0, 3), (20, 7), (55, 1000))):
        total = torch.randint(-(2**62), 2**62, (n,), generator=g) >> torch.randint(0, 62, (n,), generator=g)
        for dtype in torch.float32, torch.bfloat16, torch.float64:
            means, want = torch.empty(n, dtype=dtype), torch.empty(n, dtype=dtype)
            triton_kernels.mean(means, total, shift, summands)
            fixed_point.mean(want, [total], [n], [shift], summands)
            assert torch.equal(means, want), (n, shift, dtype)


def check_what_is_not_finite():
    for bad in math.inf, -math.inf, math.nan:
        gradient = torch.tensor([1.0, bad, 2.0])
        assert triton_kernels.add(torch.zeros(3, dtype=torch.int64), gradient, 3, True).item() == math.inf


check_sums()
check_means()
check_what_is_not_finite()
print("the same bits")
