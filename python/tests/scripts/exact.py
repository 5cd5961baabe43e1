"""Trains a model of which each rank has a part (FSDP2, with momentum), whose weights after so many steps
are known: all numbers are small integers, and their sums are the same in any order, whichever ranks make
them. A step that is lost or made twice, and a wrong part, are in all that follows.

A worker tells its steps, and when it begins what all ranks together have. COPIES are those of each part.
The training ends at the first step at whose end a rank finds the file STOP. DIES="generation:rank:place,..."
has ranks kill themselves at a place: where build begins or ends, or before a part of their fourth step.
"""

import hashlib
import os
import signal
import time
from typing import Iterator, List, Tuple

import torch

#: Inputs and outputs of each layer, of which the one in the middle is dealt to the ranks by its inputs, of
#: the last one some ranks have nothing; how many samples a step has.
LAYERS, BATCH = ((10, 33), (24, 7), (5, 1)), 12


def batch(step: int) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """What the layers get in a step, and the factors of what they make of it."""
    generator = torch.Generator().manual_seed(step)
    return [
        tuple(torch.randint(-1, 2, (BATCH, size), generator=generator).float() for size in sizes) for sizes in LAYERS
    ]


def known() -> Iterator[str]:
    """The hash of the weights and their momentum after 0, 1, 2... steps, as one process computes it."""
    shapes = [(out, into) for into, out in LAYERS] + [(out,) for _, out in LAYERS]
    weights, momentum = [torch.zeros(s) for s in shapes], [torch.zeros(s) for s in shapes]
    for step in range(1 << 30):
        yield digest(weights + momentum)
        parts = batch(step)
        gradients = [y.T @ x for x, y in parts] + [y.sum(0) for _, y in parts]
        for w, m, g in zip(weights, momentum, gradients):
            m += g
            w -= m


def digest(tensors: List[torch.Tensor]) -> str:
    assert max(t.abs().max().item() for t in tensors) < 2**24, "the integers are too large to be exact"
    return hashlib.sha256(b"".join((t + 0.0).numpy().tobytes() for t in tensors)).hexdigest()[:16]  # no -0


def main() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    import regroup
    import regroup.torch as hvd

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(into, out) for into, out in LAYERS)

        def forward(self, parts):
            return sum((layer(x) * y).sum() for layer, (x, y) in zip(self.layers, parts))

    doomed, made = set(os.environ.get("DIES", "").split(",")), 0

    def reach(place):
        if f"{regroup.generation()}:{dist.get_rank()}:{place}" in doomed and made >= (0 if "build" in place else 3):
            os.kill(os.getpid(), signal.SIGKILL)

    def build(fresh):
        reach("build begins")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        net = Net()
        for layer in net.layers:
            fully_shard(layer, mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p.shape == (7, 24) else None)
        fully_shard(net, mesh=mesh)
        if fresh:
            with torch.no_grad():
                for p in net.parameters():
                    p.zero_()
        reach("build ends")
        return {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=1.0, momentum=1.0)}

    def whole():
        layers = state.model.layers
        parameters = [layer.weight for layer in layers] + [layer.bias for layer in layers]
        moments = [state.optimizer.state[p].get("momentum_buffer") for p in parameters]
        moments = [torch.zeros_like(p) if m is None else m for p, m in zip(parameters, moments)]
        return digest([t.detach().full_tensor() for t in parameters + moments])

    def tell(what, **values):
        values = {"rank": dist.get_rank(), "size": dist.get_world_size(), "gen": regroup.generation(), **values}
        said = " ".join(f"{key}={value}" for key, value in values.items())
        print(f"{what} at={time.time():.6f} pid={os.getpid()} {said}", flush=True)

    torch.set_num_threads(1)
    hvd.follow("gloo")
    state = hvd.elastic.TorchState(build=build, copies=int(os.environ["COPIES"]), steps=0)

    @hvd.elastic.run
    def train(state):
        nonlocal made
        rank, size, made = dist.get_rank(), dist.get_world_size(), 0
        tell("enters", step=state.steps, hash=whole())
        stop = torch.zeros(1)
        while not stop.item():
            state.optimizer.zero_grad()
            reach("forward")
            loss = state.model([(x[rank::size], y[rank::size]) for x, y in batch(state.steps)])
            reach("backward")
            (loss * size).backward()  # whose gradients are averaged
            reach("optimizer")
            state.optimizer.step()
            reach("after it")
            state.steps += 1
            stop.fill_(os.path.exists(os.environ["STOP"]))
            dist.all_reduce(stop, dist.ReduceOp.MAX)
            reach("commit")
            try:
                state.commit()
            except hvd.HostsUpdatedInterrupt:
                tell("made", step=state.steps)
                raise
            tell("made", step=state.steps)
            made += 1
        tell("ends", step=state.steps, hash=whole())

    train(state)


if __name__ == "__main__":
    main()
