"""Reads the parts of a checkpoint of sharded.py with torch.distributed.checkpoint, dealt to the ranks
that run this, and says the hash that sharded.py says of all tensors.
"""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.tensor import DTensor, Shard, distribute_tensor, init_device_mesh

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "readers"))  # where the package is not installed
folder, world = sys.argv[1], int(os.environ["WORLD_SIZE"])
if world > 1:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (world,))
state = {}
for name, of in HuggingFaceStorageReader(folder).read_metadata().state_dict_metadata.items():
    state[name] = torch.full(of.size, 77, dtype=of.properties.dtype)
    if world > 1 and len(of.size) > 0:
        state[name] = distribute_tensor(state[name], mesh, [Shard(len(of.size) - 1)])  # not as they were written
dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
full = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in state.items()}
parameters = ["model.0.weight", "model.0.bias", "model.2.weight"]
order = ["model.seen"]
for p in parameters:
    order += sorted(name for name in full if name.startswith(f"optimizer.{p}."))
order += parameters
assert sorted(order) == sorted(full), sorted(full)
print("hash=" + hashlib.sha256(b"".join(full[name].numpy().tobytes() for name in order)).hexdigest()[:16])
if world > 1:
    dist.destroy_process_group()
