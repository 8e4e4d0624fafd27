"""``jaxmon profile``: where device time goes in a running process."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from jaxmon.cli import options, output
from jaxmon.errors import CommandError, WireError, raised


if TYPE_CHECKING:
    from jaxmon.cli.workers import AgentProcess
    from jaxmon.host.http.client import ClientResponse
    from jaxmon.preflight.profile.operations import By


_OK, _NOTHING = 200, 204
_OF_REQUESTS = ("route", "took", "recorded", "trace")
_SHORTCOMINGS = {"cut-short": "Cut short", "without-programs": "Without source lines"}
_NAME = r"[0-9_]{1,40}"
_SECONDS = r"\d{1,6}\.\d{1,6}"
# The agent waits for a slow request for so long at once.
_ARMED_SECONDS = 50.0
# Ending and sending a trace comes after recording it.
_PATIENCE = 60.0
# A trace takes several times as much memory to read as it has bytes.
_MAX_BYTES = 256 << 20


class ProfileView(NamedTuple):
    """What is printed: rows of what, how many (`None` for enough), whether as JSON."""

    by: By
    top: int | None
    as_json: bool


@options.subcommand()
def command(
    *,
    worker: str | None = options.WORKER,
    seconds: float = options.option(options.Number(0, 60, min_open=True), default=3.0),
    for_requests: int | None = options.option(options.Whole(1, 20), metavar="N"),
    slower_than: float | None = options.option(options.SECONDS),
    deadline: float = options.option(options.SECONDS, default="10m"),
    out: Path = options.option(options.DIRECTORY, default=Path("jaxmon-profile")),
    by: By = options.option(
        click.Choice(["line", "function", "scope", "op"]), default="line"
    ),
    top: int | None = options.option(options.Whole(1)),
    as_json: bool = options.flag("--json"),
    run_dir: Path | None = options.RUN_DIR,
) -> None:
    """
    Record where device time goes in a running process.

    Listed are the source lines that take the most time, with their function and what
    they do. WORKER is the process's number, pid or name, optional if only one runs.

    Also writes files for XProf and Perfetto. The process is slowed down slightly
    while recording. On GPUs this requires JAXMON_PROFILE_GPU=1 in the program; it is
    refused while the program is profiling itself.

    With --for-requests, the profiler runs while requests are in progress, until N of
    them took longer than --slower-than: the name of the profile is then on the span of
    the request.

    Options:
        seconds: How long to record.
        for_requests: Record the next N slow requests instead, each in a profile of its
            own.
        slower_than: What is slow, from 50ms to 30s, with --for-requests.
        deadline: How long to wait for slow requests.
        out: Directory for the files.
        by: What a row of the table is: a source line, a jitted function, a named scope,
            or an operation of XLA.
        top: Rows of the table; by default, those with nine tenths of the time, up to
            20.
        as_json: Print JSON, with all rows and operations.

    Examples:
      jaxmon profile
      jaxmon profile 2 --seconds 10 --by op
      jaxmon profile --for-requests 3 --slower-than 1s
    """
    from jaxmon.cli.workers import pick

    if (for_requests is None) != (slower_than is None):
        msg = "--for-requests and --slower-than go together"
        raise click.UsageError(msg)
    if slower_than is not None and not 0.05 <= slower_than <= 30:  # noqa: PLR2004 - as its help says
        msg = "--slower-than is out of range; give 50ms to 30s"
        raise click.UsageError(msg)
    view = ProfileView(by, top, as_json)
    chosen = pick(worker, run_dir)
    _check_writable(out)
    if for_requests is None or slower_than is None:
        profile = record(chosen, f"/debug/profile?seconds={seconds:g}", seconds)
        if profile is None:
            msg = f"worker {chosen.number} sent no trace"
            raise CommandError(msg)
        _show(chosen, profile, out, view)
        return
    found = 0
    for profile in _slow(chosen, slower_than, deadline):
        _show(chosen, profile, out, view)
        found += 1
        if found == for_requests:
            return
    msg = f"{found} of {for_requests} requests to worker {chosen.number} were slower"
    raise CommandError(msg)


def _slow(
    worker: AgentProcess, slower_than: float, deadline: float
) -> Iterator[ClientResponse]:
    until = monotonic() + deadline
    while (left := until - monotonic()) > 0:
        seconds = min(left, _ARMED_SECONDS)
        target = f"/debug/profile?seconds={seconds:g}&slower_than={slower_than:g}"
        profile = record(worker, target, seconds + 2 * _PATIENCE)
        if profile is not None:
            yield profile


def _show(
    worker: AgentProcess, profile: ClientResponse, out: Path, view: ProfileView
) -> None:
    from jaxmon.preflight.profile import operations, text, xspace
    from jaxmon.preflight.profile.operations import grouped
    from jaxmon.preflight.profile.text import document

    with raised(
        CommandError, f"worker {worker.number} sent an unreadable trace", WireError
    ):
        space = xspace.parse(profile.body)
    name = _fact(profile, "profile") or ""
    seconds = _fact(profile, "seconds") or ""
    stamp = name if re.fullmatch(_NAME, name) else time.strftime("%Y_%m_%d_%H_%M_%S")
    files = _write(out, f"{stamp}_worker_{worker.number}", profile.body, space.planes)
    labels = _labels(worker)
    found = operations.read(
        space, seconds=float(seconds) if re.fullmatch(_SECONDS, seconds) else None
    )
    # Without the programs there are no lines.
    by: By = "op" if view.by == "line" and found.without_lines else view.by
    groups = grouped(found.operations, by, labels)
    if view.as_json:
        request = {name: _fact(profile, name) for name in _OF_REQUESTS}
        output.document(
            {
                **document(found, groups, by, labels),
                "files": files,
                "cut_short": _fact(profile, "cut-short"),
                "without_programs": _fact(profile, "without-programs"),
                **({} if request["route"] is None else {"request": request}),
            }
        )
        return
    width = output.report_width()
    _show_head(worker, profile, width)
    output.lines(text.lines(found, groups, by, top=view.top, width=width))
    output.line()
    output.line(f"For XProf: xprof --logdir {out}")
    output.line("For https://ui.perfetto.dev:")
    output.line(f"  {files['perfetto']}")


def _fact(profile: ClientResponse, name: str) -> str | None:
    """Return what the agent says of a trace."""
    return profile.headers.get(f"jaxmon-{name}")


def _show_head(worker: AgentProcess, profile: ClientResponse, width: int) -> None:
    from jaxmon.facts.process import read
    from jaxmon.host.formats.layout import clean
    from jaxmon.screens.text import heading

    output.line(heading(read(worker.overview).process, worker.number, width))
    facts = (_fact(profile, name) for name in _OF_REQUESTS)
    route, took, recorded, trace = (None if it is None else clean(it) for it in facts)
    if route is not None:
        output.line(f"{route} took {took} s; recorded {recorded} s")
        if trace is not None:
            output.line(f"trace {trace}")
    for fact, title in _SHORTCOMINGS.items():
        if reason := _fact(profile, fact):
            output.line(f"{title}: {clean(reason)}.")
    output.line()


def _check_writable(out: Path) -> None:
    """Check *out*: do not slow the program down for a trace that could not be saved."""
    above = (path for path in (out, *out.absolute().parents) if path.exists())
    nearest = next(above, Path())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        msg = (
            f"cannot write to {out}: {nearest} is not a writable directory; choose "
            "another --out"
        )
        raise CommandError(msg)


def record(worker: AgentProcess, target: str, seconds: float) -> ClientResponse | None:
    """Return a trace of *worker*, after *seconds*; `None` if no request was slow."""
    from jaxmon.host.http import client
    from jaxmon.host.http.stream import TooLargeError

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
    if response.status == _NOTHING:
        return None
    if response.status != _OK:
        from jaxmon.host.formats.layout import clean

        text = clean(response.body.decode("utf-8", "replace"))
        reason = text.strip().partition(": ")[2] or text
        msg = f"worker {worker.number} cannot be profiled: {reason}"
        raise CommandError(msg)
    return response


def _labels(worker: AgentProcess) -> dict[str, str]:
    """Return jaxmon's label by XLA's name of a program, where only one fits."""
    from jaxmon.facts.process import read

    try:
        functions = read(worker.fetch("/debug/functions")).functions
    except CommandError:
        return {}  # the table is worth having without
    found: dict[str, list[str]] = defaultdict(list)
    for label in [function.name for function in functions]:
        short = label.rpartition(".")[2]
        # As JAX names a lambda: without the last underscore since 0.8.
        for name in {
            short.replace("<lambda>", spelling) for spelling in ("_lambda_", "_lambda")
        }:
            for wrapper in ("jit", "pmap"):
                found[f"{wrapper}_{name}"].append(label)
    return {name: labels[0] for name, labels in found.items() if len(labels) == 1}


def _write(out: Path, name: str, space: bytes, planes: Iterable[Any]) -> dict[str, str]:
    import socket

    from jaxmon.host.files import whole as whole_file
    from jaxmon.preflight.profile import text as perfetto

    # Several programs may be recorded at once.
    directory = out / "plugins" / "profile" / name
    host = socket.gethostname()
    files = {
        "xprof": directory / f"{host}.xplane.pb",
        "perfetto": directory / f"{host}.trace.json.gz",
    }
    directory.mkdir(parents=True, exist_ok=True)
    whole_file.write(files["xprof"], space)
    whole_file.write(files["perfetto"], perfetto.render(planes))
    return {name: str(path) for name, path in files.items()}
