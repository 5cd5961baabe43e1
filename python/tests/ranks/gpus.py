"""Which way tensors on GPUs go, where there is no GPU: torch here may be built for the processor
alone."""

import os
from types import SimpleNamespace

import torch

import regroup.torch as hvd
from regroup.torch.gpus import Gpus
from regroup.torch.world import world

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()

#: What is asked of a tensor to find its way.
ON_A_GPU = SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=0))


def case_the_reason_is_shown():
    """Rank 1 was told to use none; the others may have one or not."""
    output = hvd.describe()
    assert output.startswith("copied through the host: rank "), output
    assert "has no GPU: " in output, output
    if not torch.cuda.is_available():
        assert "rank 0 has no GPU: torch" in output, output
    gathered = hvd.allgather_object(output)
    assert gathered == [output] * SIZE, gathered


def case_the_host_has_its_own_way():
    assert world.communicator.gpus.of(torch.ones(1)) is None
    assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(SIZE)))


def case_without_the_libraries():
    """The ranks believe that all have a GPU; then they look for the driver, which is nowhere."""
    assert os.environ["REGROUP_CUDA_LIBRARY"] == "/nowhere/libcuda.so.1"
    gpus = Gpus(world.communicator, "", RANK, SIZE)
    assert "every rank has a GPU" in gpus.describe(), gpus.describe()
    for _ in range(2):  # it is tried once
        assert gpus.of(ON_A_GPU) is None
        output = gpus.describe()
        for part in ("copied through the host: rank 0 has no GPU", "/nowhere/libcuda.so.1"):
            assert part in output, output
    gpus.close()
    assert torch.equal(hvd.allreduce(torch.ones(3), op=hvd.Sum), torch.full((3,), float(SIZE)))


def case_the_optimizer():
    """Its buckets are in the host's memory, for that is where the parameters are."""
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([p], lr=1.0))
    (p * (RANK + 1)).sum().backward()
    optimizer.step()
    mean = sum(range(1, SIZE + 1)) / SIZE
    assert torch.equal(p.detach(), torch.full((4,), 1 - mean)), p
