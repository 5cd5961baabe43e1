"""The TCP connections of a backend that cannot be interrupted, found among the descriptors of this
process.

Gloo's abort does nothing, and a rank that waits for another survivor, which has left the operation
because of the failure, waits until its timeout. Shutting down the connections ends the operation.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional

#: State 1 of tcp(7)'s TCP_INFO: data can be sent and received.
_ESTABLISHED = 1

_FOLDER = "/proc/self/fd"


class Connection(NamedTuple):
    """A connected TCP socket of this process."""

    fd: int
    inode: int  # tells whether the descriptor is still the same socket
    local: str
    peer: str


def sockets() -> Dict[int, int]:
    """The sockets of this process: descriptor by inode."""
    found = {}
    for name in os.listdir(_FOLDER):
        try:
            status = os.fstat(int(name))
        except OSError:  # closed meanwhile
            continue
        if stat.S_ISSOCK(status.st_mode):
            found[status.st_ino] = int(name)
    return found


@contextlib.contextmanager
def _opened(fd: int, inode: int) -> Iterator[Optional[socket.socket]]:
    """The socket of a descriptor, as one more descriptor; None if it is another one by now."""
    copy = -1
    with contextlib.suppress(OSError):
        copy = os.dup(fd)
    if copy >= 0 and os.fstat(copy).st_ino == inode:
        with socket.socket(fileno=copy) as at:
            yield at
        return
    if copy >= 0:
        os.close(copy)
    yield None


def connected_since(before: Dict[int, int]) -> Iterator[Connection]:
    """The TCP connections whose sockets are not in before."""
    for inode, fd in sockets().items():
        if inode in before:
            continue
        with _opened(fd, inode) as at:
            if at is None or at.family not in (socket.AF_INET, socket.AF_INET6) or at.type != socket.SOCK_STREAM:
                continue
            try:
                yield Connection(fd, inode, _name(at.getsockname()), _name(at.getpeername()))
            except OSError:  # it listens, or has ended
                continue


def _name(address: tuple) -> str:
    host = address[0]
    return f"{host[7:] if host.startswith('::ffff:') else host}:{address[1]}"


class Mesh:
    """The connections between the members of a group."""

    def __init__(self, connections: List[Connection]):
        self._connections = connections

    @staticmethod
    def between(before: Dict[int, int], gather: Callable[[List[str]], List[List[str]]]) -> "Mesh":
        """The connections that were made since before, and which another member has the other end
        of. gather returns the lists of all members, in the order of the ranks."""
        mine = list(connected_since(before))
        known = set().union(*gather([f"{c.local} {c.peer}" for c in mine]))
        return Mesh([c for c in mine if f"{c.peer} {c.local}" in known])

    def __len__(self) -> int:
        return len(self._connections)

    def broken(self) -> bool:
        """Whether a connection has ended, or is about to."""
        return any(not _works(c) for c in self._connections)

    def shut_down(self) -> None:
        """Ends all connections: a reader that waits for data gets an error, on both sides."""
        for c in self._connections:
            with _opened(c.fd, c.inode) as at, contextlib.suppress(OSError):  # it has ended by itself
                if at is not None:
                    at.shutdown(socket.SHUT_RDWR)


def _works(c: Connection) -> bool:
    with _opened(c.fd, c.inode) as at:
        return at is not None and at.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
