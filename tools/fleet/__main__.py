"""
Make a fleet from a real page, and measure what rules and dashboards cost on it and what
fires.

    python -m tools.fleet record --pages DIR
    python -m tools.fleet series --pages DIR
    python -m tools.fleet rules --rules alerts --processes 1000 --json FILE
    python -m tools.fleet boards --boards dashboards --hours 8 --json FILE
    python -m tools.fleet ingest --processes 1000
    python -m tools.fleet quiet --rules alerts --processes 200 --days 7
    python -m tools.fleet burn --rules alerts
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from jaxmon.catalog import BY_NAME
from jaxmon.errors import JaxmonError
from tools.fleet import (
    boards,
    burns,
    costs,
    history,
    layout,
    live,
    recording,
    replay,
    rules,
)
from tools.fleet.layout import GPUS, WORKERS
from tools.fleet.replay import Firing, span_text
from tools.fleet.series import Fleet
from tools.fleet.server import Server
from tools.fleet.templates import Line, Templates, templates
from tools.markdown import page, table


def quiet_table(found: Sequence[Firing], start: float) -> str:
    """Return what fired although nothing was wrong, as Markdown."""
    if not found:
        return "Nothing fired.\n"
    kinds = Counter((one.alert, one.severity) for one in found)
    rows = []
    for (alert, severity), count in kinds.most_common():
        first = next(
            one for one in found if (one.alert, one.severity) == (alert, severity)
        )
        own = dict(first.labels)
        subject = ", ".join(f"{name} {own[name]}" for name in _SUBJECT if name in own)
        after, longest = (
            span_text(first.start - start),
            _longest(found, alert, severity),
        )
        rows.append((alert, severity, str(count), after, longest, subject))
    head = ("alert", "severity", "times", "first after", "longest", "subject")
    return table(head, rows, "llrrr") + "\n"


def _longest(found: Sequence[Firing], alert: str, severity: str) -> str:
    lengths = [
        one.end - one.start if one.end else float("inf")
        for one in found
        if (one.alert, one.severity) == (alert, severity)
    ]
    longest = max(lengths)
    return span_text(longest) if longest < float("inf") else "does not end"


_SUBJECT = (
    "cluster",
    "job",
    "route",
    "function",
    "loop",
    "instance",
    "worker",
)


def census(templates: Templates) -> dict[str, Counter[str]]:
    """Return the number of series by group of the catalogue, for each kind of owner."""
    devices = [line for lines in templates.devices.values() for line in lines]
    found = {
        f"process ({name})": _count([*lines, *devices])
        for name, lines in sorted(templates.programs.items())
    }
    found["accelerator"] = _count(templates.gpus[0])
    found["host"] = _count(templates.host)
    return found


def census_table(templates: Templates) -> str:
    """Return the census as Markdown, and the series for each process."""
    found = census(templates)
    groups = sorted({group for count in found.values() for group in count})
    rows = [
        (group, *(str(count[group] or "") for count in found.values()))
        for group in groups
    ]
    totals = {name: count.total() for name, count in found.items()}
    rows.append(("**all**", *(f"**{total}**" for total in totals.values())))
    processes = [total for name, total in totals.items() if name.startswith("process")]
    mean = sum(processes) / len(processes)
    mean += (totals["host"] + GPUS * totals["accelerator"]) / WORKERS
    text = f"{mean:,.0f} series for each process, host and accelerators included."
    return page(table(("metrics", *found), rows, "l" + "r" * len(found)), text)


def _count(lines: Iterable[Line]) -> Counter[str]:
    groups = (BY_NAME.get(line.family[0]) for line in lines)
    return Counter(metric.group if metric else "other" for metric in groups)


def main() -> int:
    """Run the command; return the exit code: 1 if alerts are not as they should be."""
    arguments = _parser().parse_args()
    try:
        found = _templates(arguments.pages)
        if arguments.command in ("record", "series"):
            print(census_table(found))
            return 0
        if arguments.directory is not None:
            arguments.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            return int(_COMMANDS[arguments.command](arguments, found, Path(directory)))
    except (JaxmonError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _templates(pages: Path | None) -> Templates:
    """Return the templates of the recording in *pages*, made if it is not there."""
    if pages is not None and pages.exists():
        return templates(recording.load(pages))
    made = recording.record()
    if pages is not None:
        recording.save(made, pages)
    return templates(made)


def _rules(arguments: argparse.Namespace, found: Templates, directory: Path) -> int:
    result = costs.measure(_plan(arguments), found, directory)
    print(costs.table(result))
    if arguments.json:
        arguments.json.write_text(costs.as_json(result))
    return 0


def _boards(arguments: argparse.Namespace, found: Templates, directory: Path) -> int:
    chosen = {"job": arguments.job}

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    plan, where = _plan(arguments), arguments.filled or directory
    asked = (plan, arguments.boards, found, where, chosen)
    data = boards.load(*asked) if boards.is_filled(where) else boards.fill(*asked)
    with data.server(where, arguments.prometheus) as server:
        history.until_compacted(server)
        results = list(boards.measure(data, arguments.boards, server, chosen, progress))
    print(boards.table(results))
    if arguments.json:
        arguments.json.write_text(boards.as_json(results))
    return 0


def _ingest(arguments: argparse.Namespace, found: Templates, directory: Path) -> int:
    result = live.ingest(
        found,
        _shape(arguments),
        directory,
        interval=arguments.interval,
        program=arguments.prometheus,
    )
    print(live.ingestion_table(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(asdict(result), indent=2) + "\n")
    return 0


def _quiet(arguments: argparse.Namespace, found: Templates, directory: Path) -> int:
    start = _midnight(arguments.days)
    span = (start, start + arguments.days * layout.DAY)
    fleet = Fleet(found, layout.pods(_shape(arguments), *span))
    groups = rules.read(arguments.rules)
    fired = _replay(arguments, fleet, groups, (span, found, directory))
    fired = replay.settled(fired, start)
    print(quiet_table(fired, start))
    return int(any(one.severity != "info" for one in fired))


def _burn(arguments: argparse.Namespace, found: Templates, directory: Path) -> int:
    start = _midnight(arguments.days)
    pods, faults, by_job = burns.burning(start)
    fleet = Fleet(found, pods, faults)
    groups = replay.select(rules.read(arguments.rules), arguments.only)
    span = (start, start + arguments.days * layout.DAY)
    fired = _replay(arguments, fleet, groups, (span, found, directory))
    results = burns.outcomes(fired, fleet, by_job, start)
    print(burns.table(results))
    return int(not all(one.right for one in results))


def _replay(
    arguments: argparse.Namespace,
    fleet: Fleet,
    groups: list[rules.Group],
    where: tuple[tuple[float, float], Templates, Path],
) -> list[replay.Firing]:
    span, found, directory = where
    names = set(rules.windows(groups, costs.known(found)))
    with Server(directory, arguments.prometheus, replay.HEAD) as server:

        def progress(at: float) -> None:
            days, cpu = (at - span[0]) / layout.DAY, server.cpu_seconds()
            print(f"day {days:.2f}, {cpu:.0f} s of CPU", file=sys.stderr)

        return replay.replay(server, fleet, groups, span, names, progress)


def _plan(arguments: argparse.Namespace) -> costs.Plan:
    of = arguments
    shape = _shape(of)
    return costs.Plan(of.rules, shape, of.hours, of.interval, of.live, of.prometheus)


def _shape(arguments: argparse.Namespace) -> layout.Shape:
    sizes = (arguments.processes, arguments.clusters, arguments.jobs, arguments.seed)
    return layout.Shape(*sizes, same_addresses=arguments.same_addresses)


def _midnight(days: float) -> float:
    """Return a midnight, UTC, from which *days* lie in the past."""
    return (time.time() // layout.DAY - days // 1 - 1) * layout.DAY


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.fleet", description="What a fleet costs, and what fires."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("record", "record the pages of real programs"),
        ("series", "count the series of a process, an accelerator and a host"),
        ("rules", "measure what rules cost"),
        ("boards", "measure what dashboards cost"),
        ("ingest", "measure what scraping costs"),
        ("quiet", "replay days in which nothing is wrong; exits with 1 if alerts fire"),
        (
            "burn",
            "replay 30 days in which budgets burn; exits with 1 if alerts are wrong",
        ),
    ):
        one = commands.add_parser(name, help=text, description=text)
        one.add_argument("--pages", type=Path, help="of `record`; made if missing")
        if name in ("record", "series"):
            continue
        one.add_argument("--directory", type=Path, help="for data, on a large disk")
        one.add_argument("--prometheus", default="prometheus", help="its binary")
        one.add_argument("--json", type=Path, help="also write a file")
        one.add_argument("--rules", type=Path, default=Path("alerts"))
        one.add_argument("--boards", type=Path, nargs="+", default=[Path("dashboards")])
        one.add_argument("--filled", type=Path, help="data to ask; made if missing")
        one.add_argument("--job", default="train-1", help="chosen on Debug")
        one.add_argument("--processes", type=int, default=1000)
        one.add_argument("--clusters", type=int, default=2)
        one.add_argument("--jobs", type=int, default=10, help="of each cluster")
        one.add_argument("--seed", type=int, default=0)
        one.add_argument(
            "--same-addresses", action="store_true", help="in all clusters"
        )
        one.add_argument("--interval", type=float, default=30.0, help="of scrapes")
        one.add_argument("--hours", type=float, default=721.0, help="of history")
        one.add_argument(
            "--live", type=float, default=180.0, help="seconds; 0 for none"
        )
        days = 30.0 if name == "burn" else 7.0
        one.add_argument("--days", type=float, default=days, help="to replay")
        one.add_argument(
            "--only", default=".*BudgetBurn|JaxmonRequest.*", help="alerts"
        )
    return parser


_COMMANDS = {
    "rules": _rules,
    "boards": _boards,
    "ingest": _ingest,
    "quiet": _quiet,
    "burn": _burn,
}


if __name__ == "__main__":
    sys.exit(main())
