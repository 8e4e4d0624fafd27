"""``jaxmon compare``: what became slower from one run to another."""

from __future__ import annotations

from pathlib import Path

from jaxmon.cli import output
from jaxmon.cli.options import OF_PROCESS, RUN_DIR, argument, subcommand
from jaxmon.errors import BaselineError, misuse, raised


@subcommand()
def command(
    *,
    before: str = argument(),
    after: str = argument(),
    as_json: bool = OF_PROCESS,
    run_dir: Path | None = RUN_DIR,
) -> int:
    """
    Compare two runs: what takes longer, or needs more.

    It compares execution and dispatch time of each function, its compiles and errors,
    steps, requests, memory, versions and flags. A time is worse if its 25th percentile
    is 25 % above the 90th before, with 16 samples on each side. What may be the machine
    is unclear, and not worse; what has too few samples is listed.

    BEFORE and AFTER are summaries that `jaxmon report` or --summary-dir wrote, a
    directory with one, or a running process: its number, pid or name.

    Exit codes:
      0 nothing is worse
      1 something is worse
      2 BEFORE or AFTER is no run, or they cannot be compared

    Examples:
      jaxmon compare yesterday/run-20261126T180818Z-4242.json train.py
      jaxmon run --summary-dir before train.py
      jaxmon run --summary-dir after train.py
      jaxmon compare before after
      jaxmon compare --json before after | jq '.changes[] | select(.verdict=="worse")'
    """
    from jaxmon.cli.findings import run_of
    from jaxmon.limits.shared import current
    from jaxmon.preflight.baseline.summaries import as_json as in_json
    from jaxmon.preflight.baseline.summaries import compare, lines

    with raised(misuse, "", BaselineError):
        found = compare(
            run_of(before, run_dir), run_of(after, run_dir), current(run_dir)
        )
    text = lines(found, width=output.report_width())
    output.result(in_json(found), text, as_json=as_json)
    return 1 if found.of("worse") else 0
