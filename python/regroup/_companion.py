"""The companion of a foreign agent: `regroup torchrun`, which takes part in the job for it.

It runs one member per node (_rendezvous_member.py) in each generation. The member connects to a
socket of the agent's process, and its connection is the node's membership. The socket has a name
and no file, which would stay behind when the agent is killed:

    member's message        a generation has begun, with this rank and size
    agent sends 0 or 1      the node is done, or wants a new generation
    end of the connection   the generation is over

At a pipe it tells what becomes of the node: a line of JSON for each change.

A companion whose agent is killed is interrupted by the kernel, so that the other nodes learn of it
at once.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import selectors
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future
from typing import Any, Dict, List, Optional

from .errors import RegroupError

log = logging.getLogger(__name__)

#: prctl's option that sends a signal to a process when its parent ends.
PR_SET_PDEATHSIG = 1

#: Seconds for a companion to leave the job once it is interrupted.
LEAVE_WITHIN = 15.0

#: The command of the members. It is the same on all nodes, wherever Python is installed.
MEMBER = ["/bin/sh", "-c", 'exec "$RDZV_HANDLER_PYTHON" -I -S "$RDZV_HANDLER_MEMBER"']

_libc = ctypes.CDLL(None)


def binary() -> str:
    """The regroup binary: REGROUP_BINARY, or the one of this package's wheel, or that on PATH."""
    given = os.environ.get("REGROUP_BINARY")
    if given:
        return given
    beside = os.path.join(os.path.dirname(sys.executable), "regroup")
    found = beside if os.access(beside, os.X_OK) else shutil.which("regroup")
    if not found:
        raise RegroupError(
            "the program regroup is not on PATH: install the wheel regroup-elastic, or set REGROUP_BINARY"
        )
    return found


class Generation:
    """What a member has said, and its connection."""

    def __init__(self, connection: socket.socket):
        self._connection = connection
        self._received = b""
        self.complete = False
        self.over = False
        self.rank = self.size = self.port = self.number = 0
        self.address = self.job = ""

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> None:
        """Reads what is there: to be called when there is something."""
        try:
            piece = self._connection.recv(4096)
        except OSError:
            piece = b""
        if not piece:
            self.close()
            return
        self._received += piece
        if not self.complete and self._received.endswith(b"\n"):
            identity = json.loads(self._received)
            self.rank, self.size, self.number = identity["rank"], identity["size"], identity["generation"]
            self.address, self.port, self.job = identity["address"], identity["port"], identity["job"]
            self.complete = True

    def end(self, code: int) -> None:
        """Ends the member with an exit code."""
        try:
            self._connection.sendall(str(code).encode())
        except OSError:
            pass  # it has just been stopped
        self.close()

    def close(self) -> None:
        self.over = True
        self._connection.close()


class Node:
    """What the rendezvous says of this node and the others."""

    def __init__(self, said: Dict[str, Any]):
        self.job: str = said.get("job", "")
        self.membership: str = said.get("membership", "")  # events.Membership; empty = not known yet
        self.waiting: int = said.get("waiting", 0)  # nodes of the wait list
        self.closed: bool = said.get("closed", False)  # no node is added any more


