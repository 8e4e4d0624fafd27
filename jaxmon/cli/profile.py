"""``jaxmon profile``: where device time goes in a running process."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jaxmon.cli import output
from jaxmon.cli.options import RUN_DIR, Number, Whole
from jaxmon.errors import CommandError, WireError


if TYPE_CHECKING:
    from jaxmon.cli.workers import Worker
    from jaxmon.profile.table import Row


_OK = 200
_CUT_SHORT = "jaxmon-cut-short"
# Ending and sending a trace comes after recording it.
_PATIENCE = 60.0
# A trace takes several times as much memory to read as it has bytes.
_MAX_BYTES = 256 << 20


@click.command(
    epilog="\b\nExamples:\n  jaxmon profile\n  jaxmon profile 2 --seconds 10"
)
@click.argument("worker", required=False)
@click.option(
    "--seconds",
    type=Number(0, 60, min_open=True),
    default=3.0,
    show_default=True,
    help="How long to record.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("jaxmon-profile"),
    show_default=True,
    help="Directory for the files.",
)
@click.option(
    "--top",
    type=Whole(1),
    default=20,
    show_default=True,
    help="Operations to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as JSON.")
@RUN_DIR
def command(
    worker: str | None,
    seconds: float,
    out: Path,
    top: int,
    *,
    as_json: bool,
    run_dir: Path | None,
) -> None:
    """
    Record a device trace of a running process and list the operations that take the
    most time. WORKER is the process's number, optional if only one is running.

    Also writes files for XProf and Perfetto. The process is slowed down slightly
    while recording. On GPUs this requires JAXMON_PROFILE_GPU=1 in the program; it is
    refused while the program is profiling itself.
    """
    from jaxmon.cli import workers
    from jaxmon.profile import table, xspace
    from jaxmon.report.model import read
    from jaxmon.report.text import heading

    chosen = workers.pick(worker, run_dir)
    _check_writable(out)
    space, cut_short = _record(chosen, seconds)
    try:
        planes = xspace.parse(space)
    except WireError as error:
        msg = f"worker {chosen.number} sent an unreadable trace: {error}"
        raise CommandError(msg) from error
    rows = table.rows(planes)
    names = _labels(chosen)
    files = _write(out, f"worker_{chosen.number}", space, planes)
    if as_json:
        output.document(_document(rows, names, files, cut_short))
        return
    width = output.report_width()
    output.line(heading(read(chosen.overview).process, chosen.number, width))
    if cut_short:
        output.line(f"Cut short: {cut_short}.")
    output.line()
    output.lines(_lines(rows, names, top, width))
    output.line()
    output.line(f"For XProf: xprof --logdir {out}")
    output.line("For https://ui.perfetto.dev:")
    output.line(f"  {files['perfetto']}")


def _check_writable(out: Path) -> None:
    """
    Do nothing if files below *out* can be expected to be made: do not slow the program
    down for a trace that could not be saved.

    Raises:
        CommandError: they cannot.
    """
    above = (one for one in (out, *out.absolute().parents) if one.exists())
    nearest = next(above, Path())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        msg = (
            f"cannot write to {out}: {nearest} is not a writable directory; choose "
            "another --out"
        )
        raise CommandError(msg)


def _record(worker: Worker, seconds: float) -> tuple[bytes, str | None]:
    """Return the trace of *worker*, and why it is shorter than requested, if it is."""
    from jaxmon.http import client
    from jaxmon.http.stream import TooLargeError

    target = f"/debug/profile?seconds={seconds:g}"
    try:
        response = client.get(
            worker.socket, target, seconds=seconds + _PATIENCE, max_bytes=_MAX_BYTES
        )
    except TooLargeError as error:
        msg = (
            f"worker {worker.number} sent no usable trace: {error}; record for a "
            "shorter time"
        )
        raise CommandError(msg) from error
    except (OSError, HTTPException) as error:
        msg = f"worker {worker.number} sent no trace: {error}; is it still running?"
        raise CommandError(msg) from error
    if response.status != _OK:
        from jaxmon.report.layout import clean

        said = clean(response.body.decode("utf-8", "replace"))
        reason = said.strip().partition(": ")[2] or said
        msg = f"worker {worker.number} cannot be profiled: {reason}"
        raise CommandError(msg)
    return response.body, response.headers.get(_CUT_SHORT)


def _labels(worker: Worker) -> dict[str, str]:
    """Return jaxmon's label by XLA's name of a program, where only one fits."""
    try:
        functions = worker.fetch("/debug/functions").get("functions", {})
    except CommandError:
        return {}  # the table is worth having without
    found: dict[str, list[str]] = defaultdict(list)
    for label in functions if isinstance(functions, dict) else ():
        short = label.rpartition(".")[2].replace("<lambda>", "_lambda_")
        for wrapper in ("jit", "pmap"):
            found[f"{wrapper}_{short}"].append(label)
    return {name: labels[0] for name, labels in found.items() if len(labels) == 1}


def _write(
    out: Path, whose: str, space: bytes, planes: Iterable[Any]
) -> dict[str, str]:
    """Write the trace for XProf, and a second file for Perfetto."""
    import socket
    import time

    from jaxmon.files import whole as whole_file
    from jaxmon.profile import perfetto

    stamp = time.strftime("%Y_%m_%d_%H_%M_%S")
    # Several programs may be recorded at once.
    directory = out / "plugins" / "profile" / f"{stamp}_{whose}"
    host = socket.gethostname()
    files = {
        "xprof": directory / f"{host}.xplane.pb",
        "perfetto": directory / f"{host}.trace.json.gz",
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        whole_file.write(files["xprof"], space)
        whole_file.write(files["perfetto"], perfetto.render(planes))
    except OSError as error:
        msg = f"cannot write to {directory}: {error.strerror}; choose another --out"
        raise CommandError(msg) from error
    return {name: str(path) for name, path in files.items()}


def _lines(rows: list[Row], names: dict[str, str], top: int, width: int) -> list[str]:
    """Return the table, *width* columns wide."""
    from jaxmon.report.layout import Column, clean, duration, share, table

    if not rows:
        return [
            "No operation ran while recording. Record for longer (--seconds), or check",
            "with jaxmon explain whether the program is making progress.",
        ]
    total = sum(row.seconds for row in rows)
    cells = [
        (
            clean(names.get(row.program, row.program)),
            clean(row.operation),
            f"{row.count:,}",
            duration(row.seconds),
            share(row.seconds, total),
        )
        for row in rows[:top]
    ]
    layout = (
        Column("FUNCTION", 28, right=False),
        Column("OPERATION", right=False),
        Column("RUNS", 9),
        Column("TIME", 10),
        Column("SHARE", 8),
    )
    lines = table(layout, cells, width=width, indent="")
    if rest := rows[top:]:
        left = sum(row.seconds for row in rest)
        lines.append(f"and {len(rest):,} more ({share(left, total)} of the time)")
    return lines


def _document(
    rows: list[Row],
    names: dict[str, str],
    files: dict[str, str],
    cut_short: str | None,
) -> dict[str, Any]:
    operations = [
        {
            "function": names.get(row.program),
            "program": row.program,
            "operation": row.operation,
            "count": row.count,
            "seconds": row.seconds,
        }
        for row in rows
    ]
    return {"operations": operations, "files": files, "cut_short": cut_short}
