"""One client that sets and gets a key every few milliseconds while others are busy.

    python3 probe.py HOST PORT

It prints "ready", begins with the next line of its input, ends at the end of it, and prints its
times in microseconds.
"""

import json
import sys
import threading
import time

import torch.distributed as dist

store = dist.TCPStore(sys.argv[1], int(sys.argv[2]), None, False)
print("ready", flush=True)
sys.stdin.readline()
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
times = []
while not ended.is_set():
    begin = time.perf_counter_ns()
    store.set("probe", "x")
    store.get("probe")
    times.append((time.perf_counter_ns() - begin) // 1000)
    time.sleep(0.002)
print(json.dumps(times))
