"""PyTorch's own server of TCPStore: prints its port, and ends at the end of its input."""

import sys

import torch.distributed as dist

store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
print(f"127.0.0.1:{store.port}", flush=True)
sys.stdin.read()
