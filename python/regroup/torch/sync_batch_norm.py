"""SyncBatchNorm: batch normalisation over the batches of all ranks."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from ..errors import InvalidArgumentError
from .allreduce_ops import allreduced
from .calls import Call
from .reductions import Sum
from .process_sets import group_of


class SyncBatchNorm(_BatchNorm):
    """BatchNorm1d, 2d or 3d whose mean and variance in training are those of the batches of all
    ranks, which may differ in size; on CPUs and GPUs. All ranks call it in the same order.
    ``process_set`` restricts it to some ranks."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: Optional[float] = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: Any = None,
    ):
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise InvalidArgumentError(f"SyncBatchNorm: {input.dim()} dimensions, at least 2 are needed")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        training = self.training or self.running_mean is None
        group = group_of(self.process_set)
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if not training or group.comm is None or group.size == 1:
            return torch.nn.functional.batch_norm(
                input,
                None if training and not self.track_running_stats else self.running_mean,
                None if training and not self.track_running_stats else self.running_var,
                self.weight,
                self.bias,
                training,
                self._factor(),
                self.eps,
            )
        call = Call("SyncBatchNorm", None, self.process_set)
        mean, variance, count = _statistics(input, call)
        if self.track_running_stats and self.training:
            with torch.no_grad():
                factor = self._factor()
                unbiased = variance * (count / max(count - 1.0, 1.0))
                self.running_mean.mul_(1 - factor).add_(mean.to(self.running_mean), alpha=factor)
                self.running_var.mul_(1 - factor).add_(unbiased.to(self.running_var), alpha=factor)
        return _Normalize.apply(input, self.weight, self.bias, mean, variance, self.eps, count, call)

    def _factor(self) -> float:
        if self.momentum is not None:
            return self.momentum
        if self.num_batches_tracked is None:
            return 0.0
        return 1.0 / float(max(self.num_batches_tracked.item(), 1))


def _axes(tensor: torch.Tensor) -> list:
    return [i for i in range(tensor.dim()) if i != 1]


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view([1, -1] + [1] * (like.dim() - 2))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in a type in which sums are precise enough."""
    return tensor if tensor.dtype is torch.float64 else tensor.float()


@torch.no_grad()
def _statistics(input: torch.Tensor, call: Call):
    """Mean and biased variance of all ranks' batches, and the number of elements in a channel. It
    takes two passes, the mean first, to avoid cancellation in the variance."""
    wide, axes = _wide(input), _axes(input)
    mine = wide.numel() / max(wide.shape[1], 1)
    sums = torch.cat([wide.sum(axes), wide.new_tensor([mine])])
    sums = allreduced(call.part("mean"), sums, Sum)
    count = float(sums[-1])
    if count <= 1:
        raise InvalidArgumentError("SyncBatchNorm: one value per channel on all ranks is too few to train")
    mean = sums[:-1] / count
    squares = (wide - _per_channel(mean, wide)).square().sum(axes)
    return mean, allreduced(call.part("variance"), squares, Sum) / count, count


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, mean, variance, eps, count, call):
        wide = _wide(input)
        scale = torch.rsqrt(variance + eps)
        normal = (wide - _per_channel(mean, wide)) * _per_channel(scale, wide)
        ctx.save_for_backward(normal, weight, scale)
        ctx.how = count, call, input.dtype
        result = normal
        if weight is not None:
            result = result * _per_channel(_wide(weight), wide) + _per_channel(_wide(bias), wide)
        return result.to(input.dtype)

    @staticmethod
    def backward(ctx, gradient):
        normal, weight, scale = ctx.saved_tensors
        count, call, dtype = ctx.how
        wide, axes = _wide(gradient), _axes(gradient)
        of_bias, of_weight = wide.sum(axes), (wide * normal).sum(axes)
        both = allreduced(call.part("grad"), torch.cat([of_bias, of_weight]), Sum)
        mean, slope = both.split(len(of_bias))
        result = wide - _per_channel(mean / count, wide) - normal * _per_channel(slope / count, wide)
        factor = scale if weight is None else scale * _wide(weight)
        result = (result * _per_channel(factor, wide)).to(dtype)
        if weight is None:
            return (result,) + (None,) * 7
        of_weight, of_bias = of_weight.to(weight.dtype), of_bias.to(weight.dtype)
        return (result, of_weight, of_bias) + (None,) * 5
