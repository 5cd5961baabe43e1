"""Client of the node's agent, over its Unix socket, for workers without an elastic session.
Standard library only."""

from __future__ import annotations

import http.client
import json
import os
import socket
from typing import Any, Optional

from .errors import RegroupError


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float):
        super().__init__("agent", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def call(method: str, path: str, body: Any = None, timeout: float = 10.0) -> Optional[dict]:
    """Makes one call; None if the response is empty."""
    connection = _Connection(os.environ["REGROUP_SOCKET"], timeout)
    try:
        connection.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Authorization": "Bearer " + os.environ.get("REGROUP_TOKEN", ""), "Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status >= 400:
        raise RegroupError(f"the agent refuses {method} {path}: {answer.status} {text.decode(errors='replace')}")
    return json.loads(text) if text else None
