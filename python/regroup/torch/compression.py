"""Compression of gradients on the wire. The names and methods are those of Horovod."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import torch

from .. import _library as lib


class Compressor:
    """A compression of tensors. Derive from it for one of your own: two static methods."""

    #: The engine's type on the wire, for compressors that the engine carries out itself.
    wire: Optional[int] = None

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        """Returns the tensor to send, and the context that decompress needs."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns the original form of the tensor."""
        return tensor


class NoneCompressor(Compressor):
    """Sends tensors as they are."""


def _narrow(tensor: torch.Tensor, to: torch.dtype) -> Tuple[torch.Tensor, Any]:
    if tensor.dtype.is_floating_point and tensor.element_size() > 2:
        return tensor.to(to), tensor.dtype
    return tensor, None


class FP16Compressor(Compressor):
    """Sends floats as float16. float32 is summed in float32 all the same."""

    wire = lib.FLOAT16

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return _narrow(tensor, torch.float16)

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class BF16Compressor(FP16Compressor):
    """Sends floats as bfloat16: with the range of float32, and fewer digits."""

    wire = lib.BFLOAT16

    @staticmethod
    def compress(tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        return _narrow(tensor, torch.bfloat16)


class Compression:
    """The predefined compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
