"""Writes what happens to a job into a run of TensorBoard, MLflow or Weights & Biases (docs/integrations.md)::

    python -m regroup.watch JOB --to tensorboard:DIR

It follows the facts of a gateway, from the first one on, and ends with the job. Started again it goes on in the same
run behind the last fact that was written. What is unknown is left out. The library of the tracker is imported when it
is used; nothing else than the standard library is needed.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import sys
import time
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from .client import Client, ClientError
from .errors import InvalidArgumentError, RegroupError

#: Facts that end a job.
ENDS = ("job.succeeded", "job.failed", "job.stopped")

#: Seconds after which a fact is too old for what a gateway says now to belong to it.
RECENT = 60.0


class TensorBoard:
    """Event files in a folder below DIR, by tensorboardX or torch.utils.tensorboard."""

    def __init__(self, folder: str, job: str, run: Optional[str]):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            from torch.utils.tensorboard import SummaryWriter
        self.run = run or job
        self._writer = SummaryWriter(os.path.join(folder, self.run))

    def scalars(self, values: Dict[str, float], step: int, at: float) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step, at)

    def text(self, name: str, text: str, step: int, at: float) -> None:
        self._writer.add_text(name, text, step, at)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, outcome: Optional[str]) -> None:
        self._writer.close()


class MLflow:
    """A run in the experiment ``regroup`` of a tracking server or store."""

    def __init__(self, uri: str, job: str, run: Optional[str]):
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=uri)
        if run is None:
            experiment = self._client.get_experiment_by_name("regroup")
            number = experiment.experiment_id if experiment else self._client.create_experiment("regroup")
            run = self._client.create_run(number, run_name=job, tags={"regroup.job": job}).info.run_id
        else:
            self._client.update_run(run, status="RUNNING")
        self.run = run

    def scalars(self, values: Dict[str, float], step: int, at: float) -> None:
        for name, value in values.items():
            self._client.log_metric(self.run, name, value, timestamp=int(at * 1000), step=step)

    def text(self, name: str, text: str, step: int, at: float) -> None:
        self._client.set_tag(self.run, name.replace("/", "."), text)

    def flush(self) -> None:
        pass  # each call is an answered request

    def close(self, outcome: Optional[str]) -> None:
        if outcome is not None:
            status = {"succeeded": "FINISHED", "stopped": "KILLED"}.get(outcome, "FAILED")
            self._client.set_terminated(self.run, status)


class WandB:
    """A run of a project of Weights & Biases; WANDB_MODE=offline keeps it on this machine."""

    def __init__(self, project: str, job: str, run: Optional[str]):
        import wandb

        self._run = wandb.init(project=project, name=job, id=run, resume="allow", config={"regroup.job": job})
        self._run.define_metric("regroup/*", step_metric="regroup/step")
        self.run = self._run.id

    def scalars(self, values: Dict[str, float], step: int, at: float) -> None:
        self._run.log({**values, "regroup/step": step, "regroup/time": at})

    def text(self, name: str, text: str, step: int, at: float) -> None:
        self._run.summary[name] = text

    def flush(self) -> None:
        pass  # its own process writes what it was given, also when this one ends

    def close(self, outcome: Optional[str]) -> None:
        self._run.finish(exit_code=0 if outcome in (None, "succeeded") else 1)


TRACKERS: Dict[str, Callable[[str, str, Optional[str]], Any]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


class State:
    """What a listener remembers: the run, the position of the last fact that was written, the newest step, and how the
    job has ended."""

    def __init__(self, path: str):
        self.path = path
        self.run: Optional[str] = None
        self.position = 0
        self.step = 0
        self.outcome: Optional[str] = None
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                kept = json.load(f)
            self.run, self.position, self.step, self.outcome = (kept[k] for k in ("run", "position", "step", "outcome"))

    def save(self) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(self.path)), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump({"run": self.run, "position": self.position, "step": self.step, "outcome": self.outcome}, f)
        os.replace(self.path + ".new", self.path)


def workers_of(places: Any) -> Optional[int]:
    """How many slots a list as ["node-a/0-7", "node-b/0,2"] names; None = it is something else."""
    count = 0
    for text in places if isinstance(places, list) else [None]:
        if not isinstance(text, str) or "/" not in text:
            return None
        for part in text.rpartition("/")[2].split(","):
            ends = re.match(r"^(\d+)(?:-(\d+))?$", part)
            if ends is None:
                return None
            count += int(ends[2] or ends[1]) - int(ends[1]) + 1
    return count


def points(kind: str, data: Dict[str, Any]) -> Tuple[Dict[str, float], Dict[str, str]]:
    """What a fact says, as numbers and as texts by their names. What it does not say is left out."""
    numbers: Dict[str, float] = {}
    texts: Dict[str, str] = {}
    if kind == "round.sealed":
        numbers["regroup/generation"] = data["generation"]
        members = data.get("members")
        count = len(members) if isinstance(members, list) else workers_of((members or {}).get("places"))
        if count is not None:
            numbers["regroup/workers"] = count
    elif kind == "incident.closed":
        numbers["regroup/incidents"] = data["incident"]
        numbers["regroup/recovery_seconds"] = data["total_ms"] / 1000
        for phase, milliseconds in data["phases_ms"].items():
            numbers[f"regroup/recovery/{phase}_seconds"] = milliseconds / 1000
        if "steps_lost" in data:
            bound = "regroup/steps_lost_at_least" if data.get("at_least") else "regroup/steps_lost"
            numbers[bound] = data["steps_lost"]
        cause = data["cause"]
        where = cause.get("place")
        text = cause["kind"] + (f" on {where['node']}/{where['slot']}" if where else "")
        if cause.get("detail"):
            text += ": " + cause["detail"]
        texts[f"regroup/incident/{data['incident']}"] = text
    elif kind in ENDS:
        texts["regroup/outcome"] = kind.partition(".")[2] + (": " + data["reason"] if data.get("reason") else "")
    return numbers, texts


def _goodput(client: Client, job: str) -> Dict[str, float]:
    """The part of the job's observed time that brought it forward, as far as it is known."""
    try:
        view = client.get_job(job)
    except ClientError:
        return {}
    if view.get("goodput") is None:
        return {}
    return {"regroup/goodput_at_most" if view.get("goodput_at_most") else "regroup/goodput": view["goodput"]}


