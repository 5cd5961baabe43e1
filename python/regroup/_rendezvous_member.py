"""The program that stands for a node's workers in a job of a foreign agent: see _companion.py.

It runs once in each generation, says what the generation is at the agent's socket, and lives until
the agent gives its exit code, or until it is stopped because the membership changes.
"""

import json
import os
import signal
import socket
import sys

#: Seconds that are left to the companion, which learns from the kernel that the agent was killed.
LEAVE_WITHIN = 20


def main() -> None:
    agent = socket.socket(socket.AF_UNIX)
    agent.connect("\0" + os.environ["RDZV_HANDLER_SOCKET"])
    message = {
        "rank": int(os.environ["RANK"]),
        "size": int(os.environ["WORLD_SIZE"]),
        "address": os.environ["MASTER_ADDR"],
        "port": int(os.environ["MASTER_PORT"]),
        "generation": int(os.environ["REGROUP_GENERATION"]),
        "job": os.environ["TORCHELASTIC_RUN_ID"],
    }
    agent.sendall(json.dumps(message).encode() + b"\n")
    code = agent.recv(1)
    if code:
        sys.exit(int(code))
    # The agent was killed. An end now would count as a failure before the node has left.
    signal.alarm(LEAVE_WITHIN)
    signal.pause()


if __name__ == "__main__":
    main()
