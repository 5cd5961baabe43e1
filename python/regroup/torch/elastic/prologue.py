"""The operations before elastic.run. Their results are recorded, for workers that join later or
again."""

from __future__ import annotations

import functools
import io
import threading
from typing import Any, Callable, List, Mapping, Set

import torch

from ... import _library as lib
from ...errors import DivergedError, RegroupError, WorkerLostError
from .. import handles
from ..world import describe, world

#: Results of more bytes than LIMIT are not stored, nor any beyond TOTAL together.
LIMIT, TOTAL = 64 << 20, 192 << 20

#: Operations whose results are the same on all ranks. Others are executed and not recorded.
RECORDED = {
    "allreduce": False,
    "allreduce_": True,  # True: tensors of the arguments are written
    "grouped_allreduce": False,
    "grouped_allreduce_": True,
    "allgather": False,
    "grouped_allgather": False,
    "broadcast": False,
    "broadcast_": True,
    "broadcast_object": False,
    "allgather_object": False,
    "broadcast_parameters": True,
    "broadcast_optimizer_state": True,
    "barrier": False,
}


class Unanswered:
    """Stands for a result that was too large to be stored. Its name is part of the stored entries."""


class Prologue:
    """The operations of this process before elastic.run, in order.

    Each is executed once, by the ranks that reach it first. A worker that reaches it later, because
    it was restarted or is new, gets the recorded result. If a worker is lost during one, the others
    regroup and repeat it.
    """

    def __init__(self, of: Any):
        self._world = of
        self._at = 0  # operations that this process has executed or replayed
        self._room = TOTAL
        self._busy = threading.RLock()
        self._inside = False
        self.too_large: List[torch.Tensor] = []  # tensors that must be part of the state

    def call(self, operation: Callable, args: tuple, kwargs: dict) -> Any:
        """Executes an operation, or replays its recorded result."""
        with self._busy:
            if self._inside:  # an operation that consists of others
                return operation(*args, **kwargs)
            self._inside = True
            try:
                return self._call(operation, args, kwargs)
            finally:
                self._inside = False

    def _call(self, operation: Callable, args: tuple, kwargs: dict) -> Any:
        name = operation.__name__
        if name == "broadcast_parameters" and args and not isinstance(args[0], Mapping):
            args = (list(args[0]), *args[1:])  # an iterator can be read once
        given = _tensors((args, kwargs)) if RECORDED[name] else []
        originals = [t.detach().clone() for t in given] if name.endswith("allreduce_") else []
        signature = name
        if not name.endswith("object"):
            first = 1 if name.endswith("allgather") else 0  # ranks may have different rows
            signature += _outline(args, first) + _outline(kwargs, first)
        while True:
            recorded = self._world.job.prologue_entry(self._at)
            if recorded is not None:
                result = self._answer(signature, recorded, args, kwargs, given)
                break
            try:
                result = operation(*args, **kwargs)
            except WorkerLostError as e:
                self._regroup(e)
                for tensor, original in zip(given, originals):
                    tensor.data.copy_(original)
                continue
            stored = _storable(name, result, args, kwargs, given)
            packed = _packed(signature, stored, min(LIMIT, self._room))
            self._room -= len(packed)
            self._world.job.add_prologue(packed)
            break
        self._at += 1
        return result

    def _regroup(self, lost: Exception) -> None:
        """Joins the next generation."""
        w = self._world
        handles.forget()
        w.leave()
        w.stage = None
        w.job.leave(lib.PEER_LOST, describe(lost))
        if not w.next_generation():
            raise RegroupError("the training has ended without this worker") from lost

    def _answer(self, signature: str, recorded: bytes, args: tuple, kwargs: dict, given: list) -> Any:
        self._room -= len(recorded)
        theirs, stored = torch.load(io.BytesIO(recorded), map_location="cpu", weights_only=False)
        if theirs != signature:
            raise DivergedError(
                f"before elastic.run all workers call the same operations in the same order: number {self._at + 1} "
                f"is {signature} here and was {theirs} on others"
            )
        name = signature.partition("(")[0]
        if isinstance(stored, Unanswered):
            if name == "broadcast_optimizer_state":
                optimizer = _argument(args, kwargs, "optimizer")
                self.too_large += [p for g in optimizer.param_groups for p in g["params"][:1]]
                return None
            if not given:
                raise RegroupError(
                    f"{signature}: its result is too large to be kept for a worker that comes later; move it into the "
                    "function of elastic.run"
                )
            self.too_large += given
            return args[0] if name in ("allreduce_", "broadcast_") and args else None
        if name == "broadcast_optimizer_state":
            _argument(args, kwargs, "optimizer").load_state_dict(stored)
            return None
        if RECORDED[name]:
            with torch.no_grad():
                for tensor, value in zip(given, stored):
                    tensor.data.copy_(value)
            if name == "broadcast_parameters":
                return None
            first = args[0] if args else next(iter(kwargs.values()))
            return first
        where = next((t.device for t in _tensors((args, kwargs))), None)
        return stored if where is None else _to_device(stored, where)

    def check(self, state: Any) -> None:
        """Checks that tensors that were too large to be stored are part of the state."""
        covered: Set[int] = state._addresses() if self.too_large else set()
        for tensor in self.too_large:
            if tensor.numel() > 0 and tensor.data_ptr() not in covered:
                raise RegroupError(
                    f"a tensor of shape {tuple(tensor.shape)} that was broadcast before elastic.run is too large to be "
                    "kept for a worker that comes later, and is not part of the state: add it to the TorchState"
                )


