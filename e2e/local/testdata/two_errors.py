"""Rank 1 raises the cause and takes its time to end; rank 0 raises a consequence 100 ms later. The
first argument is a folder for the file that rank 1 leaves for rank 0."""

import os
import signal
import sys
import time

RAISED = os.path.join(sys.argv[1], "raised")


def hook(*exception):
    sys.__excepthook__(*exception)
    open(RAISED, "x").close()
    signal.pause()


def train():
    if os.environ["RANK"] == "1":
        sys.excepthook = hook
        raise ValueError("the cause")
    while not os.path.exists(RAISED):
        time.sleep(0.001)
    time.sleep(0.1)
    raise RuntimeError("a consequence")


train()
