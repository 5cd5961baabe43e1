"""What all ranks have alike, and whole. Whatever is kept for a loss, or sent from one rank to the
others, is a replica; a rank's part of something larger is refused."""

from __future__ import annotations

import functools
import io
import pickle
from typing import Any, List, Tuple

import torch

from ..errors import UnsupportedError

#: What follows in messages, with what works instead.
_PART = (
    "of which this rank holds but a piece, and what is kept or sent must be whole and alike on all ranks: give the state a "
    "function that makes it, TorchState(build=...), or give it whole on every rank (full_tensor(), or get_model_state_dict "
    "with full_state_dict=True and without cpu_offload, which leaves it to rank 0)"
)

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def part(tensor: Any) -> str:
    """What a tensor is whose rank holds a part of it alone; empty = it is not such a tensor."""
    kind = type(tensor)
    if kind in _PLAIN:
        return "a flat parameter of FSDP" if getattr(tensor, "_is_flat_param", False) else ""
    for base in kind.__mro__:
        if base.__name__ in ("DTensor", "ShardedTensor") and base.__module__.startswith("torch.distributed."):
            return f"a {base.__name__}"
        if base.__name__ == "FlatParameter":
            return "a flat parameter of FSDP"
    return ""


@functools.lru_cache(maxsize=None)
def divides(kind: type) -> str:
    """What in the ancestry of a class divides its tensors among the ranks; empty = nothing."""
    for base in kind.__mro__:
        if base.__name__ in ("FSDPModule", "FullyShardedDataParallel", "ZeroRedundancyOptimizer"):
            return base.__name__
    return ""


def check_undivided(name: str, value: Any) -> None:
    """Raises for a module or an optimizer that divides its tensors among the ranks."""
    if divides(type(value)):
        raise UnsupportedError(f"{name} is sharded by {divides(type(value))}: it has tensors {_PART}")


def check_whole(name: str, value: Any) -> None:
    """Raises for a tensor, a module or an optimizer of which this rank holds a part."""
    if isinstance(value, torch.Tensor):
        if part(value):
            raise UnsupportedError(f"{name} is {part(value)}, {_PART}")
    elif isinstance(value, torch.nn.Module):
        for prefix, module in value.named_modules():
            for table in (module._parameters, module._buffers):
                for key, tensor in table.items():
                    if type(tensor) not in _PLAIN and tensor is not None and part(tensor):
                        where = f"{name}.{prefix}.{key}" if prefix else f"{name}.{key}"
                        raise UnsupportedError(f"{where} is {part(tensor)}, {_PART}")
            check_undivided(f"{name}.{prefix}" if prefix else name, module)
    elif isinstance(value, torch.optim.Optimizer):
        check_undivided(name, value)
        for i, p in enumerate(p for group in value.param_groups for p in group["params"]):
            if part(p):
                raise UnsupportedError(f"{name} has as parameter {i} {part(p)}, {_PART}")


def unkept(tensor: torch.Tensor) -> str:
    """Why the bytes of a tensor's memory are not all that it is; empty = they are."""
    kind = type(tensor)
    what = part(tensor)
    if what:
        return f"{what}, {_PART}"
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        return "not there yet: run the lazy module once before"
    if tensor.is_meta:
        return "on the meta device, without data: give it memory before (to_empty)"
    if getattr(tensor, "is_nested", False):
        return "a nested tensor, which has no single shape"
    if kind not in _PLAIN and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {kind.__name__}, which does not say what memory it is made of"
    if tensor.layout is not torch.strided:
        return f"of the layout {tensor.layout}: make it dense"
    if tensor.is_quantized:
        return "quantized, and its scale is not in its memory: dequantize it"
    return ""


def check(name: str, tensor: torch.Tensor) -> None:
    """Raises for a tensor that cannot be kept as bytes, which are the same on all ranks."""
    why = unkept(tensor)
    if why:
        raise UnsupportedError(f"{name} is {why}")


class _Pickler(pickle.Pickler):
    """Refuses parts of tensors, wherever they are, and notes the others."""

    def __init__(self, out: Any):
        super().__init__(out)
        self.tensors: List[str] = []

    def reducer_override(self, value: Any) -> Any:
        """Called for all that is not of a type of Python's own."""
        what = part(value)
        if what:
            raise UnsupportedError(f"{what}, {_PART}")
        if isinstance(value, torch.Tensor):
            self.tensors.append(f"{value.dtype}{list(value.shape)}")
        return NotImplemented


def dumps(value: Any) -> Tuple[bytes, List[str]]:
    """Pickles a value, and describes the tensors in it, in their order. Raises UnsupportedError if
    there is one of which this rank holds a part."""
    out = io.BytesIO()
    pickler = _Pickler(out)
    pickler.dump(value)
    return out.getvalue(), pickler.tensors
