"""A torch for spares to import. A process sees the GPUs that CUDA_VISIBLE_DEVICES names, and this says what is done
with them. GPU-bad cannot be used."""

from . import _C, cuda


class Tensor:
    pass


def zeros(n, device):
    print("memory on", cuda.name(), flush=True)
    return Tensor()
