"""``jaxmon job goodput``: what all attempts of a run took."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jaxmon.cli import output
from jaxmon.cli.job.sidecars import Sidecars, sidecars
from jaxmon.errors import CommandError


if TYPE_CHECKING:
    from jaxmon.facts.run import RunRecord

_BROKEN, _NOTHING = 2, 3


@click.command(
    epilog="""
\b
Exit codes:
  0 a record was found
  2 usage error, or a file is no record; the others are printed
  3 there is none

\b
Examples:
  jaxmon job goodput /checkpoints/llama-7b
  jaxmon job goodput --targets host-1:9467
  jaxmon job goodput /checkpoints/llama-7b --json
"""
)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@sidecars
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def goodput(*, paths: tuple[Path, ...], sidecars: Sidecars, as_json: bool) -> None:
    """
    Say what the wall time of a run went into, over all its attempts.

    PATHS are records of runs, or the directories that contain them (`run_state`); they
    can be read when nothing runs. With --targets and the like, asks the sidecars
    instead, which were started with `--peer-access`. docs/goodput.md says what is
    recorded.
    """
    from jaxmon.report.goodput import document, lines

    broken: list[str] = []
    found = list(_read(paths, broken)) if paths else _asked(sidecars)
    if as_json:
        output.document({"runs": [document(one) for one in found]})
    else:
        for index, one in enumerate(found):
            if index:
                output.line()
            output.lines(lines(one, output.report_width(), now=time.time()))
    if broken:
        raise CommandError(broken[0], details=broken[1:], exit_code=_BROKEN)
    if not found:
        output.line("no record of a run was found", err=True)
        raise click.exceptions.Exit(_NOTHING)


def _read(paths: tuple[Path, ...], broken: list[str]) -> Iterator[RunRecord]:
    """Yield the records in *paths*, and note in *broken* what is none, and why."""
    from jaxmon.errors import ConfigFileError
    from jaxmon.facts import run as record

    for path in paths:
        for one in record.paths(path):
            try:
                yield record.read(one)
            except (ConfigFileError, record.RunRecordError) as error:
                broken.append(f"{one} {error}")


def _asked(sidecars: Sidecars) -> list[RunRecord]:
    """Return what the sidecars know, which remember attempts that have ended."""
    from jaxmon.facts import run as record

    found = []
    for host in sidecars.ask():
        if host.trouble:
            output.line(f"{host.target}: {host.trouble}", err=True)
        for one in host.runs:
            try:
                found.append(record.from_document(one))
            except record.RunRecordError as error:
                output.line(f"{host.target}: a record {error}", err=True)
    return record.latest(found)
