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
from dataclasses import asdict
from pathlib import Path

from tools.fleet import (
    boards,
    burns,
    census,
    costs,
    filled,
    history,
    layout,
    live,
    quiet,
    recording,
    replay,
    rules,
)
from tools.fleet.series import Fleet
from tools.fleet.server import Server
from tools.fleet.templates import Templates, templates


def main() -> int:
    """Run the command; return the exit code: 1 if alerts are not as they should be."""
    arguments = _parser().parse_args()
    try:
        found = _templates(arguments.pages)
        if arguments.command in ("record", "series"):
            print(census.census_table(found))
            return 0
        if arguments.directory is not None:
            arguments.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
            return int(_COMMANDS[arguments.command](arguments, found, Path(directory)))
    except (recording.RecordingError, rules.RulesError, ValueError) as error:
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
    data = filled.load(*asked) if filled.is_filled(where) else filled.fill(*asked)
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
    print(quiet.table(fired, start))
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
    return costs.Plan(
        arguments.rules,
        _shape(arguments),
        arguments.hours,
        arguments.interval,
        arguments.live,
        arguments.prometheus,
    )


def _shape(arguments: argparse.Namespace) -> layout.Shape:
    return layout.Shape(
        arguments.processes,
        arguments.clusters,
        arguments.jobs,
        arguments.seed,
        same_addresses=arguments.same_addresses,
    )


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
