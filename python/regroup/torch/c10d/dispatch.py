"""Operations of a group for callers in Python: through torch's dispatcher, and back to the Work that
the backend made. What the dispatcher returns in its place has only wait and get_future.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .backend import Backend


class Dispatch(dist.ProcessGroup):
    """The operations of dist.ProcessGroup, which are documented there."""

    _inner: Backend

    def allreduce(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().allreduce(*arguments, **options))

    def allreduce_coalesced(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().allreduce_coalesced(*arguments, **options))

    def reduce(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().reduce(*arguments, **options))

    def broadcast(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().broadcast(*arguments, **options))

    def allgather(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().allgather(*arguments, **options))

    def allgather_coalesced(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().allgather_coalesced(*arguments, **options))

    def all_gather_single(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().all_gather_single(*arguments, **options))

    def all_gather_single_coalesced(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().all_gather_single_coalesced(*arguments, **options))

    def reduce_scatter(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().reduce_scatter(*arguments, **options))

    def reduce_scatter_single(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().reduce_scatter_single(*arguments, **options))

    def reduce_scatter_single_coalesced(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().reduce_scatter_single_coalesced(*arguments, **options))

    def all_to_all_single(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().all_to_all_single(*arguments, **options))

    def alltoall(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().alltoall(*arguments, **options))

    def gather(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().gather(*arguments, **options))

    def scatter(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().scatter(*arguments, **options))

    def send(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().send(*arguments, **options))

    def recv(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().recv(*arguments, **options))

    def recv_anysource(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().recv_anysource(*arguments, **options))

    def barrier(self, *arguments: Any, **options: Any) -> Any:
        return self._inner.returned(super().barrier(*arguments, **options))
