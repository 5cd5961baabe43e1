"""The TCP connections of a backend that cannot be interrupted, found among the descriptors of this
process.

Gloo's abort does nothing, and a rank that waits for another survivor, which has left the operation
because of the failure, waits until its timeout. Shutting down the connections ends the operation.
"""

from __future__ import annotations

import os
import socket
import stat
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Set

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


def _open(fd: int, inode: int) -> Optional[socket.socket]:
    """The socket of a descriptor, as one more descriptor; None if it is another one by now."""
    try:
        copy = os.dup(fd)
    except OSError:
        return None
    if os.fstat(copy).st_ino != inode:
        os.close(copy)
        return None
    return socket.socket(fileno=copy)


def connected_since(before: Dict[int, int]) -> Iterator[Connection]:
    """The TCP connections whose sockets are not in before."""
    for inode, fd in sockets().items():
        at = None if inode in before else _open(fd, inode)
        if at is None:
            continue
        with at:
            if at.family not in (socket.AF_INET, socket.AF_INET6) or at.type != socket.SOCK_STREAM:
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
    def between(before: Dict[int, int], gather: Callable[[Set[str]], List[Set[str]]]) -> "Mesh":
        """The connections that were made since before, and which another member has the other end
        of. gather returns the sets of all members, in the order of the ranks."""
        mine = list(connected_since(before))
        known = set().union(*gather({f"{c.local} {c.peer}" for c in mine}))
        return Mesh([c for c in mine if f"{c.peer} {c.local}" in known])

    def __len__(self) -> int:
        return len(self._connections)

    def broken(self) -> bool:
        """Whether a connection has ended, or is about to."""
        return any(not _works(c) for c in self._connections)

    def shut_down(self) -> None:
        """Ends all connections: whoever waits for data gets an error, on both sides."""
        for c in self._connections:
            at = _open(c.fd, c.inode)
            if at is None:
                continue
            with at:
                try:
                    at.shutdown(socket.SHUT_RDWR)
                except OSError:  # it has ended by itself
                    continue


def _works(c: Connection) -> bool:
    at = _open(c.fd, c.inode)
    if at is None:
        return False
    with at:
        return at.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED
