"""Has torch use other memory for the parts of a model than that in which it was made."""

from __future__ import annotations

import ctypes
from typing import Any, Iterable, List

import torch

from ..parameter_groups import parameter_groups
from . import layout
from .arena import tensor_of


class Movable:
    """A part of a DTensor on the host that can be in any memory."""

    def __init__(self, tensor: torch.Tensor, param: Any):
        self._local, self._param = layout.local(tensor), param
        self.size = self._local.nbytes

    def move(self, memory: ctypes.Array, keep: bool) -> None:
        """Moves it, with its content or without, and tells torch."""
        with torch.no_grad():
            into = tensor_of(memory, self._local.shape, self._local.dtype)
            if keep:
                into.copy_(self._local)
            self._local.set_(into)  # type: ignore[call-overload]
        if self._param is not None:
            self._param.reset_sharded_param()  # as after load_state_dict(assign=True)


def movable(models: Iterable[torch.nn.Module], tensors: Iterable[torch.Tensor]) -> List[Movable]:
    """The parts of the tensors of models that can be moved: they are all that is in their storage, and nothing
    else uses it, like a view that build has made."""
    params = {id(p.sharded_param): p for model in models for _, g in parameter_groups(model) for p in g.fsdp_params}
    candidates = ((t, params.get(id(t))) for t in tensors if layout.dtensor(t))
    return [Movable(tensor, param) for tensor, param in candidates if _alone(layout.local(tensor), param)]


def _alone(local: torch.Tensor, param: Any) -> bool:
    if type(local) is not torch.Tensor or local.device.type != "cpu" or local._is_view() or local.is_pinned():
        return False
    storage, users = local.untyped_storage(), {id(local)}
    if not local.is_contiguous() or not 0 < local.nbytes == storage.nbytes():
        return False
    if param is not None and param._sharded_param_data.data_ptr() == local.data_ptr():
        users |= {id(t) for t in (param._sharded_param_data, param._sharded_param_data._base) if t is not None}
    return torch._C._storage_Use_Count(storage._cdata) == len(users) + 1  # and this function
