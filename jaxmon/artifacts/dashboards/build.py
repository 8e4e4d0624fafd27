"""Every dashboard, as a site sees it, and as files."""

from __future__ import annotations

import warnings

from jaxmon.artifacts import slo
from jaxmon.artifacts.dashboards.boards import (
    accelerators,
    debug,
    executive,
    fleet,
    itself,
    oncall,
    serving,
    training,
)
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.options import Format, Options
from jaxmon.artifacts.dashboards.site import localized


def all_dashboards(options: Options | None = None) -> tuple[Dashboard, ...]:
    """
    Return every dashboard, as the site in the options sees it.

    Raises:
        SloError: the file with the objectives is invalid.
    """
    options = options or Options()
    slos = slo.load(options.slo)
    boards = (
        executive.board(slos, runbooks=options.at(slos.site).runbooks),
        oncall.board(slos, runbooks=options.at(slos.site).runbooks),
        debug.board(slos),
        training.board(slos),
        serving.board(slos),
        accelerators.board(slos),
        fleet.board(slos),
        itself.board(slos),
    )
    return tuple(localized(one, slos.site) for one in boards)


def render_all(
    options: Options | None = None, form: Format = "classic"
) -> dict[str, str]:
    """
    Return Grafana's JSON of every dashboard, in the model *form*, by file name.

    Needs grafana-foundation-sdk, which the extra ``dashboards`` brings.

    Raises:
        SloError: the file with the objectives is invalid.
    """
    with warnings.catch_warnings():
        # The SDK announces at import that the classic model is not its latest; it is
        # the one that every Grafana from 10.4 on accepts.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A fifth of a second and 20 MiB, which the models alone do without.
        from jaxmon.artifacts.dashboards.render import render  # noqa: PLC0415

    options = options or Options()
    options = options.at(slo.load(options.slo).site)
    return {
        f"{one.uid.removeprefix('jaxmon-')}.json": render(one, options, form)
        for one in all_dashboards(options)
    }
