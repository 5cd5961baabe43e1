"""The device meshes of a generation that is over, which torch does not forget.

Two meshes of the same ranks and names are equal for torch, also if their groups are not the same:
what DTensor has cached for the mesh of an earlier generation would use the groups of that one.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import sys
import weakref
from contextlib import suppress
from typing import Any, List, Tuple

from torch.distributed.device_mesh import DeviceMesh

_PROPAGATOR = "DTensor._op_dispatcher.sharding_propagator"

#: Caches of DTensor whose keys or values hold meshes, by module; those that a version of torch lacks
#: are passed over.
_CACHES: List[Tuple[str, str]] = [
    ("torch.distributed.tensor._api", f"{_PROPAGATOR}.propagate_op_sharding.cache_clear"),
    ("torch.distributed.tensor._api", f"{_PROPAGATOR}.propagate_op_sharding.cache.cache_clear"),  # torch 2.9
    ("torch.distributed.tensor._api", f"{_PROPAGATOR}._propagate_tensor_meta_cached.cache_clear"),
    ("torch.distributed.tensor._api", f"{_PROPAGATOR}._propagate_tensor_meta.cache_clear"),  # torch 2.9
    ("torch.distributed.tensor._redistribute", "_gen_transform_infos.cache_clear"),
    ("torch.distributed.tensor._redistribute", "clear_redistribute_planner_cache"),
    ("torch.distributed.tensor._collective_utils", "MeshTopoInfo.build_from_mesh.cache_clear"),
    ("torch._C", "_clear_DTensor_sharding_propagator_cache"),
]

#: The meshes that were made since record, and since they were forgotten last.
_meshes: "weakref.WeakValueDictionary[int, DeviceMesh]" = weakref.WeakValueDictionary()  # not by what they are equal to

#: What tells forgotten meshes from others.
_numbers = itertools.count(1)


@functools.lru_cache(maxsize=None)  # once
def record() -> None:
    """Notes each mesh from here on, of which torch has no list."""
    make = DeviceMesh.__init__

    @functools.wraps(make)
    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        _meshes[id(self)] = self
        make(self, *args, **kwargs)

    DeviceMesh.__init__ = noted  # type: ignore[method-assign]


def forget() -> None:
    """Clears what is cached for the meshes of groups that are about to end.

    Some caches are there once for each thread, like those that torch starts for the backward passes of
    devices, and cannot be cleared from here. So the meshes are made unlike any other, by the number of
    the thread that has made them, which torch compares as well.
    """
    number = -next(_numbers)
    for mesh in list(_meshes.values()):
        mesh._thread_id = number
    _meshes.clear()
    if "torch.distributed.tensor" not in sys.modules:
        return
    for module, path in _CACHES:
        clear = _find(module, path)
        if clear is not None:
            clear()


def _find(module: str, path: str) -> Any:
    """What a path of attributes in a module leads to; None if it does not lead anywhere."""
    with suppress(ImportError, AttributeError):
        found: Any = importlib.import_module(module)
        for name in path.split("."):
            found = getattr(found, name)
        return found
    return None
