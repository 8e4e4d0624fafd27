"""Several drills at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from jaxmon.cli.gameday.drill import Drill, Phase
from jaxmon.cli.gameday.site import Firing, Site
from jaxmon.cli.gameday.view import View
from jaxmon.errors import CommandError


_TICK_SECONDS = 0.5
_SILENCE_SECONDS = 60.0


def run(
    drills: Sequence[Drill],
    site: Site,
    view: View,
    *,
    at_once: int,
    starting: int,
) -> None:
    """
    Take all *drills* to their end.

    Args:
        drills: in the order in which they start.
        site: where their alerts are seen.
        view: shows them.
        at_once: how many run at the same time.
        starting: how many of these may be starting, which is what takes processor
            time.

    Raises:
        CommandError: the site has not responded for a minute.
    """
    scraped: dict[str, str] = {}
    firing: list[Firing] = []
    heard = time.monotonic()
    while any(one.phase is not Phase.DONE for one in drills):
        now = time.monotonic()
        _start_next(drills, now, at_once=at_once, starting=starting)
        try:
            firing, heard = site.firing(), now
        except CommandError:
            if now - heard > _SILENCE_SECONDS:
                raise
        for drill in drills:
            drill.advance(now, [one for one in firing if one.job == drill.job])
        wanted = {one.job: one.address for one in drills}
        targets = {job: address for job, address in wanted.items() if address}
        if targets != scraped:
            site.scrape(targets)
            scraped = targets
        view.show(drills)
        time.sleep(_TICK_SECONDS)


def _start_next(
    drills: Sequence[Drill], now: float, *, at_once: int, starting: int
) -> None:
    waiting = [one for one in drills if one.phase is Phase.WAITING]
    busy = len(drills) - len(waiting)
    busy -= sum(one.phase is Phase.DONE for one in drills)
    begun = sum(one.phase is Phase.STARTING for one in drills)
    for drill in waiting[: max(min(at_once - busy, starting - begun), 0)]:
        drill.start(now)
