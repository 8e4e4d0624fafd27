"""The summaries of runs, of files and of running processes."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jaxmon.cli.options import limits_of
from jaxmon.cli.workers import TIMEOUT, AgentProcess, neighbours_of, pick
from jaxmon.errors import CommandError, PageError
from jaxmon.exposition.families import Family
from jaxmon.exposition.parse import parse, to_family
from jaxmon.facts.process import Snapshot, read
from jaxmon.host.http.fetch import FetchError, fetch_all
from jaxmon.screens.runs import Facts, Run, RunError, build, read_file
from jaxmon.screens.runs import parse as parse_run


_MAX_BYTES = 32 << 20


def facts_of(worker: AgentProcess, run_dir: Path | None) -> Facts:
    """Return what the agent of *worker* reports; takes milliseconds."""
    events = worker.fetch("/debug/events")
    environment: Mapping[str, Any] = {}
    with suppress(CommandError):  # an older agent has none
        environment = worker.fetch("/debug/environment")
    text = fetch_all(
        {worker.number: worker.socket},
        "/metrics",
        timeout=TIMEOUT,
        max_bytes=_MAX_BYTES,
    )[worker.number]
    limits = limits_of(run_dir)
    snapshot = read(worker.overview, events, limits)
    others = neighbours_of(worker, snapshot, run_dir)
    found = facts(worker, events, environment, text, others)
    return found._replace(limits=limits)


def facts(
    worker: AgentProcess,
    events: Mapping[str, Any],
    environment: Mapping[str, Any],
    metrics: str | FetchError,
    others: Sequence[Snapshot] = (),
) -> Facts:
    """Return what the agent of *worker* has reported, on a process that is running."""
    return Facts(
        overview=worker.overview,
        events=events,
        environment=environment,
        families=_families(metrics),
        host=platform.node(),
        worker=worker.number,
        state="running",
        others=others,
    )


def run_of(name: str, run_dir: Path | None) -> Run:
    """Return the run *name*: a file, a directory with one, or a running process."""
    path = Path(name)
    if path.exists():
        try:
            return read_file(path)
        except RunError as error:
            raise CommandError(str(error), exit_code=2) from error
    try:
        return parse_run(build(facts_of(pick(name, run_dir), run_dir)))
    except CommandError as error:
        msg = f"{name!r} is no file or directory, and {error.message}"
        raise CommandError(msg, details=error.details, exit_code=2) from error


def _families(metrics: str | FetchError) -> list[Family]:
    """Return what *metrics* has; without it, less is known of users."""
    if isinstance(metrics, FetchError):
        return []
    try:
        return [to_family(family) for family in parse(metrics)]
    except PageError:
        return []
