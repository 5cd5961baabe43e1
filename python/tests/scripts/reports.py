"""Reports a metric, or fails as it is told."""

import sys
import time

import regroup


@regroup.record
def main():
    assert regroup.generation() >= 0
    if sys.argv[1:] == ["fail"]:
        raise ValueError("as it was told")
    if "RANK" not in __import__("os").environ:
        import regroup.torch as hvd

        hvd.init()
        state = hvd.elastic.ObjectState(n=0)

        @hvd.elastic.run
        def train(state):
            assert regroup.generation() == 1
            regroup.report(loss=0.25, bad=float("nan"))
            state.commit()

        train(state)
        return
    for step in range(5):
        regroup.report(step=step, loss=0.25, samples=10 * step)
        time.sleep(0.2)  # a step


main()
