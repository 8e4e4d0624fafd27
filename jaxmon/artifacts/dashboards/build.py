"""The dashboards: which rows each has, and all of them as files."""

from __future__ import annotations

import warnings

from jaxmon.artifacts import slo
from jaxmon.artifacts.dashboards.choices import ANNOTATIONS, VARIABLES
from jaxmon.artifacts.dashboards.model import Dashboard
from jaxmon.artifacts.dashboards.options import Options
from jaxmon.artifacts.dashboards.rows import (
    accelerators,
    calls,
    checks,
    compiles,
    errors,
    functions,
    gpus,
    memory,
    monitoring,
    now,
    processes,
    programs,
    requests,
    services,
    tpus,
    training,
    transfers,
)
from jaxmon.artifacts.dashboards.site import localized
from jaxmon.artifacts.slo import Slos


def oncall(slos: Slos, *, runbooks: str) -> Dashboard:
    """
    Return what someone on call needs: what is wrong, since when, for whom, what next.

    Args:
        slos: objectives and alert thresholds.
        runbooks: URL to which a runbook's file name is appended.
    """
    return Dashboard(
        uid="jaxmon-oncall",
        title="jaxmon / On-call",
        description="What is wrong, since when, who is affected, and where to look.",
        since="now-3h",
        variables=VARIABLES,
        annotations=ANNOTATIONS,
        rows=(
            now.oncall(slos, runbooks),
            services.oncall(slos),
            now.budgets(slos),
            requests.oncall(slos),
            training.oncall(slos),
            compiles.oncall(slos),
            errors.oncall(),
            memory.oncall(slos),
            accelerators.oncall(),
            monitoring.oncall(),
        ),
    )


def debug(slos: Slos) -> Dashboard:
    """
    Return what is needed to find causes: which function, process and device, and why.
    """
    return Dashboard(
        uid="jaxmon-debug",
        title="jaxmon / Debug",
        description=(
            "Which function, process and device, and why. Select them above; Service "
            "and Host narrow the other lists."
        ),
        since="now-1h",
        variables=VARIABLES,
        annotations=ANNOTATIONS,
        rows=(
            functions.debug(slos),
            calls.debug(),
            compiles.debug(),
            programs.debug(),
            requests.debug(),
            training.debug(),
            memory.debug(),
            transfers.debug(),
            checks.debug(),
            errors.debug(),
            accelerators.debug(),
            gpus.debug(),
            tpus.debug(),
            processes.debug(),
            monitoring.debug(),
        ),
    )


def all_dashboards(options: Options | None = None) -> tuple[Dashboard, ...]:
    """
    Return every dashboard, as the site in the options sees it.

    Raises:
        SloError: the file with the objectives is invalid.
    """
    options = options or Options()
    slos = slo.load(options.slo)
    boards = (oncall(slos, runbooks=options.at(slos.site).runbooks), debug(slos))
    return tuple(localized(one, slos.site) for one in boards)


def render_all(options: Options | None = None) -> dict[str, str]:
    """
    Return Grafana's JSON of every dashboard by file name.

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
        f"{one.uid.removeprefix('jaxmon-')}.json": render(one, options)
        for one in all_dashboards(options)
    }
