"""``jaxmon explain``: what slows a running program down, and what to do about it."""

from __future__ import annotations

from pathlib import Path

import click

from jaxmon.cli import output
from jaxmon.cli.options import RUN_DIR


_SCHEMA = 1


@click.command(
    epilog="""
\b
Exit codes:
  0   the report was printed, whatever it says
  1   no program runs, or it does not answer
  2   several programs run and none was given, or there is none of that number

\b
Examples:
  jaxmon explain
  jaxmon explain 3 --json | jq '.advice[].finding'
"""
)
@click.argument("worker", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@RUN_DIR
def command(*, worker: str | None, as_json: bool, run_dir: Path | None) -> None:
    """
    Explain a running program: what it compiles again and why, which source lines hold
    device memory or wait for transfers, why the persistent cache does not hit.

    WORKER is the number of the program, as in the label `worker`; needed only where
    several programs run. The program goes on meanwhile.
    """
    from jaxmon.cli.workers import pick
    from jaxmon.report.advice import advise
    from jaxmon.report.model import read
    from jaxmon.report.text import explanation

    found = pick(worker, run_dir)
    events = found.ask("/debug/events")
    snapshot = read(found.overview, events)
    advice = advise(snapshot)
    if as_json:
        document = {
            "schema": _SCHEMA,
            "worker": found.number,
            "advice": [one.as_json() for one in advice],
            "overview": found.overview,
            **events,
        }
        output.document(document)
        return
    width = output.report_width()
    output.lines(explanation(snapshot, advice, worker=found.number, width=width))
