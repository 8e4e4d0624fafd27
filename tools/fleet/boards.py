"""
What dashboards cost on a fleet: CPU, samples, series and bytes by panel; the data that
they ask are filled once, and asked by many.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlencode

from tools import markdown
from tools.fleet import costs, grafana, history, layout, remote
from tools.fleet.grafana import Board, Item, Query
from tools.fleet.history import Recorded
from tools.fleet.rules import Group, Rule, read, windows
from tools.fleet.series import Fleet
from tools.fleet.server import Server, ServerError
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


_SLOWEST = 12
# The garbage of one query may be collected in another.
_ROUNDS = 3
_DEAR_SECONDS = 0.5
_BOARD_TITLES = (
    *("board", "chosen", "CPU of a refresh", "all rows open", "slowest query"),
    *("samples", "most series", "most values", "asked", "answered", "problems"),
)
_PANEL_TITLES = (
    *("panel", "board", "chosen", "CPU", "samples", "series", "asked", "answered"),
)


@dataclass(frozen=True)
class Cost:
    """
    What one panel, variable or annotation costs.

    Args:
        board: title of its dashboard.
        chosen: what is chosen on it, ``All`` for everything.
        cpu, wall: seconds.
        samples: that Prometheus read.
        series: returned; rows of a table, values of a variable.
        asked, answered: bytes.
        problems: errors and warnings.
    """

    board: str
    chosen: str
    kind: str
    number: int
    title: str
    hidden: bool
    cpu: float
    wall: float
    samples: int
    series: int
    asked: int
    answered: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """
    All that was measured.

    Args:
        directory: of the dashboards.
        stored: series that they read.
    """

    prometheus: str
    directory: str
    processes: int
    series: int
    stored: int
    costs: tuple[Cost, ...]


def measure(  # noqa: PLR0913 - an experiment has that many parts
    filled: Filled,
    boards: Iterable[Path],
    server: Server,
    chosen: grafana.Choice,
    progress: Callable[[str], object] = lambda _: None,
    *,
    rounds: int = _ROUNDS,
) -> Iterator[Result]:
    """
    Ask the queries of boards, and yield what those of each directory cost.

    Args:
        filled: what is in *server*.
        boards: directories of dashboards, such as before and after a change.
        server: running.
        chosen: on boards about one service.
        progress: called with what is measured next.
        rounds: how often cheap queries are asked, for a median.
    """
    for directory in boards:
        found: list[Cost] = []
        for board in grafana.boards(directory, chosen, scrape=filled.interval):
            progress(f"{board.name} of {directory}")
            found += ask(server, board, filled.end, rounds)
        yield Result(
            costs.version(server.program),
            str(directory),
            filled.processes,
            filled.series,
            filled.stored,
            tuple(found),
        )


def ask(server: Server, board: Board, end: float, rounds: int = _ROUNDS) -> list[Cost]:
    """Return the costs of all queries of *board* up to *end*."""
    viewer = _Viewer(server, board, end, rounds)
    variables = board.variables(viewer.labels)
    found = [viewer.cost(item, board.sizes[item.title]) for item in variables]
    return [*found, *map(viewer.cost, board.items())]


class _Viewer:
    """Asks for one board, and notes what that costs."""

    def __init__(self, server: Server, board: Board, end: float, rounds: int) -> None:
        self._server, self._board, self._end = server, board, end
        self._most = rounds

    def labels(self, query: Query) -> list[dict[str, str]]:
        """Return the labels of the series that *query* finds, or the values."""
        data = json.loads(self._response(query))["data"]
        if query.label:
            return [{query.label: value} for value in data]
        return [one["metric"] for one in data["result"]]

    def cost(self, item: Item, values: int | None = None) -> Cost:
        """
        Return what *item* costs, the median of several rounds if it costs little; a
        variable has so many *values*.
        """
        rounds = [self._round(item)]
        while len(rounds) < self._most and rounds[0].cpu < _DEAR_SECONDS:
            rounds.append(self._round(item))
        found = sorted(rounds, key=lambda one: one.cpu)[len(rounds) // 2]
        return found if values is None else replace(found, series=values)

    def _round(self, item: Item) -> Cost:
        samples = answered = 0
        series: list[int] = []
        problems: list[str] = []
        cpu, wall = self._server.cpu_seconds(), time.perf_counter()
        for query in item.queries:
            try:
                text = self._response(query)
            except ServerError as error:
                problems.append(str(error))
                continue
            answered += len(text)
            document = json.loads(text)
            problems += document.get("warnings", []) + document.get("infos", [])
            data = document["data"]
            if not query.label:
                samples += data["stats"]["samples"]["totalQueryableSamples"]
                series.append(len(data["result"]))
        chosen = (f"{name}={one}" for name, one in self._board.chosen.items())
        # The columns of a table share its rows.
        total = max if item.kind == "table" else sum
        return Cost(
            self._board.name,
            ", ".join(chosen) or "All",
            item.kind,
            item.number,
            item.title,
            item.hidden,
            self._server.cpu_seconds() - cpu,
            time.perf_counter() - wall,
            samples,
            total(series or [0]),
            sum(len(one.expression.encode()) for one in item.queries),
            answered,
            tuple(dict.fromkeys(problems)),
        )

    def _response(self, query: Query) -> bytes:
        start = self._end - self._board.seconds
        if query.label:
            selected = {"match[]": query.expression, "start": start, "end": self._end}
            return self._server.response(
                f"label/{query.label}/values?{urlencode(selected)}"
            )
        if not query.step:
            return self._server.response(
                "query", query=query.expression, time=self._end, stats="all"
            )
        return self._server.response(
            "query_range",
            query=query.expression,
            # Grafana aligns ranges to steps.
            start=start // query.step * query.step,
            end=self._end // query.step * query.step,
            step=query.step,
            stats="all",
        )


def as_json(results: Iterable[Result]) -> str:
    """Return everything measured."""
    return json.dumps([asdict(one) for one in results], indent=2) + "\n"


def table(results: Iterable[Result], slowest: int = _SLOWEST) -> str:
    """Return what was measured as Markdown: by board, and the slowest panels."""
    return "\n".join(_table(one, slowest) for one in results)


def _table(result: Result, slowest: int) -> str:
    views: dict[tuple[str, str], list[Cost]] = defaultdict(list)
    for one in result.costs:
        views[one.board, one.chosen].append(one)
    panels = [
        (
            *(one.title, one.board, one.chosen, f"{one.cpu:.2f} s"),
            *(f"{one.samples:,}", f"{one.series:,}"),
            *(_size([one.asked]), _size([one.answered])),
        )
        for one in sorted(result.costs, key=lambda one: -one.cpu)[:slowest]
    ]
    rows = [(*names, *_of_board(costs_)) for names, costs_ in views.items()]
    return markdown.page(
        f"{result.directory}: Prometheus {result.prometheus}, {result.processes} "
        f"processes, {result.series:,} series.",
        markdown.table(_BOARD_TITLES, rows, "ll" + "r" * len(_BOARD_TITLES)),
        markdown.table(_PANEL_TITLES, panels, "lll" + "r" * len(_PANEL_TITLES)),
        *(
            f"{one.board}, {one.title}: {problem}"
            for one in result.costs
            for problem in one.problems
        ),
    )


def _of_board(every: list[Cost]) -> Iterator[str]:
    yield _cpu(one for one in every if not one.hidden)
    yield _cpu(every)
    yield f"{max(one.cpu for one in every):.2f} s"
    yield f"{sum(one.samples for one in every):,}"
    yield f"{max(one.series for one in every if one.kind != 'variable'):,}"
    yield f"{max(one.series for one in every if one.kind == 'variable'):,}"
    yield _size(one.asked for one in every)
    yield _size(one.answered for one in every)
    yield f"{sum(bool(one.problems) for one in every)}"


def _cpu(costs_: Iterable[Cost]) -> str:
    return f"{sum(one.cpu for one in costs_):.1f} s"


def _size(sizes: Iterable[int]) -> str:
    return f"{sum(sizes) / 1000:,.0f} kB"
