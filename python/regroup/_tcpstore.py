"""torch.distributed.TCPStore on a PyTorch with or without libuv."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def tcp_store(host: str, port: int, **options: Any) -> dist.TCPStore:
    """A server or a client of a store. Both ask for libuv unless told otherwise, also where torch was
    built without it."""
    options.setdefault("wait_for_workers", False)
    try:
        return dist.TCPStore(host, port, **options)
    except RuntimeError as e:
        if "libuv" not in str(e):
            raise
        return dist.TCPStore(host, port, use_libuv=False, **options)
