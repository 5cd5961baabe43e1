"""Objects, parameters and optimizers, from one rank to all."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from ..errors import InvalidArgumentError
from . import replicas
from .broadcast_ops import BROADCAST
from .calls import Call
from .gather_ops import ALLGATHER
from .handles import Handles
from .world import world

__all__ = [
    "allgather_object",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_optimizer_state",
    "broadcast_parameters",
]


def _bytes(pickled: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickled), dtype=torch.uint8)


def _unpickled(data: torch.Tensor) -> Any:
    return pickle.loads(ctypes.string_at(data.data_ptr(), data.numel()))


def broadcast_object(obj: Any = None, root_rank: int = 0, name: Optional[str] = None, process_set: Any = None) -> Any:
    """Returns root_rank's object, which must be picklable. Raises UnsupportedError if it holds a
    tensor of which root_rank has a part alone, like a DTensor.

    The other ranks unpickle what they receive, and unpickling can run any code: anybody who can act
    as root_rank can run code on all ranks. Use it among processes that trust each other."""
    call = Call("broadcast_object", name, process_set)
    length = call.part("length")
    with length:  # for which the others wait first
        root = call.group.rank == call.group.index(root_rank, "root_rank")
        data = _bytes(replicas.dumps(obj)[0]) if root else torch.empty(0, dtype=torch.uint8)
    if call.comm is None:
        return obj
    size = torch.tensor([data.numel()])
    size = BROADCAST.start(length, size, root_rank, inplace=True, wait=True).synchronize()
    if not root:
        data = torch.empty(int(size), dtype=torch.uint8)
    data = BROADCAST.start(call, data, root_rank, inplace=True, wait=True).synchronize()
    return obj if root else _unpickled(data)


def broadcast_object_fn(
    root_rank: int = 0, session: Any = None, name: Optional[str] = None, process_set: Any = None
) -> Callable[[Any], Any]:
    """A function that broadcasts objects from root_rank."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: Any = None) -> List[Any]:
    """The objects of all ranks, in their order. They must be picklable.

    Every rank unpickles what the others send, and unpickling can run any code: use it among
    processes that trust each other, and tensors or JSON otherwise."""
    call = Call("allgather_object", name, process_set)
    if call.comm is None:
        return [obj]
    lengths = call.part("lengths")
    with call, lengths:  # the others wait for both
        data = _bytes(pickle.dumps(obj))
    given = (call, data), (lengths, torch.tensor([data.numel()]))
    gathered, sizes = Handles([ALLGATHER.start(*one) for one in given]).synchronize()
    return [_unpickled(part) for part in gathered.split(sizes.tolist())]


Parameters = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]


def broadcast_parameters(params: Parameters, root_rank: int = 0, process_set: Any = None) -> None:
    """Copies root_rank's tensors into those of all ranks: ``model.state_dict()`` or
    ``model.named_parameters()``."""
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    else:
        pairs = list(params)
    started = []
    for name, tensor in pairs:
        if tensor is None:
            continue
        call = Call("broadcast", f"parameters.{name}", process_set)
        with call:
            if not isinstance(tensor, torch.Tensor):
                raise InvalidArgumentError(f"{name} is a {type(tensor).__name__}, not a tensor")
        started.append(BROADCAST.start(call, tensor.data, root_rank, inplace=True))
    Handles(started).synchronize()


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int = 0, model: Any = None, process_set: Any = None
) -> None:
    """Copies root_rank's optimizer state to all ranks. Unlike Horovod it makes no step for that;
    but as after that step, the parameters of an optimizer without state have zero gradients."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InvalidArgumentError("the state of LBFGS cannot be broadcast")
    if not optimizer.state:
        for p in (p for group in optimizer.param_groups for p in group["params"]):
            if p.requires_grad and p.grad is None:
                p.grad = torch.zeros_like(p)
    if world.communicator is None:
        return
    state = optimizer.state_dict()
    outline = {
        "groups": state["param_groups"],
        "state": {
            number: {
                key: (value.shape, value.dtype) if isinstance(value, torch.Tensor) else (None, value)
                for key, value in entries.items()
            }
            for number, entries in state["state"].items()
        },
    }
    outline = broadcast_object(outline, root_rank, "optimizer", process_set)
    root = world.membership.rank == root_rank
    received: dict = {}
    started = []
    for number, entries in outline["state"].items():
        received[number] = {}
        for key, (shape, value) in entries.items():
            if shape is None:
                received[number][key] = value
                continue
            # In the host's memory on all ranks: the others do not know root's device.
            tensor = state["state"][number][key].cpu() if root else torch.zeros(shape, dtype=value)
            received[number][key] = tensor
            call = Call("broadcast", f"optimizer.{number}.{key}", process_set)
            started.append(BROADCAST.start(call, tensor, root_rank, inplace=True))
    Handles(started).synchronize()
    if not root:
        optimizer.load_state_dict({"state": received, "param_groups": outline["groups"]})