def watch(client: Client, job: str, to: str, state: State, *, follow: bool = True) -> Optional[str]:
    """Writes the facts of a job that are not written yet, and with ``follow`` those that come until it ends. Returns
    how it has ended, None if it has not."""
    name, _, target = to.partition(":")
    if name not in TRACKERS or not target:
        raise InvalidArgumentError(f"to {to!r}: write tensorboard:DIR, mlflow:URI or wandb:PROJECT")
    if state.outcome is not None:
        return state.outcome  # all of it is written
    try:
        tracker = TRACKERS[name](target, job, state.run)
    except ImportError as e:
        raise InvalidArgumentError(f"to {to!r}: {e}; install it beside regroup") from e
    state.run = tracker.run
    state.save()
    try:
        for position, kind, at, data in _facts(client, job, state.position, follow):
            numbers, texts = points(kind, data)
            if kind == "job.progressed":
                state.step = max(state.step, data["step"])
            if time.time() - at < RECENT and (kind in ENDS or kind in ("incident.closed", "job.progressed")):
                numbers.update(_goodput(client, job))
            if numbers:
                tracker.scalars(numbers, state.step, at)
            for label, text in texts.items():
                tracker.text(label, text, state.step, at)
            tracker.flush()
            state.position = position
            if kind in ENDS:
                state.outcome = kind.partition(".")[2]
            state.save()
            if state.outcome is not None:
                break
    finally:
        tracker.close(state.outcome)
    return state.outcome


def _facts(client: Client, job: str, after: int, follow: bool) -> Iterator[Tuple[int, str, float, Dict[str, Any]]]:
    """Facts with their position, kind, time in seconds since 1970 and content."""
    for position, event in client.events(job, after=after, follow=follow):
        kind = ".".join(event["type"].split(".")[2:4])
        text = re.sub(r"(\.\d{6})\d*", r"\1", event["time"]).replace("Z", "+00:00")  # Python 3.8 knows microseconds
        text = re.sub(r"\.\d{1,5}(?=\+)", lambda m: m[0].ljust(7, "0"), text)
        yield position, kind, datetime.datetime.fromisoformat(text).timestamp(), event.get("data") or {}


def state_file(job: str, to: str) -> str:
    """Where a listener keeps its state if it was not told another file."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    folder = os.environ.get("REGROUP_STATE_DIR") or os.path.join(home, "regroup")
    return os.path.join(folder, "watch", f"{job}-{hashlib.sha256(to.encode()).hexdigest()[:8]}.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m regroup.watch", description="Write a job's facts into a run.")
    parser.add_argument("job", help="id of a job")
    parser.add_argument("--to", required=True, help="tensorboard:DIR, mlflow:URI or wandb:PROJECT")
    parser.add_argument("--state", help="file that remembers the run and the last fact (default: in the state folder)")
    parser.add_argument("--no-follow", action="store_true", help="end after what is stored now")
    args = parser.parse_args()
    try:
        state = State(args.state or state_file(args.job, args.to))
        outcome = watch(Client(), args.job, args.to, state, follow=not args.no_follow)
    except RegroupError as e:
        print(f"regroup.watch: {e}", file=sys.stderr)
        return 2 if isinstance(e, InvalidArgumentError) else 1
    except KeyboardInterrupt:
        return 130
    print(f"{args.job}: {outcome or 'has not ended'}; run {state.run}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
