"""What evaluating rules costs on a fleet: time and CPU by rule, group and core."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tools import markdown
from tools.fleet import history, layout
from tools.fleet.history import Recorded, fill, moments
from tools.fleet.rules import Group, files, read, windows
from tools.fleet.series import Fleet
from tools.fleet.server import Server
from tools.fleet.templates import Templates


# Samples for the time in which rules are evaluated live; more than that ahead of the
# clock Prometheus rejects.
_AHEAD_SECONDS = 540.0
_LEARN_SECONDS = 900.0
_ROUNDS = 3


@dataclass(frozen=True)
class Plan:
    """
    What is measured.

    Args:
        rules: directory of rule files.
        shape: of the fleet.
        hours: of history.
        interval: seconds between scrapes.
        live: seconds for which Prometheus evaluates the rules by itself; 0 for none.
        program: path of Prometheus.
    """

    rules: Path
    shape: layout.Shape
    hours: float = 73.0
    interval: float = 30.0
    live: float = 240.0
    program: str = "prometheus"


@dataclass(frozen=True)
class RuleCost:
    """Seconds of one evaluation, and how many series it yields."""

    name: str
    expression: str
    wall: float
    series: int


@dataclass(frozen=True)
class GroupCost:
    """
    One evaluation of a group.

    Args:
        interval, wall, cpu: seconds.
        live: wall seconds as Prometheus reports them, if it evaluated by itself.
    """

    name: str
    interval: float
    wall: float
    cpu: float
    rules: tuple[RuleCost, ...]
    live: float | None = None

    @property
    def core(self) -> float:
        """Return the fraction of a core that the group keeps busy."""
        return self.cpu / self.interval


@dataclass(frozen=True)
class Result:
    """
    All that was measured.

    Args:
        series: of the whole fleet, and *stored* of those that rules read.
        samples, seconds: written, and in which time.
        bytes_per_sample: in blocks on disk.
        head_bytes: resident memory at the end.
        live: fraction of a core in live evaluation, without what it takes idle.
        missed: evaluations that started too late for their interval.
        errors: of rules, by name.
    """

    prometheus: str
    processes: int
    hours: float
    interval: float
    series: int
    stored: int
    recorded: int
    samples: int
    seconds: float
    bytes_per_sample: float
    memory_bytes: int
    groups: tuple[GroupCost, ...]
    live: float | None = None
    missed: int | None = None
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def core(self) -> float:
        """Return the fraction of a core that all groups keep busy together."""
        return sum(group.core for group in self.groups)


def measure(plan: Plan, templates: Templates, directory: Path) -> Result:
    """
    Measure *plan* in *directory*, which is empty and needs some gigabytes.

    History holds only the series that the rules read: others cost memory and disk, but
    rules never look at them.
    """
    groups = read(plan.rules)
    seconds = plan.hours * 3600
    begun = time.time()
    pods = layout.pods(plan.shape, begun - seconds - 3600, begun + 86400)
    fleet = Fleet(templates, pods)
    recorded = learn(plan, fleet, known(templates), directory / "learn")
    needed = windows(groups, known(templates) | {one.name for one in recorded})
    where = directory / "history"
    where.mkdir()
    with Server(where, plan.program) as server:
        end = time.time() // plan.interval * plan.interval
        written = 0
        # Filling takes minutes, so there is always a rest; until it is short.
        times = moments(end, seconds, plan.interval)
        while len(times):
            written += fill(server, fleet, times, needed, recorded)
            after = time.time() // plan.interval * plan.interval
            rest = moments(after, after - end, plan.interval)[1:]
            times = rest if after - end > 2 * plan.interval else rest[:0]
            end = after
        spent = time.time() - begun
        history.until_compacted(server)
        costs = tuple(_group(server, group, end) for group in groups)
        result = Result(
            version(plan.program),
            plan.shape.processes,
            plan.hours,
            plan.interval,
            fleet.series(end),
            int(server.own()["prometheus_tsdb_head_series"]),
            len(recorded),
            written,
            spent,
            bytes_per_sample(where / "data"),
            server.memory_bytes(),
            costs,
        )
        if not plan.live:
            return result
        now = time.time() // plan.interval * plan.interval
        ahead = moments(now + _AHEAD_SECONDS, now + _AHEAD_SECONDS - end, plan.interval)
        fill(server, fleet, ahead[1:], needed)
        return _live(server, plan, result)


def known(templates: Templates) -> set[str]:
    """Return the names of all series of a fleet."""
    parts = (
        *templates.programs.values(),
        *templates.devices.values(),
        templates.host,
        *templates.gpus,
    )
    return {line.name for lines in parts for line in lines} | {"up"}


def as_json(result: Result) -> str:
    """Return everything measured, with the sums."""
    document: dict[str, Any] = {**asdict(result), "core": result.core}
    return json.dumps(document, indent=2) + "\n"


def table(result: Result, slowest: int = 12) -> str:
    """Return what was measured as Markdown."""
    per = 1000 / result.processes
    found = (
        f"Prometheus {result.prometheus}, {result.processes} processes, "
        f"{result.series:,} series; history of {result.hours:g} h at "
        f"{result.interval:g} s of the {result.stored:,} series that the rules read or "
        f"record: {result.samples:,} samples, {result.bytes_per_sample:.2f} bytes each."
    )
    groups = [
        (
            *(group.name, f"{group.interval:g} s", f"{group.wall:.3f} s"),
            *(f"{group.cpu:.3f} s", f"{group.core:.1%}", f"{group.core * per:.1%}"),
            "" if group.live is None else f"{group.live:.3f} s",
        )
        for group in sorted(result.groups, key=lambda one: -one.core)
    ]
    core, each = f"**{result.core:.1%}**", f"**{result.core * per:.1%}**"
    groups.append(("**all**", "", "", "", core, each, ""))
    head = ("group", "interval", "wall", "CPU", "of a core", "per 1,000 processes")
    used = f"Memory {result.memory_bytes / 2**20:,.0f} MiB."
    if result.live is not None:
        used += f"\nLive: {result.live:.1%} of a core, "
        used += f"{result.missed} evaluations missed."
    every = [(rule, group) for group in result.groups for rule in group.rules]
    rules = [
        (rule.name, group.name, f"{rule.wall:.3f} s", str(rule.series))
        for rule, group in sorted(every, key=lambda one: -one[0].wall)[:slowest]
    ]
    return markdown.page(
        found,
        markdown.table((*head, "live"), groups, "lrrrrrr"),
        used,
        markdown.table(("slowest rules", "group", "wall", "series"), rules, "llrr"),
        *(f"Error in {name}: {text}" for name, text in result.errors.items()),
    )


def learn(
    plan: Plan,
    fleet: Fleet,
    all_names: set[str],
    directory: Path,
    alarms: Sequence[Recorded] = (),
) -> list[Recorded]:
    """
    Return what the rules record of the fleet while these *alarms* fire, learned from a
    quarter of an hour.
    """
    directory.mkdir()
    groups = read(plan.rules)
    names = all_names | {one.name for one in alarms}
    with Server(directory, plan.program) as server:
        end = time.time() // plan.interval * plan.interval
        times = moments(end, _LEARN_SECONDS, plan.interval)
        fill(server, fleet, times, windows(groups, names), alarms)
        found = history.record(server, groups, times)
    shutil.rmtree(directory)
    return found


def _group(server: Server, group: Group, at: float) -> GroupCost:
    """Return the cost of *group*: medians of rounds, in each of which all rules run."""
    rounds: list[list[RuleCost]] = []
    cpu: list[float] = []
    for _ in range(_ROUNDS):
        before = server.cpu_seconds()
        rounds.append(
            [_rule(server, rule.name, rule.expression, at) for rule in group.rules]
        )
        cpu.append(server.cpu_seconds() - before)
    rules = tuple(
        replace(same[0], wall=statistics.median(one.wall for one in same))
        for same in zip(*rounds, strict=True)
    )
    wall = sum(rule.wall for rule in rules)
    return GroupCost(group.name, group.interval, wall, statistics.median(cpu), rules)


def _rule(server: Server, name: str, expression: str, at: float) -> RuleCost:
    started = time.perf_counter()
    found = server.query(expression, at)
    return RuleCost(name, expression, time.perf_counter() - started, len(found))


def _live(server: Server, plan: Plan, result: Result) -> Result:
    """Let Prometheus evaluate the rules by itself, and return what that took."""
    idle = 20.0
    history.until_compacted(server)
    before = server.cpu_seconds()
    time.sleep(idle)
    rest = (server.cpu_seconds() - before) / idle
    server.reload({"rule_files": [str(path) for path in files(plan.rules)]})
    # Groups start spread over their interval; a first evaluation is no guide.
    time.sleep(120)
    before, started = server.cpu_seconds(), time.monotonic()
    time.sleep(plan.live)
    busy = (server.cpu_seconds() - before) / (time.monotonic() - started)
    groups = server.api("rules")["groups"]
    seconds = {group["name"]: group["evaluationTime"] for group in groups}
    errors = {
        rule["name"]: rule["lastError"]
        for group in groups
        for rule in group["rules"]
        if rule.get("lastError")
    }
    missed = sum(
        value
        for name, value in server.own().items()
        if name.startswith("prometheus_rule_group_iterations_missed_total")
    )
    costs = tuple(
        replace(group, live=seconds.get(group.name)) for group in result.groups
    )
    return replace(
        result, groups=costs, live=busy - rest, missed=int(missed), errors=errors
    )


def bytes_per_sample(data: Path) -> float:
    """Return the bytes of a sample in the blocks of *data*, index included."""
    blocks = [path for path in data.iterdir() if (path / "meta.json").exists()]
    samples = sum(
        json.loads((path / "meta.json").read_text())["stats"]["numSamples"]
        for path in blocks
    )
    size = sum(
        file.stat().st_size
        for path in blocks
        for file in path.rglob("*")
        if file.is_file()
    )
    return size / samples if samples else 0.0


def version(program: str) -> str:
    """Return the version of the Prometheus at *program*."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    )
    return (done.stdout + done.stderr).split()[2]
