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
from jaxmon.screens.section import Fields, number, tabulated, whole, words


# Rows without --top: with what is above and below them, a screen of 32 lines.
_MOST_ROWS = 20
_NOTHING = [
    "No operation ran while recording. Record for longer (--seconds), or check",
    "with jaxmon explain whether the program is making progress.",
]
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
        noun = counted(len(rest), f"more {'operation' if by == 'op' else by}")
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
    sums = ["times are sums over the devices"] if several else []
    return [f"{recorded}: operations ran {ran} of the time, idle {idle}", *sums]


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
    names = list(_COLUMNS[by])
    if "BACKWARD" in names and not any(group.backward for group in groups):
        names.remove("BACKWARD")
    if by == "op" and not wide:
        names.remove("MOSTLY")
    fields = {column.heading: (column, cell) for column, cell in _fields(total, wide)}
    first, *others = [fields[name] for name in names]
    shown = [(first[0]._replace(size=0), first[1]), *others]
    section = tabulated("", shown, groups)
    return table(section.columns, section.rows, width=width, indent="")


# The first takes the width that the others leave.
_COLUMNS: Mapping[By, tuple[str, ...]] = {
    "line": ("LINE", "IN", "MOSTLY", "BACKWARD", "TIME", "SHARE"),
    "function": ("FUNCTION", "LINE", "MOSTLY", "BACKWARD", "TIME", "SHARE"),
    "scope": ("SCOPE", "LINE", "MOSTLY", "BACKWARD", "TIME", "SHARE"),
    "op": ("OPERATION", "LINE", "MOSTLY", "RUNS", "TIME", "SHARE"),
}


def _fields(total: float, wide: bool) -> Fields[Group]:  # noqa: FBT001 - as an index
    """Return the columns, more if *wide*; of paths and names the end says the most."""
    return (
        words("LINE", (20, 30)[wide], lambda group: _where(group.place), ending),
        words("IN", (17, 26)[wide], lambda group: _function(group.place), ending),
        words("FUNCTION", 0, lambda group: clean(group.function), ending),
        words("SCOPE", 0, lambda group: clean(group.scope) or "no scope", ending),
        words("OPERATION", 0, lambda group: clean(group.operation)),
        words("MOSTLY", (15, 36)[wide], lambda group: _mostly(group.kind[: 1 + wide])),
        (Column("BACKWARD", 10), lambda group: share(group.backward, group.seconds)),
        number("RUNS", 9, lambda group: group.count, whole),
        number("TIME", 9, lambda group: group.seconds, duration),
        (Column("SHARE", 8), lambda group: share(group.seconds, total)),
    )


def _mostly(kind: tuple[str, ...]) -> str:
    return clean(" in ".join(filter(None, kind))) or UNKNOWN


def _function(place: CodePlace | None) -> str:
    return "" if place is None else clean(place.function)


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
            _operation(operation, labels.get(operation.program), total)
            for operation in profile.operations
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


def _operation(operation: Operation, label: str | None, total: float) -> dict[str, Any]:
    origin = operation.origin
    return {
        "function": label,
        "program": operation.program,
        "operation": operation.name,
        "count": operation.count,
        "seconds": operation.seconds,
        "share": operation.seconds / total if total else None,
        **_place(origin.place),
        "scope": scope_of(operation),
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
    """Return *planes* as compressed JSON for Perfetto; times are microseconds."""
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
    names = {"hlo_op": event.op, "hlo_module": event.module}
    return {
        "ph": "X",
        "name": event.name,
        "pid": pid,
        "tid": tid,
        "ts": offset + event.start / 1e6,
        "dur": event.duration / 1e6,
        "args": {key: value for key, value in names.items() if value is not None},
    }
