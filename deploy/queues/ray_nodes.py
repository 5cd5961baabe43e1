"""Trains on all nodes of a Ray cluster, and goes on while some of them are lost:

    ray job submit --working-dir . --runtime-env-json '{"pip": ["regroup-elastic"]}' -- python ray_nodes.py train.py

Each node runs one launcher, with as many workers as it has GPUs. The node on which this program runs serves the others.
"""

import os
import secrets
import subprocess
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ray.init()
job = ray.get_runtime_context().get_job_id()
endpoint = f"{ray.util.get_node_ip_address()}:29400"
secret = secrets.token_hex(16)  # who has it may take part
script = sys.argv[1:]  # here: a task has other arguments
nodes = [n for n in ray.nodes() if n["Alive"]]


@ray.remote(num_cpus=1, max_retries=0)
def launch(workers: int) -> int:
    return subprocess.run(
        ["regroup", "torchrun", "--nnodes", f"1:{len(nodes)}", "--nproc-per-node", str(workers), "--max-restarts", "20"]
        + ["--rdzv-id", f"ray-{job}", "--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, *script],
        env=dict(os.environ, REGROUP_SECRET=secret),
    ).returncode


running = []
for n in nodes:
    gpus = int(n["Resources"].get("GPU", 0))
    here = NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)
    running.append(launch.options(num_gpus=gpus, scheduling_strategy=here).remote(max(gpus, 1)))
codes = []
for r in running:
    try:
        codes.append(ray.get(r))
    except ray.exceptions.RayError as lost:  # the node: the others have gone on
        print(lost, file=sys.stderr)
sys.exit(max(codes, default=1))
