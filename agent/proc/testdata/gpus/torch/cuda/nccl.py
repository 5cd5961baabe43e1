from . import name


def all_reduce(tensors):
    print("NCCL has started on", name(), flush=True)
