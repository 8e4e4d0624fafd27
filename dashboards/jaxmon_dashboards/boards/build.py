"""Every dashboard: its rows, as a site sees it, and as files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from jaxmon import catalog
from jaxmon.promql import Expr, Matcher
from jaxmon.symptoms.alert import PAGE, TICKET
from jaxmon_alerts import slo
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.site import Site
from jaxmon_dashboards.boards.dashboard import Annotation, Dashboard, Notes
from jaxmon_dashboards.boards.header import EVENTS, SUMMARY, VARIABLES
from jaxmon_dashboards.boards.model import (
    DependentVariable,
    Link,
    Mapping,
    Panel,
    PanelLine,
    Row,
    Target,
    Variable,
)
from jaxmon_dashboards.boards.queries import ANY_JOB
from jaxmon_dashboards.boards.rows import (
    accelerators,
    compiles,
    devices,
    errors,
    fleet,
    memory,
    monitoring,
    oncall,
    processes,
    requests,
    runs,
    services,
    training,
)


_JOB = 'job=~"$job"'
_ANY = str(ANY_JOB)
_OURS = f'severity=~"{PAGE}|{TICKET}"'
_PAGE = f'severity="{PAGE}"'


def localized(dashboard: Dashboard, site: Site) -> Dashboard:
    """Return *dashboard* for *site*."""
    localizer = _Localizer(site)
    return replace(
        dashboard,
        variables=(
            *localizer.new_variables(),
            *map(localizer.variable, dashboard.variables),
        ),
        annotations=tuple(map(localizer.annotation, dashboard.annotations)),
        rows=tuple(map(localizer.row, dashboard.rows)),
    )


class _Localizer:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._identity = site.identity
        chosen = (f'{label}=~"${label}"' for label in site.service_labels)
        self._chosen = ",".join((*chosen, _JOB))
        # Hosts are read by a service of another namespace, but of the same cluster:
        # the first, which is the widest, of several labels.
        widest = site.service_labels[:-1][:1]
        self._place = "".join(f'{label}=~"${label}"' for label in widest) or _ANY

    def row(self, row: Row) -> Row:
        lines = (PanelLine(tuple(map(self._panel, line.panels))) for line in row.lines)
        return replace(row, lines=tuple(lines))

    def new_variables(self) -> list[Variable]:
        found: list[Variable] = []
        for label in self._site.service_labels:
            before = tuple(
                Matcher(earlier.label, "=~", f"${earlier.label}") for earlier in found
            )
            variable = Variable(
                label=label,
                title=label.replace("_", " ").capitalize(),
                metric=_extended(catalog.BUILD_INFO, self._site.service_labels),
                matchers=before,
                # What has no such label is selected as well.
                all_value=".*",
                text=f"Services with this {label}.",
            )
            found.append(variable)
        return found

    def variable(
        self, variable: Variable | DependentVariable
    ) -> Variable | DependentVariable:
        if isinstance(variable, DependentVariable):
            return replace(variable, expr=self._expr(variable.expr))
        chosen = tuple(
            Matcher(label, "=~", f"${label}") for label in self._site.service_labels
        )
        # The job is the first that depends on them.
        return replace(
            variable,
            metric=_extended(variable.metric, self._site.service_labels),
            matchers=(*chosen, *variable.matchers),
        )

    def annotation(self, annotation: Annotation | Notes) -> Annotation | Notes:
        if isinstance(annotation, Notes):
            return annotation
        return replace(annotation, expr=self._expr(annotation.expr))

    def _panel(self, panel: Panel) -> Panel:
        return replace(
            panel,
            targets=tuple(map(self._target, panel.targets)),
            labels=self._identity.labels(panel.labels),
            mappings=tuple(map(self._mapping, panel.mappings)),
            cell_links=tuple(
                (label, self._link(link)) for label, link in panel.cell_links
            ),
        )

    def _target(self, target: Target) -> Target:
        legend = target.legend
        for ours in ("job", "instance"):
            shown = " ".join(
                f"{{{{{label}}}}}" for label in self._identity.labels([ours])
            )
            legend = legend.replace(f"{{{{{ours}}}}}", shown)
        return replace(target, expr=self._expr(target.expr), legend=legend)

    def _link(self, link: Link) -> Link:
        """Keep what is chosen of the site's labels on the way to another board."""
        if not link.url.startswith("/d/"):
            return link
        kept = "".join(
            f"&${{{label}:queryparam}}" for label in self._site.service_labels
        )
        return replace(link, url=f"{link.url}{kept}")

    def _mapping(self, mapping: Mapping) -> Mapping:
        names = {str(ours): theirs for ours, theirs in self._site.severities}
        name = names.get(mapping.value)
        return replace(mapping, value=name, text=name) if name else mapping

    def _expr(self, expr: Expr) -> Expr:
        severities = "|".join(map(self._site.severity, (PAGE, TICKET)))
        found = expr.at(self._identity)
        text = found.marked.replace(_JOB, self._chosen).replace(_ANY, self._place)
        text = text.replace(_OURS, f'severity=~"{severities}"')
        text = text.replace(_PAGE, f'severity="{self._site.severity(PAGE)}"')
        return replace(found, marked=text)


def _extended(metric: catalog.Metric, labels: tuple[str, ...]) -> catalog.Metric:
    return metric._replace(labels=(*metric.labels, *labels))


