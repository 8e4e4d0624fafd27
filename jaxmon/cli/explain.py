"""``jaxmon explain``: what slows a running process down, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.options import RUN_DIR


if TYPE_CHECKING:
    from jaxmon.cli.workers import Worker


_SCHEMA = 1


@click.command(
    epilog="""
\b
Exit codes:
  0 the report was printed, whatever it contains
  1 no instrumented process is running, or it does not respond
  2 several are running and none was selected, or no worker has that number

\b
Examples:
  jaxmon explain
  jaxmon explain --stacks
  jaxmon explain 3 --json | jq '.findings[].verdict'
"""
)
@click.argument("worker", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--stacks", "only_stacks", is_flag=True, help="Print the stacks of its threads."
)
@RUN_DIR
def command(
    *, worker: str | None, as_json: bool, only_stacks: bool, run_dir: Path | None
) -> None:
    """
    Explain a running process: where its time goes, what it recompiles and why, which
    source lines hold device memory or block on transfers, and why the persistent cache
    misses.

    WORKER is the process's number, as in the `worker` label; required only if several
    are running. The process keeps running meanwhile.
    """
    from jaxmon.cli.workers import neighbours, pick
    from jaxmon.report.findings import find
    from jaxmon.report.findings.neighbours import is_worth_comparing
    from jaxmon.report.model import read
    from jaxmon.report.text import explanation

    found = pick(worker, run_dir)
    if only_stacks:
        _print_stacks(found, as_json=as_json)
        return
    events = found.fetch("/debug/events")
    snapshot = read(found.overview, events)
    others = neighbours(found, run_dir) if is_worth_comparing(snapshot) else []
    findings = find(snapshot, [read(one) for one in others])
    if as_json:
        document = {
            "schema": _SCHEMA,
            "worker": found.number,
            "findings": [one.as_json() for one in findings],
            "overview": found.overview,
            **events,
        }
        output.document(document)
        return
    width = output.report_width()
    output.lines(explanation(snapshot, findings, worker=found.number, width=width))


def _print_stacks(worker: Worker, *, as_json: bool) -> None:
    from jaxmon.report.stacks import stacks

    found = worker.fetch("/debug/stacks")
    if as_json:
        output.document({"schema": _SCHEMA, "worker": worker.number, **found})
        return
    output.lines(stacks(found, output.report_width()))