def recorded(operation: Callable) -> Callable:
    """Decorates an operation of the API so that its result is recorded, and replayed for a worker
    that joins later."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not world.recording or world.mode is None:
            return operation(*args, **kwargs)
        if world.prologue is None:
            world.prologue = Prologue(world)
        return world.prologue.call(operation, args, kwargs)

    return call


def _argument(args: tuple, kwargs: dict, name: str) -> Any:
    return args[0] if args else kwargs[name]


def _tensors(value: Any) -> List[torch.Tensor]:
    """The tensors in arguments, in a fixed order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, torch.optim.Optimizer):
        return [t for s in value.state.values() for t in s.values() if torch.is_tensor(t)]
    if isinstance(value, dict):
        return [t for key in sorted(value, key=str) for t in _tensors(value[key])]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in _tensors(v)]
    return []


def _outline(value: Any, first: int) -> str:
    """What must be equal on all ranks: names, numbers such as the root and the reduction, types,
    and shapes beginning with dimension first."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}{list(value.shape[first:])}"
    if value is None or isinstance(value, (str, bool, int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"({', '.join(_outline(v, first) for v in value)})"
    if isinstance(value, dict):
        parts = (f"{key}={_outline(value[key], first)}" for key in sorted(value, key=str))
        return f"({', '.join(parts)})" if value else ""
    return "."


def _storable(name: str, result: Any, args: tuple, kwargs: dict, given: list) -> Any:
    """The value to record for an operation that was executed."""
    if name == "broadcast_optimizer_state":
        value = _argument(args, kwargs, "optimizer").state_dict()
    elif RECORDED[name]:
        value = [t.detach() for t in given]
    elif isinstance(result, torch.Tensor):
        value = result.detach()
    else:
        value = [t.detach() for t in result] if _all_tensors(result) else result
    size = sum(t.numel() * t.element_size() for t in _tensors(value))
    return Unanswered() if size > LIMIT else _to_device(value, "cpu")


def _all_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(torch.is_tensor(v) for v in value)


def _to_device(value: Any, where: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(where)
    if _all_tensors(value):
        return [t.to(where) for t in value]
    return value


def _packed(signature: str, stored: Any, room: int) -> bytes:
    out = io.BytesIO()
    torch.save((signature, stored), out)
    if out.tell() > room + (1 << 20):
        out = io.BytesIO()
        torch.save((signature, Unanswered()), out)
    return out.getvalue()
