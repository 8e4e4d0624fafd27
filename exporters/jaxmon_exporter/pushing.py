"""What the sidecar pushes by OTLP: its page, without agents that push themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from jaxmon.catalog import OTLP_EXPORTS, SIDECAR
from jaxmon.errors import CommandError, OtlpError
from jaxmon.exposition.families import Family, samples_of
from jaxmon.exposition.parse import labels
from jaxmon.otel.environment import plan
from jaxmon.otel.pusher import Pusher


NAME = "jaxmon-exporter"


def pusher(
    collect: Callable[[], Iterable[Family]],
    failed: Callable[[str], None],
    *,
    names: str,
) -> Pusher:
    """Return what pushes the families that *collect* returns, or `CommandError`."""
    made = Pusher(
        lambda: unpushed(collect()),
        plan(os.environ),
        failed=failed,
        from_zero=False,
        name=NAME,
        names=names,
    )
    try:
        made.prepare()
    except OtlpError as error:
        raise CommandError(str(error)) from error
    return made


def unpushed(families: Iterable[Family]) -> list[Family]:
    """Return *families* without the series of agents that push themselves."""
    page = list(families)
    workers = {
        pushing.get("worker", "")
        for pushing in [labels(series) for series, _ in samples_of(page, OTLP_EXPORTS)]
        if pushing.get("signal") == "metrics"
    } - {""}
    if not workers:
        return page
    # The label is put first when a series is relayed.
    starts = tuple(
        [f'worker="{worker}"{end}' for worker in workers for end in (",", "}")]
    )
    return [
        family
        if family.metric.sources == SIDECAR
        else Family(
            family.metric,
            [
                (series, value)
                for series, value in family.samples
                if not series.partition("{")[2].startswith(starts)
            ],
            family.exemplars,
        )
        for family in page
    ]
