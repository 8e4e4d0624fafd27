"""All dashboards as files."""

from __future__ import annotations

import warnings

from jaxmon.artifacts import slo
from jaxmon.artifacts.dashboards import debug, oncall
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.options import Options


def all_dashboards(options: Options | None = None) -> tuple[Dashboard, ...]:
    """
    Return every dashboard.

    Raises:
        SloError: the file with the objectives cannot be used.
    """
    options = options or Options()
    slos = slo.load(options.slo)
    return (
        oncall.dashboard(slos, runbooks=options.runbooks),
        debug.dashboard(slos),
    )


def render_all(options: Options | None = None) -> dict[str, str]:
    """
    Return Grafana's JSON of every dashboard by file name.

    Needs grafana-foundation-sdk, which the extra ``dashboards`` brings.

    Raises:
        SloError: the file with the objectives cannot be used.
    """
    with warnings.catch_warnings():
        # The SDK announces at import that the classic model is not its newest; it is
        # the one that every Grafana from 10.4 on accepts.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A fifth of a second and 20 MiB, which the models alone do without.
        from jaxmon.artifacts.dashboards.render import render  # noqa: PLC0415

    options = options or Options()
    return {
        f"{one.uid.removeprefix('jaxmon-')}.json": render(one, options)
        for one in all_dashboards(options)
    }
