"""DistributedDataParallel's built-in hook that sends gradients as 16 bits.

It is C++, and takes results that only futures of C++ have. On a group of this backend torch's hook in
Python takes its place, which does the same.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .operations import BACKEND


def install() -> None:
    """Replaces the hook from here on. It may be called repeatedly."""
    method = DistributedDataParallel._register_builtin_comm_hook
    if hasattr(method, "_regroup"):
        return

    @functools.wraps(method)
    def register(self: Any, comm_hook_type: Any) -> Any:
        fp16 = comm_hook_type == dist.BuiltinCommHookType.FP16_COMPRESS
        if not fp16 or dist.get_backend(self.process_group) != BACKEND:
            return method(self, comm_hook_type)
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        if hasattr(self, "logger") and self.logger is not None:
            self.logger._set_comm_hook_name(str(comm_hook_type))
        dist._register_comm_hook(self.reducer, self.process_group, fp16_compress_hook)
        return None

    register._regroup = True  # type: ignore[attr-defined]
    DistributedDataParallel._register_builtin_comm_hook = register
