"""Where an alert is seen, and what to read when it fires."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Place(NamedTuple):
    """
    Where to look.

    Attributes:
        board: uid of the dashboard.
        panel: title of the panel.
        runbook: the command that shows it.
    """

    board: str
    panel: str
    runbook: str


def places_of(alerts: Iterable[str]) -> list[Place]:
    """
    Return where each of *alerts* is seen: the panel with the fewest alerts, as it says
    the most about this one.

    Raises:
        LookupError: no panel lists it.
    """
    from jaxmon.artifacts import dashboards

    panels = [
        (board.uid, panel)
        for board in dashboards.all_dashboards()
        for panel in board.panels
    ]
    places = []
    for alert in alerts:
        found = [one for one in panels if alert in one[1].alerts]
        if not found:
            msg = f"no panel lists {alert}"
            raise LookupError(msg)
        uid, panel = min(found, key=lambda one: len(one[1].alerts))
        places.append(Place(uid, panel.title, f"jaxmon runbook show {alert}"))
    return places
