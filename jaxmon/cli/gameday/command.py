"""``jaxmon gameday``: breaks programs on purpose, and checks what the alerts say."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from jaxmon.cli import options, output
from jaxmon.cli.gameday.scene import BOLD, QUIET, WARNING, Line, clock, view
from jaxmon.cli.main import require
from jaxmon.errors import CommandError
from jaxmon.facts.record import encoded
from jaxmon.host.files import whole as scratch
from jaxmon.host.formats.layout import INDENT, UNKNOWN, Column, table, wrapped
from jaxmon.screens.section import shown
from jaxmon_alerts.gameday import children as programs
from jaxmon_alerts.gameday import stack
from jaxmon_alerts.gameday.children import Children
from jaxmon_alerts.gameday.drill import (
    AlertSite,
    Drill,
    DrillPhase,
    Firing,
    OwnSite,
    Patience,
    Receiver,
    TheirSite,
)
from jaxmon_alerts.gameday.scenarios import BY_NAME, SCENARIOS, Scenario
from jaxmon_alerts.gameday.stack import MonitoringPrograms
from jaxmon_alerts.gameday.workload import Workload, require_driver


_NAME, _GUIDE = 16, 4
# The line below the drills, and the one that the cursor is on.
_BESIDE = 2
_STYLES = {
    DrillPhase.WAITING: QUIET,
    DrillPhase.STARTING: QUIET,
    DrillPhase.BROKEN: WARNING,
}
_RESULTS = (
    Column("SCENARIO", _NAME, right=False),
    Column("", _GUIDE, right=False),
    Column("ALERT", right=False),
    Column("SEVERITY", 9, right=False),
    Column("DETECTED", 10),
    Column("RESOLVED", 10),
)


class AlertPlace(NamedTuple):
    """Where to look: uid of the dashboard, title of the panel, and runbook command."""

    board: str
    panel: str
    runbook: str


def places_of(alerts: Iterable[str]) -> list[AlertPlace]:
    """Return for each of *alerts* the panel that has the fewest besides."""
    from jaxmon_dashboards.boards import all_dashboards

    panels = [
        (board.uid, panel) for board in all_dashboards() for panel in board.panels
    ]
    places = []
    for alert in alerts:
        listing = [item for item in panels if alert in item[1].alerts]
        uid, panel = min(listing, key=lambda item: len(item[1].alerts))
        places.append(AlertPlace(uid, panel.title, f"jaxmon runbook show {alert}"))
    return places


def _log(began: float) -> Callable[[Sequence[Drill]], None]:
    """Return what prints a line for each drill that changed; it cannot be redrawn."""
    shown: dict[str, str] = {}

    def show(drills: Sequence[Drill]) -> None:
        elapsed = clock(time.monotonic() - began)
        for drill in drills:
            name, text = drill.scenario.name, progress(drill)
            if drill.phase is not DrillPhase.WAITING and shown.get(name) != text:
                shown[name] = text
                output.line(f"  {elapsed}  {name:<{_NAME}}{text}", err=True)

    return show


def drawn(
    drills: Sequence[Drill], size: tuple[int, int], *, began: float
) -> list[Line]:
    """Return a line for each drill and one for all, as many as fit the *size*."""
    room = max(size[1] - _BESIDE, 1)
    shown = drills
    if len(drills) > room:
        # A terminal cannot redraw what has left it: those that change, then.
        still = (DrillPhase.WAITING, DrillPhase.DONE)
        shown = [drill for drill in drills if drill.phase not in still][:room]
    done = sum(drill.result.outcome is not None for drill in drills)
    elapsed = clock(time.monotonic() - began)
    foot = f"{INDENT}{elapsed}   {done} of {len(drills)} done   Ctrl-C stops"
    return [*map(_line, shown), ((foot, QUIET),)]


def _line(drill: Drill) -> Line:
    outcome = drill.result.outcome
    if outcome is None:
        mark, style = " ", _STYLES.get(drill.phase, "")
    else:
        mark, style = ("✓", "green") if outcome == "passed" else ("✗", "red")
    return (
        (f"{INDENT}{mark} ", style),
        (f"{drill.scenario.name:<{_NAME}}", BOLD),
        (progress(drill), "" if outcome == "passed" else style),
    )


def progress(drill: Drill) -> str:
    """Return what has become of *drill* so far, on one line that grows."""
    result, scenario = drill.result, drill.scenario
    if drill.phase is DrillPhase.WAITING:
        return str(drill.phase.value)
    parts = []
    if drill.phase in (DrillPhase.STARTING, DrillPhase.SETTLING):
        parts.append(drill.phase.value)
    elif drill.phase is DrillPhase.BROKEN:
        parts.append(f"broken: {scenario.summary}")
    if result.detected is not None:
        parts.append(f"{scenario.alert} after {result.detected:.0f} s")
        if result.outcome is None:
            parts.append("mended")
    if result.resolved is not None:
        parts.append(f"resolved after {result.resolved:.0f} s")
    if result.outcome not in (None, "passed"):
        parts.append(f"{str(result.outcome).upper()}: {result.reason}")
    return ", ".join(parts)


def _listing(scenarios: Iterable[Scenario], *, width: int) -> list[str]:
    indent = " " * (len(INDENT) + _NAME + _GUIDE)
    return [
        line
        for scenario in scenarios
        for line in wrapped(
            f"{scenario.summary}: {scenario.alert}",
            width,
            first=f"{INDENT}{scenario.name:{_NAME}}{scenario.guide:{_GUIDE}}",
            rest=indent,
        )
    ]


def _table_of(drills: Sequence[Drill], *, width: int) -> list[str]:
    rows = [
        (
            drill.scenario.name,
            drill.scenario.guide,
            drill.scenario.alert,
            drill.result.severity or UNKNOWN,
            shown(drill.result.detected, "{:.0f} s".format),
            shown(drill.result.resolved, "{:.0f} s".format),
        )
        for drill in drills
    ]
    return table(_RESULTS, rows, width=width)


def _guidance(drills: Iterable[Drill], places: Iterable[AlertPlace]) -> list[str]:
    lines = []
    for drill, place in zip(drills, places, strict=True):
        lines += [
            f"{INDENT}{drill.scenario.alert}",
            f"{INDENT}{INDENT}panel    {place.panel} ({place.board})",
            f"{INDENT}{INDENT}runbook  {place.runbook}",
        ]
        if drill.result.others:
            others = ", ".join(drill.result.others)
            lines.append(f"{INDENT}{INDENT}also     {others}")
    return lines


def verdict(drills: Sequence[Drill]) -> str:
    """Return how many passed, and which did not."""
    failed = [
        drill.scenario.name for drill in drills if drill.result.outcome != "passed"
    ]
    passed = len(drills) - len(failed)
    text = f"{passed} of {len(drills)} passed"
    return f"{text}; not {', '.join(failed)}" if failed else text


def document(
    drills: Iterable[Drill], places: Iterable[AlertPlace]
) -> list[dict[str, Any]]:
    """Return the results in JSON types; times are in seconds."""
    return [
        {
            "scenario": drill.scenario.name,
            "guide": drill.scenario.guide,
            "summary": drill.scenario.summary,
            "alert": drill.scenario.alert,
            **asdict(drill.result),
            **place._asdict(),
        }
        for drill, place in zip(drills, places, strict=True)
    ]


_FAILED = 3
# Programs sleep most of the time; their start is what takes processors.
_PER_PROCESSOR = 4
_TICK_SECONDS = 0.5
_SILENCE_SECONDS = 60.0


@options.subcommand()
def command(
    *,
    names: Sequence[str] = options.argument(nargs=-1, metavar="[SCENARIO]..."),
    every: bool = options.flag("--all"),
    listed: bool = options.flag("--list"),
    as_json: bool = options.AS_JSON,
    parallel: int | None = options.option(options.Whole(1, 64)),
    against: str | None = options.option(options.BASE_URL),
    targets: Path | None = options.option(options.NEW_FILE),
    host: str = options.option(str, default=programs.HOST, metavar="ADDRESS"),
    time_scale: float = options.option(
        options.Number(min=1, max=stack.SCALE), default=1.0
    ),
    library: Path | None = options.option(
        options.DIRECTORY, "--driver", envvar="JAXMON_GAMEDAY_DRIVER"
    ),
) -> None:
    """
    Break programs on purpose, and check that alerts fire.

    For each SCENARIO, it starts a real JAX program and a sidecar, and waits until no
    alert fires. Then it breaks the program, waits for the alert, mends the program, and
    waits until the alert is resolved. The alerts are those of `jaxmon alerts build`, 60
    times as fast as in production, in a Prometheus and an Alertmanager of its own. A
    fault counts as detected when the notification arrives.

    With --against, the programs run here and the alerts are those of your Prometheus,
    which must scrape what is written to --targets. At production speed, an alert takes
    minutes to half an hour.

    Options:
        every: Drill every scenario.
        listed: List the scenarios and exit.
        as_json: Print the results as JSON, or the scenarios of --list.
        parallel: Scenarios that run at the same time; default: 4 per processor.
        against: Watch the alerts of this Prometheus instead of starting one.
        targets: With --against: file for its file_sd_configs, in JSON.
        host: With --against: address of this host that it can reach.
        time_scale: With --against: the time scale its rules were built with.
        library: Stand-in for NVIDIA's driver library, for faults of GPUs.

    Exit codes:
      0   every fault was detected and resolved, and nothing else fired
      3   a fault was missed, its alert did not resolve, or something else fired

    Examples:
      jaxmon gameday --list
      jaxmon gameday recompile oom
      jaxmon gameday --all --json --out results.json
      jaxmon gameday --all --against https://prometheus.staging.example.com \\
          --targets /etc/prometheus/gameday.json --host 10.0.0.7
    """
    if listed:
        every_scenario = [encoded(asdict(scenario)) for scenario in SCENARIOS]
        text = _listing(SCENARIOS, width=output.report_width())
        output.result(every_scenario, text, as_json=as_json)
        return
    if (against is None) != (targets is None):
        msg = "--against and --targets belong together: give both, or neither"
        raise click.UsageError(msg)
    scenarios = _chosen(names, every=every, driven=library is not None)
    library = require_driver(library) if library is not None else None
    require("gameday", "jax", "flax", "optax")
    with (
        scratch.directory("jaxmon-gameday-") as directory,
        Children(
            programs.environ(str(directory), scale=stack.SCALE), directory
        ) as children,
        _site(children, directory, against, targets, time_scale) as site,
    ):
        patience = Patience(site.scale)
        drills = [
            Drill(
                scenario,
                Workload(
                    scenario,
                    children,
                    directory / scenario.name,
                    scale=site.scale,
                    host=host if against else programs.HOST,
                    library=library,
                ),
                patience,
            )
            for scenario in scenarios
        ]
        _run(drills, site, parallel)
    _conclude(drills, as_json=as_json)


def _run(drills: Sequence[Drill], site: AlertSite, parallel: int | None) -> None:
    """Take *drills* to their end. Raises `CommandError`: a silent site."""
    processors = os.cpu_count() or 1
    at_once = parallel or _PER_PROCESSOR * processors
    # The longest first: the others fit in beside it.
    drills = sorted(drills, key=lambda drill: -drill.scenario.usual_for)
    scraped: dict[str, str] = {}
    firing: list[Firing] = []
    heard = began = time.monotonic()
    with view(partial(drawn, began=began), lambda: _log(began)) as show:
        while any(drill.phase is not DrillPhase.DONE for drill in drills):
            now = time.monotonic()
            _start_next(drills, now, at_once=at_once, starting=processors)
            try:
                firing, heard = site.firing(), now
            except CommandError:
                if now - heard > _SILENCE_SECONDS:
                    raise
            for drill in drills:
                of_drill = [alert for alert in firing if alert.job == drill.job]
                drill.advance(now, of_drill)
            targets = {drill.job: drill.address for drill in drills if drill.address}
            if targets != scraped:
                site.scrape(targets)
                scraped = targets
            show(drills)
            time.sleep(_TICK_SECONDS)


def _start_next(
    drills: Sequence[Drill], now: float, *, at_once: int, starting: int
) -> None:
    waiting = [drill for drill in drills if drill.phase is DrillPhase.WAITING]
    busy = len(drills) - len(waiting)
    busy -= sum(drill.phase is DrillPhase.DONE for drill in drills)
    begun = sum(drill.phase is DrillPhase.STARTING for drill in drills)
    for drill in waiting[: max(min(at_once - busy, starting - begun), 0)]:
        drill.start(now)


def _conclude(drills: Sequence[Drill], *, as_json: bool) -> None:
    places = places_of(drill.scenario.alert for drill in drills)
    shown = _table_of(drills, width=output.report_width())
    shown += ["", *_guidance(drills, places), "", verdict(drills)]
    # Standard error shows the table even if the results go to a file.
    output.lines(["", *shown], err=as_json)
    if as_json:
        output.document(document(drills, places))
    if failed := [drill for drill in drills if drill.result.outcome != "passed"]:
        msg = "the game day found faults in the alerts"
        details = [f"{drill.scenario.name}: {drill.result.reason}" for drill in failed]
        raise CommandError(msg, details=details, exit_code=_FAILED)


def _chosen(names: Sequence[str], *, every: bool, driven: bool) -> Sequence[Scenario]:
    if every:
        if names:
            msg = "--all drills every scenario; give names or --all, not both"
            raise click.UsageError(msg)
        left_out = [
            scenario.name
            for scenario in SCENARIOS
            if scenario.needs_driver and not driven
        ]
        if left_out:
            text = f"Without --driver, not drilled: {', '.join(left_out)}"
            output.line(text, err=True)
        return [scenario for scenario in SCENARIOS if scenario.name not in left_out]
    names_of_all = ", ".join(BY_NAME)
    if not names:
        msg = f"which scenario? Give --all or some of {names_of_all}"
        raise click.UsageError(msg)
    for name in names:
        if name not in BY_NAME:
            msg = f"{name!r} is no scenario; give some of {names_of_all}"
            raise click.UsageError(msg)
        if BY_NAME[name].needs_driver and not driven:
            msg = f"{name} is about GPUs; give a stand-in for their driver: --driver"
            raise click.UsageError(msg)
    return [BY_NAME[name] for name in dict.fromkeys(names)]


@contextmanager
def _site(
    children: Children,
    directory: Path,
    against: str | None,
    targets: Path | None,
    scale: float,
) -> Iterator[AlertSite]:
    if against is not None and targets is not None:
        theirs = TheirSite(against.rstrip("/"), targets, scale)
        theirs.firing()
        theirs.scrape({})
        text = f"Watching {against}; what it must scrape is in {targets}"
        output.line(text, err=True)
        try:
            yield theirs
        finally:
            theirs.scrape({})
        return
    if (installed := MonitoringPrograms.installed()) is None:
        msg = (
            "prometheus and prometheus-alertmanager are not on the PATH; install both, "
            "or use --against"
        )
        raise CommandError(msg)
    output.line(
        f"Starting Prometheus and Alertmanager, {stack.SCALE} times as fast as in "
        "production ...",
        err=True,
    )
    with Receiver() as receiver:
        running = stack.start(
            installed,
            children,
            directory,
            targets={},
            webhook=receiver.url,
            drawn=False,
        )
        yield OwnSite(running, receiver)
