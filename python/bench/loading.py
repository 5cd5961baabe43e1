"""What it costs to load the library and to call it once: the median of several processes::

    PYTHONPATH=python python3 python/bench/loading.py
"""

import argparse
import os
import statistics
import subprocess
import sys

import regroup

SCRIPT = """
import time
from regroup import _library
began = time.perf_counter()
_library.library().rg_comm_failed(1)
print(time.perf_counter() - began)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=20)
    processes = parser.parse_args().processes
    env = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(regroup.__file__)))
    took = sorted(
        1e3 * float(subprocess.check_output([sys.executable, "-c", SCRIPT], env=env))
        for _ in range(processes)
    )
    print(
        f"loading and the first call: {statistics.median(took):.1f} ms "
        f"({took[0]:.1f} to {took[-1]:.1f}, {processes} processes)"
    )


if __name__ == "__main__":
    main()
