"""What happened and when, from the event logs of agents and from alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jaxmon.cli.bundle.agents import AgentReport
from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.events import Event
from jaxmon.host.formats.layout import clean, shortened


_MOST = 80
_LONGEST = 160
# Too many of these happen in a healthy program.
_ORDINARY = ("compile", "miss")


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that happened *count* times from the Unix time *first* to *last*."""

    first: float
    last: float
    count: int
    source: str
    what: str


def entries(
    processes: Iterable[AgentReport],
    alerts: Iterable[Mapping[str, Any]],
    ends: Mapping[str, ProcessEnd],
) -> list[Entry]:
    """
    Return what happened, in order of time; of too much, the latest.

    Args:
        processes: with their events; those of one kind and function become one entry.
        alerts: labels, and ``since`` in Unix time if known.
        ends: the records of processes that have ended, by slot.
    """
    found = [*_of_alerts(alerts)]
    for number, end in ends.items():
        if (at := end.time) is not None:
            found.append(Entry(at, at, 1, f"worker {number}", _line(end.sentence)))
    for process in processes:
        found += _of_process(process)
    return sorted(found, key=lambda one: (one.first, one.source))[-_MOST:]


def _of_alerts(alerts: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    for one in alerts:
        since = one.get("since")
        if isinstance(since, float):
            labels = one["labels"]
            name, severity = labels.get("alertname", ""), labels.get("severity", "")
            about = " ".join(
                f"{key}={labels[key]}"
                for key in ("job", "cluster", "instance", "function", "route")
                if labels.get(key)
            )
            what = f"alert {name} ({severity}) {about}"
            yield Entry(since, since, 1, "Prometheus", _line(what))


def _of_process(process: AgentReport) -> Iterator[Entry]:
    source = f"worker {process.number}"
    if started := process.snapshot.process.started:
        yield Entry(started, started, 1, source, "jaxmon was started in the process")
    groups: dict[tuple[str, str], list[Event]] = {}
    for event in process.snapshot.events:
        if event.time and event.kind not in _ORDINARY:
            groups.setdefault((event.kind, event.function), []).append(event)
    for (kind, function), events in groups.items():
        first, last = events[0], events[-1]
        named = f" {function}" if function else ""
        what = f"{kind}{named}: {last.message}"
        yield Entry(first.time, last.time, len(events), source, _line(what))


def _line(text: str) -> str:
    return shortened(" ".join(clean(text).split()), _LONGEST)
