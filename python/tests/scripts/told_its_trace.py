"""Says the trace contexts of its process and of its first generation."""

import os

from regroup import _library
from regroup.training import Training

training = Training()
training.start()
session = training.next()
print(f"told process={os.environ['TRACEPARENT']} generation={session.traceparent.decode()}", flush=True)
training.leave(_library.OK)
while training.next() is not None:
    training.leave(_library.OK)
training.close()
