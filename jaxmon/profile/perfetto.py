"""
A trace as the JSON that ui.perfetto.dev and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from typing import Any

from jaxmon.profile.xspace import Event, Plane


def render(planes: Iterable[Plane]) -> bytes:
    """
    Return *planes* as compressed JSON: a process for each plane, a thread for each
    line. Times are microseconds since the earliest line began.
    """
    planes = list(planes)
    stamps = [line.timestamp for plane in planes for line in plane.lines]
    zero = min(stamps, default=0)
    events: list[dict[str, Any]] = []
    for pid, plane in enumerate(planes, 1):
        events.append(_name("process_name", pid, 0, plane.name))
        for tid, line in enumerate(plane.lines, 1):
            events.append(_name("thread_name", pid, tid, line.name))
            offset = (line.timestamp - zero) / 1e3
            events += [_complete(event, pid, tid, offset) for event in line.events]
    document = {"displayTimeUnit": "ns", "traceEvents": events}
    return gzip.compress(json.dumps(document).encode(), 6)


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(event: Event, pid: int, tid: int, offset: float) -> dict[str, Any]:
    known = {"hlo_op": event.op, "hlo_module": event.module}
    return {
        "ph": "X",
        "name": event.name,
        "pid": pid,
        "tid": tid,
        "ts": offset + event.start / 1e6,
        "dur": event.duration / 1e6,
        "args": {key: value for key, value in known.items() if value is not None},
    }
