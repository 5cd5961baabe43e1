"""What a notebook shows of jobs and incidents: dicts and lists with an HTML form (docs/clients.md)."""

from __future__ import annotations

import base64
import html
from typing import Any, Callable, Dict, Iterable, List, Optional

#: The phases of an incident in their order: the key in phases_ms, and what it is called.
PHASES = (
    ("notice", "notice"),
    ("abort", "abort"),
    ("judge", "judge"),
    ("back_off", "back-off"),
    ("regroup", "regroup"),
    ("sync", "sync"),
    ("first_step", "first step"),
)

# Middle tones: text and pages around them may be light or dark. White is legible on all of them.
_PHASE_COLOURS = ("#8a6d3b", "#b3541e", "#a8457f", "#6e7781", "#3f7fbf", "#7a5cc0", "#2e8b57")
_STATE_COLOURS = {"running": "#2f7d4f", "succeeded": "#2f7d4f", "failed": "#c0392b", "waiting": "#9a6700"}
_LINE = "1px solid rgba(128,128,128,.45)"

#: States of workers that have ended.
_ENDED = ("success", "failure", "lost", "stopped")

#: The width of the bar of the longest incident, in pixels.
_BAR = 240

#: Causes that are no fault: their place is where a worker joins or leaves.
_PLANNED = ("grow", "shrink")


class Job(Dict[str, Any]):
    """A job as ``regroup status -o json`` prints it, with an HTML form for notebooks. ``draw`` returns its
    timeline, an SVG, when it is shown; None = there is none."""

    def __init__(self, *args: Any, draw: Optional[Callable[[], Optional[str]]] = None):
        super().__init__(*args)
        self._draw = draw

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)  # copies are the data alone

    @property
    def incidents(self) -> Incidents:
        """Its incidents that have ended, the oldest first."""
        return Incidents(self.get("incidents") or ())

    def _repr_html_(self) -> str:
        reason = self.get("reason") or ""
        parts = [
            f"<div><b>{_text(self.get('job'))}</b> {_state(self)}"
            + (f" <span style='opacity:.75'>{_text(reason)}</span>" if reason else "")
            + "</div>",
            _table(
                ("workers", "generation", "step", "goodput"),
                [(_workers(self), _known(self.get("generation")), _known(self.get("step")), _goodput(self))],
            ),
        ]
        opened = self.get("open")
        if opened:
            parts.append(f"<div>#{_text(opened.get('incident'))} {_text(_cause(opened))}, open</div>")
        if self.incidents:
            parts.append(self.incidents._repr_html_())
        drawn = self._draw() if self._draw else None
        if drawn:
            parts.append(_picture(drawn, f"timeline of {self.get('job')}"))
        return "<div>" + "".join(parts) + "</div>"


class Jobs(List[Job]):
    """A list of jobs, with an HTML form for notebooks."""

    def _repr_html_(self) -> str:
        if not self:
            return "<div>no jobs</div>"
        rows = []
        for job in self:
            incidents = len(job.get("incidents") or ()) + bool(job.get("open"))
            rows.append(
                (
                    f"<b>{_text(job.get('job'))}</b>",
                    _state(job),
                    _workers(job),
                    _known(job.get("generation")),
                    _known(job.get("step")),
                    str(incidents),
                )
            )
        return _table(("job", "state", "workers", "generation", "step", "incidents"), rows)


class Incidents(List[Dict[str, Any]]):
    """Incidents that have ended, with an HTML form for notebooks: their phases are bars of one scale."""

    def _repr_html_(self) -> str:
        if not self:
            return "<div>no incidents</div>"
        longest = max((_number(i.get("total_ms")) for i in self), default=0.0)
        rows = [
            (
                f"#{_text(i.get('incident'))}",
                _text(_cause(i)) + _silence(i),
                _text(_generations(i)),
                _text(_ms(_number(i.get("total_ms")))),
                _lost(i),
                _bar(i, longest),
            )
            for i in self
        ]
        return _table(("", "incident", "generation", "took", "steps lost", "phases"), rows) + _legend(self)


