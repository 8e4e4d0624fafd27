"""The processes of a host as its sidecar shows them, for commands that look once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jaxmon.cli.host import ProcessView, condition
from jaxmon.errors import CommandError
from jaxmon.facts.reader import from_json, mapping
from jaxmon.facts.status import Summary
from jaxmon.host.formats import json_text


if TYPE_CHECKING:
    from jaxmon.host.http.session import Session


def processes(session: Session, url: str) -> tuple[Summary, list[ProcessView]]:
    """
    Return the status of the host of the sidecar at *url*, and its processes by slot.

    Rates are those of the last minute, which the sidecar knows.

    Raises:
        CommandError: it cannot be read, or is none.
    """
    try:
        whole = _read(session, {})
        found = [
            ProcessView(agent, alone, condition(agent), None)
            for known in whole.agents
            for alone in [_read(session, {"worker": known.worker})]
            for agent in alone.agents[:1]
        ]
    except ValueError as error:
        msg = f"{url} is no sidecar of jaxmon, or of an older release: {error}"
        raise CommandError(msg) from error
    return whole, sorted(found, key=lambda one: one.order)


def _read(session: Session, query: Mapping[str, str]) -> Summary:
    from jaxmon.host.http.session import MonitoringError

    try:
        body = session.get("/api/summary", query).body
    except MonitoringError as error:
        raise CommandError(str(error)) from error
    document = json_text.parse(body.decode(errors="replace"))
    if not mapping(mapping(document).get("answer")):
        msg = "it has no summary"
        raise ValueError(msg)
    return from_json(Summary, document)
