"""The device meshes of a generation that is over, which torch does not forget.

Two meshes of the same ranks and names are equal for torch, also if their groups are not the same:
what DTensor has cached for the mesh of an earlier generation would use the groups of that one.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from typing import Any, List, Tuple

import torch.distributed as dist
from torch.distributed import distributed_c10d

_PROPAGATOR = "DTensor._op_dispatcher.sharding_propagator"

#: Caches of DTensor whose keys or values hold meshes, by module; those that a version of torch lacks
#: are passed over.
_CACHES: List[Tuple[str, str]] = [
    ("torch.distributed.tensor._api", f"{_PROPAGATOR}.propagate_op_sharding.cache_clear"),
    ("torch.distributed.tensor._api", f"{_PROPAGATOR}._propagate_tensor_meta_cached.cache_clear"),
    ("torch.distributed.tensor._redistribute", "_gen_transform_infos.cache_clear"),
    ("torch.distributed.tensor._redistribute", "clear_redistribute_planner_cache"),
    ("torch.distributed.tensor._collective_utils", "MeshTopoInfo.build_from_mesh.cache_clear"),
    ("torch._C", "_clear_DTensor_sharding_propagator_cache"),
]


def forget() -> None:
    """Destroys the groups of this process but the default one, and clears what is cached for meshes
    over them."""
    for group in [g for g in distributed_c10d._world.pg_map if g is not dist.group.WORLD]:
        with suppress(RuntimeError, ValueError):  # it is of no use to anybody, whatever state it is in
            dist.destroy_process_group(group)
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