def _text(value: Any) -> str:
    """Escaped, also for attributes."""
    return html.escape("" if value is None else str(value), quote=True)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _known(value: Any) -> str:
    """A generation or a step: 0 is none."""
    return _text(value) if value else "-"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of cells that are HTML. Its colours are those of the page."""
    cell = f"text-align:left;vertical-align:top;padding:2px 10px 2px 0;border-bottom:{_LINE};background:none"
    head = "".join(f"<th style='{cell};font-weight:600'>{_text(h)}</th>" for h in header)
    body = ""
    for row in rows:
        body += "<tr style='background:none'>" + "".join(f"<td style='{cell}'>{c}</td>" for c in row) + "</tr>"
    style = "border-collapse:collapse;color:inherit"
    return f"<table style='{style}'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _picture(svg: str, what: str) -> str:
    """An SVG as an image: its styles and ids stay its own, and a browser runs no script of it."""
    data = base64.b64encode(svg.encode()).decode()
    style = "display:block;max-width:100%;margin-top:6px"
    return f"<img alt='{_text(what)}' style='{style}' src='data:image/svg+xml;base64,{data}'>"


def _state(job: Dict[str, Any]) -> str:
    state = job.get("state") or "unknown"
    colour = _STATE_COLOURS.get(state, "#6e7781")
    return f"<span style='background:{colour};color:#fff;border-radius:3px;padding:0 6px'>{_text(state)}</span>"


def _workers(job: Dict[str, Any]) -> str:
    """How many train now, of how many are wanted."""
    wanted = (job.get("spec") or {}).get("workers") or {}
    low, high = wanted.get("min"), wanted.get("max")
    span = f"{low}-{high}" if low != high else f"{high}"
    if job.get("state") in ("succeeded", "failed", "stopped"):
        return _text(f"0 of {span}")
    training = sum(
        1
        for w in job.get("workers") or ()
        if w.get("rank") is not None and w.get("generation") == job.get("generation") and w.get("state") not in _ENDED
    )
    return _text(f"{training} of {span}")


def _goodput(job: Dict[str, Any]) -> str:
    part: Optional[float] = job.get("goodput")
    if part is None:
        return "unknown"
    return ("at most " if job.get("goodput_at_most") else "") + f"{100 * part:.1f} %"


def _cause(incident: Dict[str, Any]) -> str:
    """As the command line says it: worker-failed r2 on node-c/0: killed by signal 9 (SIGKILL)."""
    cause = incident.get("cause") or {}
    kind, place = str(cause.get("kind") or "unknown"), cause.get("place")
    text = kind
    if place:
        where = f"{place.get('node')}/{place.get('slot')}"
        named = cause.get("rank") is not None and kind not in _PLANNED
        text += f" r{cause['rank']} on {where}" if named else f" {where}"
    elif cause.get("node"):
        text += f" {cause['node']}"
    return text + (f": {cause['detail']}" if cause.get("detail") else "")


def _generations(incident: Dict[str, Any]) -> str:
    if not incident.get("to"):
        return f"g{incident.get('from')}, the job ended with it"
    return f"g{incident.get('from')} → g{incident.get('to')}"


def _ms(ms: float) -> str:
    """As the command line says it: 41ms, 1.1s, 12s, 2m13s, 3h02m."""
    seconds = ms / 1000
    if seconds < 1:
        return f"{round(ms)}ms"
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{int(seconds)}s"
    if seconds < 3600:
        return f"{int(seconds) // 60}m{int(seconds) % 60:02d}s"
    return f"{int(seconds) // 3600}h{int(seconds) % 3600 // 60:02d}m"


def _lost(incident: Dict[str, Any]) -> str:
    lost = incident.get("steps_lost")
    if lost is None:
        return "unknown"
    return ("at least " if incident.get("at_least") else "") + _text(lost)


def _silence(incident: Dict[str, Any]) -> str:
    """For how long nobody had observed a step before."""
    if incident.get("silence_ms"):
        return f"<br><i>no step was observed for {_ms(_number(incident['silence_ms']))} before</i>"
    if incident.get("silence_unknown"):
        return "<br><i>for how long nobody had observed it before is unknown</i>"
    return ""


def _bar(incident: Dict[str, Any], longest: float) -> str:
    """The phases one after the other, as an SVG whose titles have their times."""
    phases = incident.get("phases_ms") or {}
    if longest <= 0:
        return ""
    x, drawn, said = 0.0, [], []
    for (key, name), colour in zip(PHASES, _PHASE_COLOURS):
        ms = _number(phases.get(key))
        if ms <= 0:
            continue
        wide = _BAR * ms / longest
        said.append(f"{name} {_ms(ms)}")
        drawn.append(
            f"<rect x='{x:.1f}' y='0' width='{max(wide, 0.5):.1f}' height='12' fill='{colour}'>"
            f"<title>{_text(said[-1])}</title></rect>"
        )
        x += wide
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{_BAR}' height='12' viewBox='0 0 {_BAR} 12' role='img'"
        f" aria-label='{_text(', '.join(said) or 'under 1ms')}'>{''.join(drawn)}</svg>"
    )


def _legend(incidents: Iterable[Dict[str, Any]]) -> str:
    """What the colours are that occur."""
    found = {key for i in incidents for key, ms in (i.get("phases_ms") or {}).items() if _number(ms) > 0}
    names = [
        f"<span><span style='display:inline-block;width:10px;height:10px;background:{colour}'></span> {name}</span>"
        for (key, name), colour in zip(PHASES, _PHASE_COLOURS)
        if key in found
    ]
    return "<div style='font-size:85%'>" + " ".join(names) + "</div>"
