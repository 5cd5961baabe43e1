"""Operations of ranks on memory addresses. Does not depend on torch."""

from __future__ import annotations

from typing import Any, Optional, Sequence

from . import _library
from ._library import UINT8, start


class Operations:
    """The operations of a communicator.

    They take addresses, a number of elements, a type and a reduction (constants of _library), and
    return when they are done; with ``start=True`` they return a request for _library.wait instead.
    Memory of a started operation must stay until it has ended. See _library.start for ``how``.
    """

    handle: int

    def allreduce(self, data: int, count: int, kind: int, op: int, wire: int = 0, **how: Any) -> Optional[int]:
        """Reduces the ranks' elements in place. With wire, FLOAT16 or BFLOAT16, float32 elements are
        sent as that."""
        what = {"recv": data, "count": count, "type": kind, "reduction": op, "wire": wire}
        return start(self.handle, _library.ALLREDUCE, **what, **how)

    def reduce_scatter(self, data: int, count: int, kind: int, op: int, **how: Any) -> Optional[int]:
        """Reduces; this rank's segment of the result stays in its place. With a name these are
        count rows of row elements, of which the first ranks may have one more."""
        what = {"recv": data, "count": count, "type": kind, "reduction": op}
        return start(self.handle, _library.REDUCE_SCATTER, **what, **how)

    def reduce(self, data: int, count: int, kind: int, op: int, root: int, **how: Any) -> Optional[int]:
        """Reduces to root; the memory of the others is undefined afterwards."""
        what = {"recv": data, "count": count, "type": kind, "reduction": op, "peer": root}
        return start(self.handle, _library.REDUCE, **what, **how)

    def broadcast(self, data: int, count: int, kind: int, root: int, **how: Any) -> Optional[int]:
        """Copies root's elements to all."""
        what = {"recv": data, "count": count, "type": kind, "peer": root}
        return start(self.handle, _library.BROADCAST, **what, **how)

    def allgather(self, send: int, recv: int, count: int, kind: int, **how: Any) -> Optional[int]:
        """Concatenates the ranks' count elements in recv. With a name these are rows of row elements,
        recv is 0, and _library.wait_rows returns the rows of all ranks."""
        what = {"send": send, "recv": recv, "count": count, "type": kind}
        return start(self.handle, _library.ALLGATHER, **what, **how)

    def alltoall(
        self,
        send: int,
        recv: int,
        count: int,
        kind: int,
        send_counts: Optional[Sequence[int]] = None,
        recv_counts: Optional[Sequence[int]] = None,
        **how: Any,
    ) -> Optional[int]:
        """Sends block i of send to rank i. Without counts the blocks are equal parts of count
        elements. With a name they are rows as those of allgather, and recv_counts is not given."""
        what = {"send": send, "recv": recv, "count": count, "type": kind}
        blocks = {"send_counts": _library.counts(send_counts), "recv_counts": _library.counts(recv_counts)}
        return start(self.handle, _library.ALLTOALL, **what, **blocks, **how)

    def barrier(self, **how: Any) -> Optional[int]:
        """Returns when every rank has called it."""
        return start(self.handle, _library.BARRIER, **how)

    def send(self, data: int, size: int, to: int, tag: int = 0, **how: Any) -> Optional[int]:
        """Sends bytes to a rank that receives the same number with this tag."""
        return start(self.handle, _library.SEND, send=data, count=size, type=UINT8, peer=to, tag=tag, **how)

    def recv(self, data: int, size: int, of: int, tag: int = 0, **how: Any) -> Optional[int]:
        """Receives the next message of a rank with this tag."""
        return start(self.handle, _library.RECV, recv=data, count=size, type=UINT8, peer=of, tag=tag, **how)
