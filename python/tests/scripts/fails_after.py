"""Rank 0 fails to save the model when the training is complete."""

import regroup.torch as hvd

hvd.init()
state = hvd.elastic.TorchState(step=0)


@hvd.elastic.run
def train(state):
    hvd.barrier()
    state.step += 1
    state.commit()


train(state)
if hvd.rank() == 0:
    raise OSError("no space left for the model")
