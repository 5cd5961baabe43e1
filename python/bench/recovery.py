"""How long a job of PyTorch workers stands still when one of them is killed: jobs of three workers
on this machine run a script for Horovod, and all of them say when they make steps (make build
libregroup first)::

    PYTHONPATH=python python3 python/bench/recovery.py --kills 15 --loaders 2

What is told is the median over the kills, with the least and the most: from just before the SIGKILL
until the last of the survivors has made a step of the new generation, by the wall clock of this
machine; then the parts that the job's own account of the incident has, which begins when somebody
notices. The worker dies when a step is over, and the others are interrupted at their next
operation: a step is in it.
"""

import argparse
import statistics
import tempfile

from tests.jobs import Job
from tests.test_job import ported

#: What the script says in addition, and before which of its lines.
KILL, STEP = "os.kill(os.getpid(), 9)", "state.sampler.record_batch(batch_idx, batch_size)"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=15)
    parser.add_argument("--loaders", type=int, default=0, help="processes that load data")
    parser.add_argument("--step", type=float, default=0.04, help="seconds that a step lasts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = talking(ported(folder))
        rows = [kill(script, args) for _ in range(args.kills)]
    print(f"{args.kills} kills, {args.loaders} loaders, steps of {1000 * args.step:.0f} ms, in ms:")
    for part in rows[0]:
        times = [row[part] for row in rows]
        print(
            f"  {part:<15}{statistics.median(times):6.1f}  ({min(times):.1f} to {max(times):.1f})"
        )


def talking(script):
    """The script, which says when it kills itself and when it has made a step."""
    with open(script[1], encoding="utf-8") as f:
        text = f.read()
    for line, says in ((KILL, "dies"), (STEP, "steps")):
        assert text.count(line) == 1
        told = says + " at={time.time()} pid={os.getpid()} size={hvd.size()}"
        text = text.replace(line, f'print(f"{told}", flush=True); {line}')
    with open(script[1], "w", encoding="utf-8") as f:
        f.write(text)
    return script


def kill(script, args):
    """One job, in which a worker is killed: the time of each part."""
    env = {"FAULT": "kill", "STEP": str(args.step), "LOADERS": str(args.loaders)}
    with Job("--recovery", "in-process", "--workers", "2:3", "--", *script, env=env) as job:
        job.wait()
        if job.summary.get("outcome") != "succeeded":
            raise SystemExit(job.output)
        (dies,) = job.lines(r"\bdies at=")
        began, first = float(dies["at"]), {}
        for step in job.lines(r"\bsteps at="):
            if float(step["at"]) > began and step["size"] == "2":
                first.setdefault(step["pid"], float(step["at"]))
        assert len(first) == 2, job.output
        total = 1000 * (max(first.values()) - began)
        return {"kill to step": total, **job.summary["incidents"][0]["phases_ms"]}


if __name__ == "__main__":
    main()
