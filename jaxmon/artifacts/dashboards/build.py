"""
All dashboards as files.
"""

from __future__ import annotations

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
    # Takes a fifth of a second and 20 MiB; whoever reads the models needs none of it.
    from jaxmon.artifacts.dashboards.render import render  # noqa: PLC0415 - heavy

    options = options or Options()
    return {
        f"{one.uid.removeprefix('jaxmon-')}.json": render(one, options)
        for one in all_dashboards(options)
    }
