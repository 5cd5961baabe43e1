"""Objects, parameters and optimizers, from one rank to all."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from .. import _library as lib
from ..errors import InvalidArgumentError
from .broadcasting import broadcast_
from .operations import _alone_group
from .world import allgather_bytes, world


def broadcast_object(
    obj: Any = None, root_rank: int = 0, name: Optional[str] = None, process_set: Any = None
) -> Any:
    """Returns root_rank's object, which must be picklable. Only among processes that trust each other."""
    _alone_group(process_set)
    made = world.communicator
    if made is None:
        return obj
    data = pickle.dumps(obj) if made.rank == root_rank else b""
    size = ctypes.c_int64(len(data))
    made.broadcast(ctypes.addressof(size), 1, lib.INT64, root_rank)
    memory = (ctypes.c_char * size.value).from_buffer(bytearray(data or size.value))
    made.broadcast(ctypes.addressof(memory), size.value, lib.UINT8, root_rank)
    return obj if made.rank == root_rank else pickle.loads(memory)


def broadcast_object_fn(root_rank: int = 0, session: Any = None, name: Optional[str] = None):
    """A function that broadcasts objects from root_rank."""
    return lambda obj: broadcast_object(obj, root_rank, name)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: Any = None) -> List[Any]:
    """The objects of all ranks, in their order."""
    _alone_group(process_set)
    return [pickle.loads(b) for b in allgather_bytes(pickle.dumps(obj))]


Parameters = Union[Mapping[str, Any], Iterable[Tuple[str, Any]]]


def broadcast_parameters(params: Parameters, root_rank: int = 0) -> None:
    """Copies root_rank's tensors into those of all ranks: ``model.state_dict()`` or ``model.named_parameters()``."""
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    else:
        pairs = list(params)
    for name, tensor in pairs:
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgumentError(f"{name} is a {type(tensor).__name__}, not a tensor")
        broadcast_(tensor.data, root_rank, name)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives all ranks root_rank's optimizer state. No step is made for it, as Horovod does."""
    if world.communicator is None:
        return
    state = optimizer.state_dict()
    outline = {
        "groups": state["param_groups"],
        "state": {
            number: {
                key: (value.shape, value.dtype)
                if isinstance(value, torch.Tensor)
                else (None, value)
                for key, value in entries.items()
            }
            for number, entries in state["state"].items()
        },
    }
    outline = broadcast_object(outline, root_rank)
    root = world.place.rank == root_rank
    made: dict = {}
    for number, entries in outline["state"].items():
        made[number] = {}
        for key, (shape, value) in entries.items():
            if shape is None:
                made[number][key] = value
                continue
            # In the host's memory on all ranks: the others do not know where root has it.
            tensor = state["state"][number][key].cpu() if root else torch.zeros(shape, dtype=value)
            made[number][key] = tensor
            broadcast_(tensor, root_rank)
    if not root:
        optimizer.load_state_dict({"state": made, "param_groups": outline["groups"]})
