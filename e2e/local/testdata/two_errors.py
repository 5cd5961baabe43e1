"""Rank 1 raises the cause and takes its time to end; rank 0 raises a consequence 100 ms after the agent
has read what rank 1 has written: the broker has it on disk. The first argument is the folder in which
the job's state is."""

import glob
import os
import signal
import sys
import time

STREAM = os.path.join(sys.argv[1], "state", "nats", "jetstream", "*", "streams", "REGROUP_LOG", "msgs", "*.blk")


def hook(*exception):
    sys.__excepthook__(*exception)
    signal.pause()


def written():
    for path in glob.glob(STREAM):
        with open(path, "rb") as file:
            if b"ValueError: the cause" in file.read():
                return True
    return False


def train():
    if os.environ["RANK"] == "1":
        sys.excepthook = hook
        raise ValueError("the cause")
    while not written():
        time.sleep(0.005)
    time.sleep(0.1)  # what lies between the two; nobody waits for it
    raise RuntimeError("a consequence")


train()
