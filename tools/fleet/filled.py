"""The data of a Prometheus that boards can ask: filled once, asked by many."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.fleet import costs, grafana, history, layout, remote
from tools.fleet.history import Recorded
from tools.fleet.rules import Group, Rule, read, windows
from tools.fleet.series import Fleet
from tools.fleet.server import Server
from tools.fleet.templates import Templates


# Prometheus's own limit of samples in memory.
_MOST_SAMPLES = 50_000_000
_ALARMS = (
    *("JaxmonTargetDown", "JaxmonAgentSilent", "JaxmonHostMemoryGrowth"),
    *("JaxmonGpuThrottled", "JaxmonTimeLost"),
)
_FILE = "filled.json"


class FilledError(ValueError):
    """The boards read what the data has not."""


@dataclass(frozen=True)
class Filled:
    """
    What was filled.

    Args:
        end: time of the last samples.
        interval: of scrapes.
        processes: of the fleet.
        series: that it exports.
        stored: series that boards read.
        seconds: of each metric and recorded series.
    """

    end: float
    interval: float
    processes: int
    series: int
    stored: int
    seconds: dict[str, float]

    def server(self, directory: Path, program: str) -> Server:
        """Return a Prometheus with the data in *directory*."""
        return Server(directory, program, most=_MOST_SAMPLES)


def load(
    plan: costs.Plan,
    boards: Iterable[Path],
    templates: Templates,
    directory: Path,
    chosen: grafana.Choice,
) -> Filled:
    """
    Return what *directory* was filled with.

    Raises:
        FilledError: *boards* read a series, or a time, that it was not filled with.
    """
    found = Filled(**json.loads((directory / _FILE).read_text()))
    for name, reach in _needed(plan, boards, templates, chosen).items():
        if reach > found.seconds.get(name, 0.0):
            msg = f"{directory} has too little of {name}; fill another directory"
            raise FilledError(msg)
    return found


def is_filled(directory: Path) -> bool:
    """Return whether *directory* was filled, to the end."""
    return (directory / _FILE).exists()


def fill(
    plan: costs.Plan,
    boards: Sequence[Path],
    templates: Templates,
    directory: Path,
    chosen: grafana.Choice,
) -> Filled:
    """Fill *directory*, which is empty, with what *boards* read, and return what."""
    directory.mkdir(parents=True, exist_ok=True)
    known = costs.known(templates)
    begun = time.time()
    pods = layout.pods(plan.shape, begun - plan.hours * 3600 - 3600, begun + 86400)
    fleet = Fleet(templates, pods)
    alarms = list(_alarms(pods, begun, plan.interval))
    recorded = costs.learn(plan, fleet, known, directory / "learn", alarms)
    recorded += alarms
    needed = _needed(plan, boards, templates, chosen)
    with Server(directory, plan.program, most=_MOST_SAMPLES) as server:
        end = time.time() // plan.interval * plan.interval
        times = history.moments(end, max(needed.values()), plan.interval)
        history.fill(server, fleet, times, needed, recorded)
        history.until_compacted(server)
        stored = int(server.own()["prometheus_tsdb_head_series"])
    found = Filled(
        *(end, plan.interval, plan.shape.processes),
        *(fleet.series(end), stored, needed),
    )
    # Last: a directory without it is not complete.
    (directory / _FILE).write_text(json.dumps(asdict(found), indent=2) + "\n")
    return found


def _alarms(
    pods: Iterable[layout.Pod], at: float, interval: float
) -> Iterator[Recorded]:
    """Yield alerts of a bad day: one fires for each fourth host."""
    names = itertools.cycle(_ALARMS)
    for pod in [one for one in pods if one.start <= at < one.end][::4]:
        subject = {**dict(pod.labels), "severity": "ticket", "alertname": next(names)}
        for name, more, value in (
            ("ALERTS", {"alertstate": "firing"}, 1.0),
            ("ALERTS_FOR_STATE", {}, at - 3600),
        ):
            labels = remote.series({"__name__": name, **subject, **more}.items())
            yield Recorded(name, labels, value, interval)


def _needed(
    plan: costs.Plan,
    boards: Iterable[Path],
    templates: Templates,
    chosen: grafana.Choice,
) -> dict[str, float]:
    """Return how many seconds of each series the boards read, as far as planned."""
    known = costs.known(templates) | {"ALERTS", "ALERTS_FOR_STATE"}
    known |= {rule.name for group in read(plan.rules) for rule in group.rules}
    found: dict[str, float] = {}
    for directory in boards:
        every = grafana.read(grafana.boards(directory, chosen, scrape=plan.interval))
        for expression, reach in every.items():
            group = Group("", "", 0.0, (Rule("", expression, (), alert=False),))
            for name, window in windows([group], known).items():
                most = min(window + reach, plan.hours * 3600)
                found[name] = max(found.get(name, 0.0), most)
    return found
