"""The processes of a host as its sidecar shows them, for commands that look once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from jaxmon.cli.host import Process, condition
from jaxmon.errors import CommandError, PageError
from jaxmon.formats import json_text


if TYPE_CHECKING:
    from jaxmon.facts.status import Summary
    from jaxmon.monitoring.session import Session


def processes(session: Session, url: str) -> tuple[Summary, list[Process]]:
    """
    Return the status of the host of the sidecar at *url*, and its processes by slot.

    Rates are those of the last minute, which the sidecar knows.

    Raises:
        CommandError: it cannot be read, or is of another release.
    """
    try:
        whole = _read(session, {})
        found = [
            _process(_read(session, {"worker": one["worker"]}))
            for one in whole["agents"]
        ]
        found.sort(key=lambda one: one.order)
        # What is printed of them, so that a malformed one is noticed here.
        for one in found:
            _ = one.verdict, one.because, one.requests, one.steps, one.command
    except PageError as error:
        msg = f"{url} is no sidecar of jaxmon, or of an older release: {error}"
        raise CommandError(msg) from error
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        msg = f"{url} is no sidecar of this release of jaxmon: {error!r}"
        raise CommandError(msg) from error
    return whole, found


def _read(session: Session, query: Mapping[str, str]) -> Summary:
    from jaxmon.monitoring.session import MonitoringError

    try:
        body = session.get("/api/summary", query).body
    except MonitoringError as error:
        raise CommandError(str(error)) from error
    found: Any = json_text.parse(body.decode(errors="replace"))
    if not isinstance(found, Mapping) or not isinstance(found["answer"], Mapping):
        reason = "no summary"
        raise TypeError(reason)
    return cast("Summary", found)


def _process(summary: Summary) -> Process:
    agent = summary["agents"][0]
    return Process(agent, summary, condition(agent), None)