class Companion:
    """The process, and the socket of its members. Any thread may use it."""

    def __init__(self, arguments: List[str]):
        program = binary()
        self._lock = threading.RLock()
        self.node = Node({})
        name = "regroup-" + secrets.token_hex(16)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + name)
        self._listener.listen()
        self._said = tempfile.TemporaryFile()
        self._open: List[Generation] = []
        self._interrupted = self._closed = False
        self._status, status = os.pipe()
        os.set_blocking(self._status, False)
        self._unread = b""
        line = [program, arguments[0], "--companion", str(status), *arguments[1:], *MEMBER]
        started: Future = Future()
        run = (line, name, status, started)
        threading.Thread(target=self._run, args=run, name="regroup-companion", daemon=True).start()
        try:
            self._process: subprocess.Popen = started.result()
        except Exception:
            self.close()
            raise
        finally:
            os.close(status)

    def _run(self, line: List[str], name: str, status: int, started: Future) -> None:
        """Starts the process. The kernel interrupts it when this thread ends, and not only when the
        process of the agent does; so it must be a thread that lives as long."""
        try:
            process = subprocess.Popen(
                line,
                env=_environment(name),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                start_new_session=True,  # an interrupt at the terminal is for the agent
                preexec_fn=_end_with(os.getpid()),
                pass_fds=(status,),
            )
        except Exception as e:
            started.set_exception(e)
            return
        started.set_result(process)
        process.wait()

    def newest(self) -> Optional[Generation]:
        """The generation whose member is alive, as far as its messages have come."""
        return next((g for g in reversed(self._open) if g.complete and not g.over), None)

    def poll(self, seconds: float = 0.0) -> None:
        """Reads what members and the process have sent; waits for something so long if there is
        nothing."""
        with self._lock:
            if self._closed:
                return
            self._open = [g for g in self._open if not g.over]
            with selectors.DefaultSelector() as selector:
                for f in (self._listener, *self._open):
                    selector.register(f, selectors.EVENT_READ)
                if self._status >= 0:
                    selector.register(self._status, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(seconds)]
            for f in ready:
                if isinstance(f, Generation):
                    f.read()
                elif f == self._status:
                    self._read_status()
                else:
                    connection = self._listener.accept()[0]
                    if _ours(connection):
                        self._open.append(Generation(connection))
                    else:
                        connection.close()
            self._open = [g for g in self._open if not g.over]

    def _read_status(self) -> None:
        try:
            piece = os.read(self._status, 1 << 16)
        except BlockingIOError:
            return
        if not piece:  # the process has ended
            os.close(self._status)
            self._status = -1
            return
        *lines, self._unread = (self._unread + piece).split(b"\n")
        if lines:
            self.node = Node(json.loads(lines[-1]))

    def ended(self) -> bool:
        if self._process.poll() is None:
            return False
        self.poll()  # its last words about the node
        return True

    def last_words(self, lines: int = 8) -> str:
        """The end of what it has written for people."""
        size = self._said.seek(0, os.SEEK_END)
        text = os.pread(self._said.fileno(), 8192, max(size - 8192, 0)).decode(errors="replace")
        return "\n".join(text.strip().splitlines()[-lines:]) or f"exit code {self._process.poll()}"

    def wait(self, seconds: float) -> bool:
        """Waits for the end of the process."""
        limit = time.monotonic() + seconds
        while not self.ended() and time.monotonic() < limit:
            try:
                self._process.wait(timeout=0.1)
            except subprocess.TimeoutExpired:
                self.poll()  # members must be able to say that they have begun
                self.finish()
        return self.ended()

    def finish(self) -> None:
        """Ends the newest member: the node is done."""
        newest = self.newest()
        if newest:
            newest.end(0)

    def stop_job(self, job: str, reason: str, server: List[str]) -> None:
        """Ends the job on all nodes, if its server can be reached."""
        self._ask("the run goes on", "stop", job, "--reason", reason, *server)

    def close_job(self, job: str, server: List[str]) -> None:
        """Closes the rendezvous for all nodes, if its server can be reached."""
        self._ask("the run is not closed", "close", job, *server)

    def _ask(self, otherwise: str, *command: str) -> None:
        result = subprocess.run(
            [binary(), *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if result.returncode != 0:
            log.warning("regroup: %s: %s", otherwise, result.stdout.decode(errors="replace").strip())

    def leave(self) -> None:
        """Takes the node out of the job, and waits until the process has ended."""
        if not self.ended() and not self._interrupted:
            self._interrupted = True  # a second interrupt would stop the job
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=LEAVE_WITHIN)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.close()

    def close(self) -> None:
        """Releases what belongs to a process that has ended."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for g in self._open:
                g.close()
            self._open = []
            self._listener.close()
            if self._status >= 0:
                os.close(self._status)


def _ours(connection: socket.socket) -> bool:
    """Whether the peer is a process of this user, and of no other container: a name without a file
    has no permissions."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("iII", credentials)
    return pid > 0 and user == os.geteuid()


def _end_with(parent: int):
    """Returns the function that has the kernel interrupt a child process when its parent ends."""

    def prepare() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def _environment(name: str) -> Dict[str, str]:
    """The companion's environment: without what torchrun reads, which is meant for the agent."""
    agents = ("PET_", "TORCHELASTIC_", "TORCH_ELASTIC_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(agents)}
    here = os.path.dirname(os.path.abspath(__file__))
    env.update(
        NO_COLOR="1",
        RDZV_HANDLER_SOCKET=name,
        RDZV_HANDLER_PYTHON=sys.executable,
        RDZV_HANDLER_MEMBER=os.path.join(here, "_rendezvous_member.py"),
    )
    return env
