"""What the installed torch can do. Decisions are made by features, never by version numbers."""

from __future__ import annotations

import inspect

import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

#: Operations reach a Backend that is written in Python (since torch 2.14). Before, the process
#: group itself is the Python class, and torch.distributed calls its methods.
PYTHON_BACKEND = hasattr(c10d.Backend, "get_reconfigure_handle")

#: A group can be given other members (torch 2.14).
RECONFIGURE = hasattr(dist.distributed_c10d, "_reconfigure") and (
    "enable_reconfigure" in inspect.signature(dist.init_process_group).parameters
)

#: There is a backend for NCCL whose groups can be given other members (torch 2.14).
NCCL2 = hasattr(c10d, "ProcessGroupNCCL2")
