"""allreduce, and grouped_allreduce, which reduces many tensors at once."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ..errors import InvalidArgumentError
from . import tensors
from .calls import Call, signature
from .compression import Compression
from .gpus import engine
from .handles import Handle, Handles
from .operation import Operation, Past
from .reductions import Average, Max, Min, Reduction, Sum, reduction, scale_


class Allreduce(Operation):
    """Reduces the ranks' tensors."""

    name = "allreduce"

    def how(
        self,
        tensor: torch.Tensor,
        average: Optional[bool] = None,
        name: Optional[str] = None,
        compression: Any = Compression.none,
        op: Optional[int] = None,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: Any = None,
    ) -> Reduction:
        return Reduction(reduction(op, average), compression, prescale_factor, postscale_factor)

    def start(
        self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False, detail: str = ""
    ) -> Handle:
        """Starts it. detail must be equal on all ranks, by default what the tensor is."""
        with call:
            tensors.check(tensor)
            given = tensor.detach()
            packed, ctx = given, None
            native = given.dtype is torch.float32 and how.compression.wire is not None
            if not native:
                packed, ctx = how.compression.compress(given)
            pairs, gpu = tensors.pairs(packed), engine(call.comm, given)
            memory = tensors.Memory([pairs], gpu, own=inplace and pairs.data_ptr() == given.data_ptr())
            work, where, op = memory.flat, memory.reduced(), tensors.boolean(memory.flat, how.op)
            if packed.is_complex() and op not in (Sum, Average):
                raise InvalidArgumentError("complex numbers can be added and averaged only")
            scale_(work, how.pre)
            wire = how.compression.wire if native else 0
            # Divided here, because the engine multiplies with the reciprocal, which may round
            # differently unless it is a power of two. The engine averages half-precision floats, in
            # float32.
            exact = call.group.size & (call.group.size - 1) == 0
            divide = op == Average and work.dtype in (torch.float32, torch.float64) and not (wire or exact)
            detail = detail or signature(given, *how.scales())
            if divide:
                op, detail = Sum, detail + " averaged"
        request = None
        if gpu is not None:
            request = gpu.allreduce(work, op, wire, start=True, name=call.name, detail=detail, ordered=wait)
        elif call.comm is not None:
            request = call.comm.named.allreduce(*where, op, wire, start=not wait, name=call.name, detail=detail)

        def finish() -> torch.Tensor:
            if divide:
                work.div_(call.group.size)
            scale_(work, how.post)
            if memory.own:
                return tensor
            result = work.to(given.device)
            if packed.is_complex():
                result = torch.view_as_complex(result)
            if not native:
                result = how.compression.decompress(result, ctx)
            if not inplace:
                return result
            given.copy_(result)
            return tensor

        return Handle(request, finish)

    def saved(self, tensors: Sequence[torch.Tensor], result: Any, how: Any) -> Sequence[torch.Tensor]:
        if how.op in (Sum, Average):
            return ()
        return (*tensors, *(result if self.grouped else [result]))

    def gradient(self, past: Past, gradient: Any) -> Any:
        if past.how.op in (Sum, Average):
            return self.start(past.call.part("grad"), gradient, past.how, wait=True).synchronize()
        tensor, result = past.saved
        return _chosen(past.call, gradient, tensor, result, past.how)


class GroupedAllreduce(Allreduce):
    """Reduces many tensors at once: as one allreduce for all of a type and device. All ranks pass the
    same list."""

    grouped = True

    def start(
        self, call: Call, tensor: Any, how: Any, inplace: bool = False, wait: bool = False, detail: str = ""
    ) -> Handle:
        kinds: Dict[Tuple[Any, ...], List[int]] = {}
        with call:
            if isinstance(tensor, torch.Tensor):
                raise InvalidArgumentError("a grouped operation takes a list of tensors")
            for i, t in enumerate(tensor):
                tensors.check(t, f"tensor {i}")
                kinds.setdefault((t.dtype, t.device), []).append(i)
        shapes = "; ".join(signature(t) for t in tensor)
        if len(shapes) > 200:
            shapes = f"{shapes[:150]} ... {hashlib.sha256(shapes.encode()).hexdigest()[:16]}"
        detail = f"group of {len(tensor)}: {shapes} " + " ".join(how.scales())
        started = []
        for part, members in zip(call.parts(len(kinds)), kinds.values()):
            flat = torch.cat([tensor[i].detach().reshape(-1) for i in members])
            started.append(ALLREDUCE.start(part, flat, how, True, wait, detail))

        def finish(flats: List[torch.Tensor]) -> List[torch.Tensor]:
            results: List[Any] = list(tensor)
            for members, flat in zip(kinds.values(), flats):
                for i, part in zip(members, flat.split([tensor[i].numel() for i in members])):
                    if inplace:
                        tensor[i].detach().copy_(part.view(tensor[i].shape))
                    else:
                        results[i] = part.view(tensor[i].shape).clone()
            return results

        return Handles(started, finish)

    def gradient(self, past: Past, gradient: Any) -> Any:
        if past.how.op in (Sum, Average):
            return super().gradient(past, gradient)
        n = len(gradient)
        each = enumerate(zip(gradient, past.saved[:n], past.saved[n:]))
        return [_chosen(past.call.part(str(i)), *one, past.how) for i, one in each]


ALLREDUCE = Allreduce()


def allreduced(call: Call, tensor: torch.Tensor, op: int) -> torch.Tensor:
    """The tensor, reduced at once."""
    return ALLREDUCE.start(call, tensor, Reduction(op), wait=True).synchronize()


def _chosen(
    call: Call, gradient: torch.Tensor, tensor: torch.Tensor, result: torch.Tensor, how: Reduction
) -> torch.Tensor:
    """The gradient of an allreduce with Product, Min or Max."""
    total = allreduced(call.part("grad.sum"), gradient, Sum) * (how.pre * how.post)
    if how.op in (Min, Max):
        scaled = tensor.clone()
        scale_(scaled, how.pre)
        scale_(scaled, how.post)
        mine = (scaled == result).to(gradient.dtype)  # equal elements share the gradient
        return total * mine / allreduced(call.part("grad.equal"), mine, Sum)
    # The product of the others: this rank's element may be zero, so it cannot be divided by.
    size, rank = call.group.size, call.group.rank
    own = torch.zeros((size,) + tuple(tensor.shape), dtype=tensor.dtype, device=tensor.device)
    own[rank] = tensor
    gathered = allreduced(call.part("grad.factors"), own, Sum) * how.pre
    return total * torch.cat([gathered[:rank], gathered[rank + 1 :]]).prod(0)