Format: TypeAlias = Literal["classic", "v2"]
"""Which of Grafana's two models of a dashboard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """
    How dashboards are rendered: *runbooks* is the URL to which a runbook's file name is
    appended, by default the site's or jaxmon's; *datasource* the uid of the one to
    preselect; *slo* your ``slo.yaml``, for thresholds.
    """

    runbooks: str = ""
    datasource: str = ""
    slo: Path | None = None


def all_dashboards(options: DashboardOptions | None = None) -> tuple[Dashboard, ...]:
    """Return every dashboard, as the site sees it; `SloError` if that is invalid."""
    slos, runbooks = _loaded(options or DashboardOptions())
    return tuple(localized(board, slos.site) for board in _boards(slos, runbooks))


def render_all(
    options: DashboardOptions | None = None, form: Format = "classic"
) -> dict[str, str]:
    """
    Return Grafana's JSON of every dashboard, in the model *form*, by file name, with
    the grafana-foundation-sdk of the extra ``dashboards``; raises as `all_dashboards`.
    """
    with warnings.catch_warnings():
        # The SDK announces at import that the classic model is not its latest; it is
        # the one that every Grafana from 10.4 on accepts.
        warnings.simplefilter("ignore", DeprecationWarning)
        from jaxmon_dashboards.boards.render import render  # noqa: PLC0415 - an extra

    options = options or DashboardOptions()
    _, runbooks = _loaded(options)
    return {
        f"{board.uid.removeprefix('jaxmon-')}.json": render(
            board, runbooks=runbooks, datasource=options.datasource, v2=form == "v2"
        )
        for board in all_dashboards(options)
    }


def _loaded(options: DashboardOptions) -> tuple[Slos, str]:
    slos = slo.load(options.slo)
    return slos, options.runbooks or f"{slos.site.runbooks}/"


def _boards(slos: Slos, runbooks: str) -> Iterator[Dashboard]:
    # For those who answer for services: are they good, and at what price.
    yield _board(
        *("executive", "Executive", "now-7d"),
        "Whether services keep their objectives, how fast they are, what they cost, "
        "and how that compares with last week. Requires jaxmon's recording rules.",
        services.glance(slos),
        services.quality(slos),
        services.budgets(slos),
        services.cost(),
        annotations=SUMMARY,
    )
    # What someone on call needs: what is wrong, since when, for whom, what next.
    yield _board(
        *("oncall", "On-call", "now-3h"),
        "What is wrong, since when, who is affected, and where to look.",
        services.oncall(slos, runbooks),
        services.listed(slos),
        oncall.users(slos),
        oncall.where(slos),
        replace(services.budgets(slos), collapsed=True),
        *oncall.folded(slos),
    )
    # What is needed to find causes: which function and process, and why.
    yield _board(
        *("debug", "Debug", "now-1h"),
        "Which function and process, and why. Select them above; Service and Host "
        "narrow the other lists.",
        compiles.functions(slos),
        compiles.calls(),
        compiles.debug(slos),
        compiles.programs(),
        memory.debug(),
        memory.transfers(),
        errors.checks(),
        errors.debug(),
        processes.debug(),
    )
    # For those who run training: is it fast, is it healthy, which rank holds it up.
    yield _board(
        *("training", "Training", "now-6h"),
        "Whether runs make progress, what their time goes into, and which rank holds "
        "up the others.",
        runs.glance(slos),
        training.oncall(slos),
        runs.time(),
        training.across_restarts(slos),
        runs.ranks(slos),
        training.debug(),
        runs.inspected(),
    )
    # For those who run servers: how fast, for whom not, and what requests wait for.
    yield _board(
        *("serving", "Serving", "now-3h"),
        "How fast requests are served, cold and warm, what they wait for, and which "
        "replica differs from the others.",
        processes.glance(slos),
        requests.oncall(slos),
        processes.stalls(slos),
        processes.replicas(slos),
        requests.tenants(slos),
        requests.serverless(),
        requests.debug().opened("Distributions"),
    )
    # GPUs and TPUs in one schema: load, memory, power, health.
    yield _board(
        *("accelerators", "Accelerators", "now-3h"),
        "Load, memory, power and health of GPUs and TPUs, by the service that uses "
        "them; the last rows are of one vendor each.",
        devices.glance(slos),
        devices.worst(),
        accelerators.oncall(),
        accelerators.debug(),
        accelerators.gpus(),
        devices.debug(),
    )
    # From cluster to process: what runs where, and what stands out.
    yield _board(
        *("fleet", "Fleet", "now-6h"),
        "From cluster to process: what runs where, in which version, what starts or "
        "compiles at the moment, and what stands out.",
        fleet.glance(slos),
        fleet.starts(slos),
        fleet.differences(),
        fleet.down(slos),
        processes.hosts(),
    )
    # Whether jaxmon works, and what it costs.
    yield _board(
        *("itself", "jaxmon itself", "now-3h"),
        "Whether agents and sidecars work, so that the other boards can be trusted, "
        "and what they cost.",
        monitoring.glance(),
        monitoring.oncall().opened(),
        monitoring.cost(),
        monitoring.debug().opened(),
    )


def _board(
    name: str,
    title: str,
    since: str,
    description: str,
    *rows: Row,
    annotations: tuple[Annotation | Notes, ...] = EVENTS,
) -> Dashboard:
    return Dashboard(
        uid=f"jaxmon-{name}",
        title=f"jaxmon / {title}",
        description=description,
        since=since,
        variables=_selecting(rows),
        annotations=annotations,
        rows=rows,
    )


def _selecting(rows: tuple[Row, ...]) -> tuple[Variable | DependentVariable, ...]:
    """Return the variables that *rows* select by, and those that narrow these."""
    panels = (panel for row in rows for panel in row.panels)
    texts = [str(target.expr) for panel in panels for target in panel.targets]
    kept: list[Variable | DependentVariable] = []
    for variable in reversed(VARIABLES):
        used = re.compile(rf"\$\{{?{variable.name}\b")
        if any(map(used.search, texts)):
            kept.insert(0, variable)
            texts.append(variable.query)
    return tuple(kept)
