"""A profile as a table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxmon.host import sources
from jaxmon.host.formats.layout import (
    UNKNOWN,
    Column,
    clean,
    counted,
    duration,
    ending,
    share,
    shortened,
    table,
)
from jaxmon.preflight.profile.operations import (
    By,
    Group,
    Operation,
    Profile,
    enough,
    scope_of,
)
from jaxmon.preflight.profile.origins import CodePlace
from jaxmon.preflight.profile.xspace import Plane, TraceEvent


# Rows without --top: with what is above and below them, a screen of 32 lines.
_MOST_ROWS = 20
_NOTHING = [
    "No operation ran while recording. Record for longer (--seconds), or check",
    "with jaxmon explain whether the program is making progress.",
]
_NOUNS: Mapping[By, str] = {
    "line": "line",
    "function": "function",
    "scope": "scope",
    "op": "operation",
}
_WIDE = 100


def lines(
    profile: Profile, groups: Sequence[Group], by: By, *, top: int | None, width: int
) -> list[str]:
    """Return a table."""
    if not groups:
        return [*_use(profile), *_NOTHING]
    count = enough(groups, _MOST_ROWS) if top is None else top
    found = [*_use(profile), *_located(profile), ""]
    found += _table(groups[:count], by, profile.seconds, width)
    if rest := groups[count:]:
        left = share(sum(group.seconds for group in rest), profile.seconds)
        noun = counted(len(rest), f"more {_NOUNS[by]}")
        found.append(f"and {noun} ({left} of the time)")
    return found


def _use(profile: Profile) -> list[str]:
    if not profile.recorded:
        return []
    busy = min(profile.busy, profile.recorded)
    several = f" on {profile.devices} devices" if profile.devices > 1 else ""
    ran = share(busy, profile.recorded)
    idle = share(profile.recorded - busy, profile.recorded)
    recorded = f"recorded {duration(profile.recorded)}{several}"
    return [f"{recorded}: operations ran {ran} of the time, idle {idle}"]


def _located(profile: Profile) -> list[str]:
    found = []
    if profile.located or not profile.without_programs:
        located = share(profile.located, profile.seconds)
        found.append(f"{located} of their time comes from lines of the program")
    if profile.without_programs:
        programs = counted(profile.without_programs, "XLA program")
        found.append(f"the trace does not have the code of {programs}: no lines")
    return found


def _table(groups: Sequence[Group], by: By, total: float, width: int) -> list[str]:
    wide = width >= _WIDE
    names = _COLUMNS[by]
    if not any(group.backward for group in groups):
        names = tuple(name for name in names if name != "BACKWARD")
    if by == "op" and not wide:
        names = tuple(name for name in names if name != "MOSTLY")
    first, *others = [_column(name, wide=wide) for name in names]
    layout = [first._replace(size=0), *others]
    cells = [
        [_cell(name, group, total, wide=wide) for name in names] for group in groups
    ]
    return table(layout, cells, width=width, indent="")


# The first takes the width that the others leave.
_COLUMNS: Mapping[By, tuple[str, ...]] = {
    "line": ("LINE", "IN", "MOSTLY", "BACKWARD", "TIME", "SHARE"),
    "function": ("FUNCTION", "LINE", "MOSTLY", "BACKWARD", "TIME", "SHARE"),
    "scope": ("SCOPE", "LINE", "MOSTLY", "BACKWARD", "TIME", "SHARE"),
    "op": ("OPERATION", "LINE", "MOSTLY", "RUNS", "TIME", "SHARE"),
}
_NUMBERS = {"BACKWARD": 10, "RUNS": 9, "TIME": 9, "SHARE": 8}
# Up to a hundred columns, and beyond.
_TEXTS = {"LINE": (20, 30), "IN": (17, 26), "MOSTLY": (15, 36)}


def _column(name: str, *, wide: bool) -> Column:
    if name in _NUMBERS:
        return Column(name, _NUMBERS[name])
    # The end of a path, and of a qualified name, is the most informative.
    cut = shortened if name in ("OPERATION", "MOSTLY") else ending
    sizes = _TEXTS.get(name, (0, 0))
    return Column(name, sizes[wide], right=False, cut=cut)


def _cell(name: str, group: Group, total: float, *, wide: bool) -> str:
    kind = group.kind if wide else group.kind[:1]
    return {
        "BACKWARD": lambda: share(group.backward, group.seconds),
        "FUNCTION": lambda: clean(group.function),
        "IN": lambda: clean("" if group.place is None else group.place.function),
        "LINE": lambda: _where(group.place),
        "MOSTLY": lambda: clean(" in ".join(filter(None, kind))) or UNKNOWN,
        "OPERATION": lambda: clean(group.operation),
        "RUNS": lambda: f"{group.count:,}",
        "SCOPE": lambda: clean(group.scope) or "no scope",
        "SHARE": lambda: share(group.seconds, total),
        "TIME": lambda: duration(group.seconds),
    }[name]()


def _where(place: CodePlace | None) -> str:
    if place is None:
        return "no line known"
    return f"{clean(sources.display_path(place.file))}:{place.line}"


def document(
    profile: Profile, groups: Sequence[Group], by: By, labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return everything that is known."""
    total, recorded = profile.seconds, profile.recorded
    return {
        "recorded": recorded,
        "busy": profile.busy / recorded if recorded else None,
        "located": profile.located / total if total else None,
        "by": by,
        "groups": [_group(group, total) for group in groups],
        "operations": [
            _operation(one, labels.get(one.program), total)
            for one in profile.operations
        ],
    }


def _group(group: Group, total: float) -> dict[str, Any]:
    return {
        **_place(group.place),
        "library": group.kind.library or None,
        "function": group.function,
        "scope": group.scope,
        "operation": group.operation or None,
        "primitive": group.kind.primitive or None,
        "count": group.count,
        "seconds": group.seconds,
        "backward_seconds": group.backward,
        "recomputed_seconds": group.recomputed,
        "share": group.seconds / total if total else None,
    }


def _operation(one: Operation, label: str | None, total: float) -> dict[str, Any]:
    origin = one.origin
    return {
        "function": label,
        "program": one.program,
        "operation": one.name,
        "count": one.count,
        "seconds": one.seconds,
        "share": one.seconds / total if total else None,
        **_place(origin.place),
        "scope": scope_of(one),
        "primitive": origin.path.primitive or None,
        "backward": origin.path.backward,
        "recomputed": origin.path.recomputed,
        "inferred": origin.inferred,
        "fused_with": [f"{place.file}:{place.line}" for place in origin.others],
    }


def _place(place: CodePlace | None) -> dict[str, Any]:
    if place is None:
        return {"file": None, "line": None, "in": None, "library": None, "own": False}
    return {
        "file": place.file,
        "line": place.line,
        "in": place.function or None,
        "library": place.library or None,
        "own": place.tier == sources.USER,
    }


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


def _complete(event: TraceEvent, pid: int, tid: int, offset: float) -> dict[str, Any]:
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
