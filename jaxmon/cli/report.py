"""``jaxmon report``: what a running process did so far, as files to keep and share."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import options, output
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.screens.runs import Facts


@options.subcommand()
def command(
    *,
    worker: str | None = options.WORKER,
    everyone: bool = options.flag("--all"),
    out: Path = options.option(options.DIRECTORY, default=Path(), show_default=False),
    as_json: bool = options.flag("--json"),
    run_dir: Path | None = options.JUDGED_RUN_DIR,
) -> None:
    """
    Write a report of a running process: a page and a summary.

    The summary is JSON. The page shows findings, charts, where the time went,
    recompiles with what differed, memory by source line, requests, steps and versions.
    It loads nothing, and can be opened from a disk, sent and printed. Of the command
    line it has the script, names of options and plain values of common ones. It does
    have source lines, argument names and shapes, so only its owner can read it.

    WORKER is the process's number, pid or name. The program keeps running.

    Options:
        everyone: One report of every process.
        out: Directory to write to; by default, the current one.
        as_json: Print the summary instead.

    Exit codes:
      0 the report was written
      1 no instrumented process is running, it does not respond, or a file exists
      2 WORKER names none or several

    Examples:
      jaxmon report
      jaxmon report train.py --out reports
      jaxmon report --json | jq .answer
      jaxmon run --summary-dir reports train.py     # when the program exits
    """
    from jaxmon.cli.findings import facts_of
    from jaxmon.cli.workers import candidates, pick

    if everyone and worker is not None:
        msg = "--all is for all processes; omit it or WORKER"
        raise click.UsageError(msg)
    if everyone and as_json:
        msg = "--json prints one summary; omit it or --all"
        raise click.UsageError(msg)
    if as_json:
        from jaxmon.screens.runs import build

        text = build(facts_of(pick(worker, run_dir), run_dir))
        output.document(json.loads(text))
        return
    chosen = candidates(None, run_dir) if everyone else [pick(worker, run_dir)]
    for process in chosen:
        if process.trouble:
            output.line(
                f"without worker {process.number}: it {process.trouble}", err=True
            )
        else:
            _write(out, process.pid or 0, facts_of(process, run_dir))
    if all(process.trouble for process in chosen):
        msg = "no process responds"
        raise CommandError(msg)


def _write(out: Path, pid: int, facts: Facts) -> None:
    from jaxmon.host.files import whole
    from jaxmon.screens.html.page import files_of
    from jaxmon.screens.runs import stem

    files = files_of(facts)
    out.mkdir(parents=True, exist_ok=True)
    name = stem(time.time(), pid)
    for suffix, text in ((".html", files.page), (".json", files.summary)):
        path = out / f"{name}{suffix}"
        data = text.encode("utf-8", "backslashreplace")
        whole.write(path, data, private=True, replace=False)
        output.line(path)
