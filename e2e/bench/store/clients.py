"""Many clients of one TCPStore, which do what the ranks of a job do at their start: a thread for
each, in processes that are forked when PyTorch has been imported.

    python3 clients.py HOST PORT CLIENTS PROCESSES

It prints "ready", begins with the next line of its input, prints "done", and keeps the clients
until the end of its input.
"""

import os
import sys
import threading
from datetime import timedelta

import torch.distributed as dist

host, port, world, processes = sys.argv[1], *map(int, sys.argv[2:])
blob = b"x" * 136  # an address of gloo for two ranks
kept, failed = [], []
begin = threading.Event()


def rank(r):
    begin.wait()
    try:
        store = dist.TCPStore(host, port, world, False, timeout=timedelta(seconds=300))
        kept.append(store)
        store.set(f"rank/{r}", blob)
        last = store.add("arrived", 1) == world
        for neighbour in (r + 1, r - 1, r + world // 2):
            if store.get(f"rank/{neighbour % world}") != blob:
                raise AssertionError("another value")
        if last:
            store.set("all", "1")
        store.wait(["all"])
    except Exception as e:
        failed.append(f"rank {r}: {str(e).splitlines()[0]}")


def child(ranks, started, ended, says):
    threading.stack_size(256 << 10)
    threads = [threading.Thread(target=rank, args=(r,)) for r in ranks]
    for t in threads:
        t.start()
    os.write(says, b"ready\n")
    os.read(started, 1)
    begin.set()
    for t in threads:
        t.join()
    os.write(says, (failed[0] if failed else "done").encode() + b"\n")
    os.read(ended, 1)
    os._exit(0)


started, start = os.pipe()
ended, end = os.pipe()
hears, says = os.pipe()
for p in range(processes):
    if os.fork() == 0:
        os.close(start)
        os.close(end)
        child(range(p, world, processes), started, ended, says)
lines = os.fdopen(hears)


def all_say(word):
    said = {lines.readline().strip() for _ in range(processes)} - {word}
    print(*(["failed", *said] if said else [word]), flush=True)


all_say("ready")
sys.stdin.readline()
os.close(start)
all_say("done")
sys.stdin.read()
os.close(end)
for _ in range(processes):
    os.wait()
