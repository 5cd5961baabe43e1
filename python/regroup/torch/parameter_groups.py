"""What fully_shard knows of the parameters that it has divided among the ranks."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import torch

from .replicas import divides


def parameter_groups(model: torch.nn.Module) -> Iterator[Tuple[Any, Any]]:
    """The modules of a model to which fully_shard was applied, each with a group of parameters whose gradients it
    reduces together. Since PyTorch 2.12 a module may have several."""
    for module in model.modules():
        if divides(type(module)) == "FSDPModule":
            state = module._get_fsdp_state()  # type: ignore[operator]
            groups = getattr(state, "_fsdp_param_groups", None)
            for group in [state._fsdp_param_group] if groups is None else groups:
                if group is not None:
                    yield module, group
