"""Client submits, changes and follows jobs over the HTTP of a gateway (docs/clients.md). Standard
library only; it needs no PyTorch and no worker."""

from __future__ import annotations

import glob
import http.client
import json
import os
import re
import shlex
import ssl
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .errors import InvalidArgumentError, RegroupError
from .notebook import Job, Jobs

#: The states in which a job ends.
ENDED = ("succeeded", "failed", "stopped")

#: Seconds after which a connection that is silent is broken: a gateway says something every 15 s.
TIMEOUT = 60.0


class ClientError(RegroupError):
    """A gateway has refused a request, or cannot be reached.

    ``code`` is that of the command line: invalid, not_found, conflict, unavailable... ``status`` is
    that of HTTP, None without an answer. ``errors`` has each thing that is wrong with a job, as a
    dict with ``path``, ``message`` and perhaps ``hint``.
    """

    def __init__(self, message: str, code: str, status: Optional[int] = None, errors: Iterable[dict] = ()):
        super().__init__(message)
        self.code = code
        self.status = status
        self.errors = list(errors)


class Client:
    """A client of one gateway; several threads may use it.

    Without ``url`` it is REGROUP_GATEWAY_URL, else the gateway that this user runs on this machine
    (``regroup up --dashboard``). ``token`` is REGROUP_GATEWAY_TOKEN, or that of this gateway. ``ca``
    is a PEM file with the certificates that an https gateway is verified with. A request that finds
    no gateway is repeated for ``patience`` seconds.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        ca: Optional[str] = None,
        state_dir: Optional[str] = None,
        patience: float = 10.0,
    ):
        url = url or os.environ.get("REGROUP_GATEWAY_URL")
        token = token or os.environ.get("REGROUP_GATEWAY_TOKEN")
        if not url:
            record = _find(state_dir)
            url, token = record["url"], token or record["token"]
        if not token:
            raise InvalidArgumentError(f"no token for {url}: give token=, or set REGROUP_GATEWAY_TOKEN")
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidArgumentError(f"url {url!r}: write http://host:port or https://host:port of a gateway")
        self.url = url.rstrip("/")
        self._token = token
        self._host = parts.hostname
        self._port = parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        self._patience = patience

    # Jobs.

    def submit_job(
        self,
        entrypoint: Union[str, Sequence[str], None] = None,
        *,
        workers: Union[int, Tuple[int, int], Dict[str, int]] = 1,
        **spec: Any,
    ) -> str:
        """Submits a job and returns its id.

        ``entrypoint`` is the command of each worker, a list or a text that is split as a shell does;
        ``workers`` how many, or the fewest and the most. Anything else is a field of the job file:
        ``name`` (by default that of the script), ``env``, ``labels``, ``failures``... ClientError.errors has all that is wrong. A
        request whose answer was lost is repeated, and still submits one job.
        """
        return self.submit_spec(_spec(entrypoint, workers, spec))

    def submit_spec(self, spec: Union[Dict[str, Any], str]) -> str:
        """Submits a job as a dict, or as the text of a job file in YAML, and returns its id."""
        media = "application/yaml" if isinstance(spec, str) else "application/json"
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return self._call("POST", "/api/v1/jobs", spec, headers=headers, media=media)["job"]

    def plan(
        self,
        entrypoint: Union[str, Sequence[str], None] = None,
        *,
        workers: Union[int, Tuple[int, int], Dict[str, int]] = 1,
        **spec: Any,
    ) -> Dict[str, Any]:
        """Says whether a job would start now, and submits nothing. The arguments are those of submit_job.

        ``plan`` says it in sentences; ``fits`` is True if it would start at once; ``spec`` has every
        default; ``forecast`` is what ``regroup plan -o json`` prints: ``places``, or what it waits for.
        """
        return self.plan_spec(_spec(entrypoint, workers, spec))

    def plan_spec(self, spec: Union[Dict[str, Any], str]) -> Dict[str, Any]:
        """Is plan for a job as a dict, or as the text of a job file in YAML."""
        media = "application/yaml" if isinstance(spec, str) else "application/json"
        return self._call("POST", "/api/v1/jobs", spec, query={"dryRun": 1}, media=media)

    def get_job(self, job: str) -> Job:
        """The job as ``regroup status -o json`` prints it; a notebook shows it with its incidents and its
        timeline."""
        return self._job(self._call("GET", _path(job)))

    def timeline(self, job: str) -> str:
        """What each worker did when, as the picture (SVG) that ``regroup timeline -o svg`` writes."""
        return self._persist(lambda: self._timeline(job))

    def _timeline(self, job: str) -> str:
        kind, text = self._fetch("GET", _path(job, "/timeline"), headers={"Accept": "image/svg+xml"})
        if kind != "image/svg+xml":
            raise ClientError(f"{self.url} draws no timelines: it is older than this client", "internal")
        return text.decode()

    def _job(self, view: Dict[str, Any]) -> Job:
        """A job that a notebook shows with its timeline, if the gateway answers then."""

        def draw() -> Optional[str]:
            try:
                return self._timeline(view["job"])
            except ClientError:
                return None

        return Job(view, draw=draw)

    def get_job_status(self, job: str) -> str:
        """waiting, running, finishing, stopping, or one of ENDED."""
        return self.get_job(job)["state"]

    def list_jobs(self, *, state: Optional[str] = None, text: Optional[str] = None, limit: int = 0) -> Jobs:
        """Jobs, the newest first: those in a state, and with a text in their id or command. A notebook
        shows a table."""
        query = {k: v for k, v in (("state", state), ("q", text), ("limit", limit)) if v}
        return Jobs(Job(j) for j in self._call("GET", "/api/v1/jobs", query=query)["jobs"])

    def scale_job(self, job: str, workers_min: int, workers_max: Optional[int] = None) -> Job:
        """Changes the wanted number of workers; returns the job."""
        workers = {"min": workers_min, "max": workers_min if workers_max is None else workers_max}
        return self._job(self._call("PATCH", _path(job), {"workers": workers}))

    def stop_job(self, job: str, reason: str = "", *, now: bool = False) -> Job:
        """Ends a job with its grace, or without one; returns when it is stopping."""
        return self._job(self._call("POST", _path(job, "/stop"), {"reason": reason, "now": now}))

    def delete_job(self, job: str) -> None:
        """Removes the record of an ended job."""
        self._call("DELETE", _path(job))

    def explain_job(self, job: str) -> Dict[str, Any]:
        """What the job does, and what it waits for."""
        return self._call("GET", _path(job, "/explain"))

    def get_job_metrics(self, job: str) -> Dict[str, List[list]]:
        """The values that the job has reported: for each name a list of seconds since 1970, value,
        generation, step."""
        return self._call("GET", _path(job, "/metrics"))["metrics"]

    def wait_for_job_status(
        self, job: str, status: Iterable[str] = ENDED, timeout: Optional[float] = None
    ) -> Job:
        """Waits until the job is in one of the states, or has ended, and returns it.

        TimeoutError after ``timeout`` seconds; None = never.
        """
        wanted = {status} if isinstance(status, str) else set(status)
        for _ in _attempts(timeout):
            view = self.get_job(job)
            if view["state"] in wanted or view["state"] in ENDED:
                return view
        raise TimeoutError(f"{job} is {view['state']} after {timeout} s: {self.explain_job(job)['sentence']}")

    # Streams.

    def get_job_logs(
        self, job: str, *, follow: bool = False, rank: str = "", tail: int = 0
    ) -> Union[str, Iterator[str]]:
        """The output of the workers, as text; with ``follow`` an iterator of lines until the job has
        ended. ``rank`` is a list as "0,3-5", ``tail`` the newest so many lines."""
        lines = self.tail_job_logs(job, rank=rank, tail=tail, follow=follow)
        return lines if follow else "".join(line + "\n" for line in lines)

    def tail_job_logs(self, job: str, *, rank: str = "", tail: int = 0, follow: bool = True) -> Iterator[str]:
        """The output, line by line, until the job has ended. A progress bar is a line when it is finished."""
        query = {k: v for k, v in (("rank", rank), ("tail", tail)) if v}
        for kind, _, line in self._stream(_path(job, "/logs"), query, follow):
            if kind == "end":
                return
            if not (follow and line.get("open")):
                yield line["text"]

    def events(
        self, job: Optional[str] = None, *, type: str = "", after: int = 0, follow: bool = True
    ) -> Iterator[Tuple[int, Dict[str, Any]]]:
        """Facts as CloudEvents, each with its position in the stream of facts.

        Of a job all, else those from now on, or after a position. ``type`` is a pattern as
        "incident.*". It goes on after a broken connection, so that none is missed or repeated.
        """
        path = "/api/v1/events" if job is None else _path(job, "/events")
        for kind, position, event in self._stream(path, {"type": type} if type else {}, follow, after):
            if kind == "fact":
                yield position, event

    def publish(self, *events: Dict[str, Any]) -> List[Dict[str, Any]]:
        """Publishes commands as CloudEvents (docs/events.md); returns what was stored of each."""
        return self._call("POST", "/api/v1/events", list(events), media="application/cloudevents-batch+json")["events"]

    # Nodes.

    def list_nodes(self) -> List[dict]:
        """Nodes by name."""
        return self._call("GET", "/api/v1/nodes")["nodes"]

    def drain_node(self, node: str, reason: str = "", *, undo: bool = False) -> Dict[str, Any]:
        """Gives a node no more work and moves its work away; ``undo`` ends that."""
        path = "/api/v1/nodes/" + urllib.parse.quote(node, safe="") + "/drain"
        return self._call("POST", path, {"reason": reason, "undo": undo})

    # HTTP.

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)

    def _request(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Dict[str, str]
    ) -> http.client.HTTPResponse:
        """Sends a request; an answer that is an error is raised."""
        own = {"Authorization": "Bearer " + self._token, "Connection": "close"}
        try:
            connection.request(method, self._prefix + path, body, {**own, **headers})
            response = connection.getresponse()
            if response.status < 400:
                return response
            text = response.read()
        except (OSError, http.client.HTTPException) as e:
            raise ClientError(f"{self.url} does not answer: {e!r}", "unavailable") from e
        raise _problem(response.status, text)

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Optional[Dict[str, Any]] = None,
        headers: Optional[Dict[str, str]] = None,
        media: str = "application/json",
    ) -> Any:
        """A request that may be carried out twice, so that it can be repeated."""
        headers = dict(headers or {})
        if body is not None:
            body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            headers["Content-Type"] = media
        if query:
            path += "?" + urllib.parse.urlencode(query)

        _, text = self._persist(lambda: self._fetch(method, path, body, headers))
        try:
            return json.loads(text) if text else None
        except ValueError as e:
            raise ClientError(f"{self.url} answers something else than JSON: is it a gateway?", "internal") from e

    def _fetch(
        self, method: str, path: str, body: Any = None, headers: Optional[Dict[str, str]] = None
    ) -> Tuple[str, bytes]:
        """One request, and its whole answer: media type and text."""
        connection = self._connect()
        try:
            response = self._request(connection, method, path, body, headers or {})
            try:
                return response.headers.get_content_type(), response.read()
            except (OSError, http.client.HTTPException) as e:
                raise ClientError(f"{self.url}: the answer is not whole: {e!r}", "unavailable") from e
        finally:
            connection.close()

    def _persist(self, once: Callable[[], Any]) -> Any:
        """Repeats a request until a gateway answers, or the patience is over."""
        for _ in _attempts(self._patience):
            try:
                return once()
            except ClientError as e:
                if e.code != "unavailable":
                    raise
                error = e
        raise error

    def _stream(self, path: str, query: Dict[str, Any], follow: bool, after: int = 0) -> Iterator[Tuple[str, int, Any]]:
        """Server-sent events, over as many connections as it needs: kind, position and data."""
        path += "?" + urllib.parse.urlencode({**query, "follow": int(follow)})
        headers = {"Accept": "text/event-stream"}
        if after:
            headers["Last-Event-ID"] = str(after)

        def opened() -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
            connection = self._connect()
            try:
                return connection, self._request(connection, "GET", path, None, headers)
            except BaseException:
                connection.close()
                raise

        while True:
            connection, response = self._persist(opened)
            try:
                for kind, position, data in _items(response):
                    if kind == "error":
                        raise _problem(500, data.encode())
                    if data:
                        yield kind, position or 0, json.loads(data)
                    if position is not None:
                        headers["Last-Event-ID"] = str(position)
                if not follow:
                    return
            except (OSError, http.client.HTTPException):
                pass  # it broke: go on where it was
            finally:
                connection.close()
            time.sleep(0.05)


def _attempts(seconds: Optional[float]) -> Iterator[None]:
    """Yields at once, and again after pauses of 50 ms, 100 ms and so on to 1 s, as long as they end
    within so many seconds; None = for ever."""
    end = float("inf") if seconds is None else time.monotonic() + seconds
    pause = 0.05
    yield
    while time.monotonic() + pause <= end:
        time.sleep(pause)
        pause = min(pause * 2, 1.0)
        yield


def _items(response: http.client.HTTPResponse) -> Iterator[Tuple[str, Optional[int], str]]:
    """Splits server-sent events. A connection that ends in the middle of one is an error."""
    kind, position, data = "", None, ""
    while True:
        line = response.readline().decode()
        if not line:
            if not response.isclosed():
                raise http.client.IncompleteRead(b"")
            return
        line = line.rstrip("\n")
        if not line:
            if data or position is not None:
                yield kind, position, data
            kind, position, data = "", None, ""
            continue
        name, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "id":
            position = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data += value


def _problem(status: int, text: bytes) -> ClientError:
    """The error that an answer is (RFC 9457)."""
    try:
        p = json.loads(text)
        return ClientError(p["detail"], p["code"], status, p.get("errors", ()))
    except (ValueError, KeyError, TypeError):
        code = "unavailable" if 502 <= status <= 504 else "internal"
        return ClientError(f"status {status}, and not from a gateway", code, status)


def _spec(entrypoint: Any, workers: Any, spec: Dict[str, Any]) -> Dict[str, Any]:
    """The job file of what submit_job takes."""
    if isinstance(entrypoint, str):
        entrypoint = shlex.split(entrypoint)
    if entrypoint is not None:
        spec["command"] = list(entrypoint)
    spec.setdefault("name", _name(spec.get("command") or []))
    if isinstance(workers, int):
        workers = (workers, workers)
    if not isinstance(workers, dict):
        workers = {"min": workers[0], "max": workers[1]}
    return {"workers": workers, **spec}


def _name(command: Sequence[str]) -> str:
    """The name of a job that has none: that of its script, else of its program."""
    words = [w for w in command if not w.startswith("-")]
    program = next((w for w in words if w.endswith(".py")), words[0] if words else "job")
    stem = os.path.splitext(os.path.basename(program))[0].lower()
    return re.sub("[^a-z0-9]+", "-", stem).strip("-")[:40] or "job"


def _path(job: str, more: str = "") -> str:
    return "/api/v1/jobs/" + urllib.parse.quote(job, safe="") + more


def _find(state_dir: Optional[str]) -> Dict[str, Any]:
    """The address that a gateway has left in the state folder."""
    folder = state_dir or os.environ.get("REGROUP_STATE_DIR")
    if not folder:
        home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
        folder = os.path.join(home, "regroup")
    names = [
        os.path.join(folder, "gateway.json"),
        *glob.glob(os.path.join(glob.escape(folder), "runs", "*", "gateway.json")),
    ]
    names = [n for n in names if os.path.exists(n)]
    if not names:
        raise ClientError(
            "no gateway runs here: start one with regroup up --dashboard, run --dashboard or serve gateway,"
            " or set REGROUP_GATEWAY_URL",
            "not_found",
        )
    with open(max(names, key=os.path.getmtime), encoding="utf-8") as f:
        return json.load(f)
