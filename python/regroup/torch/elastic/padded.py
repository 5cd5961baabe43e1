"""Parts of fully_shard that are smaller than those of other ranks, which torch gives other memory."""

from __future__ import annotations

import functools

import torch

from .. import replicas


def settle(model: torch.nn.Module) -> None:
    """Has torch put the parts of a model where they stay.

    Such a part is in memory of the size of the others. Torch 2.9 and older copies it into new memory at
    the first forward pass, although it has such memory already, and what was registered before would
    not be in use. So it is done here, and torch takes it as done.
    """
    for module in model.modules():
        if replicas.divides(type(module)) != "FSDPModule" or not _moves():
            continue
        group = module._get_fsdp_state()._fsdp_param_group  # type: ignore[operator]
        if group is None or not group.is_sharded or group._reset_sharded_params:
            continue
        for part in group.fsdp_params:
            part.reset_sharded_param()
            part._init_extensions()
        group._reset_sharded_params = True


@functools.lru_cache(maxsize=None)  # once
def _moves() -> bool:
    """Whether the installed torch copies such a part again and again."""
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    return "same_local_tensor" not in FSDPParam.reset_sharded_param.__code__.co_varnames
