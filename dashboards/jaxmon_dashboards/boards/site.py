"""
A dashboard as a site sees it: with its labels of services and processes, and its names
of severities.

Dashboards are written for ``job`` and ``instance``. Here, every query selects by the
labels that belong to them and keeps them, every table and legend shows them, and
services have a variable for each.
"""

from __future__ import annotations

from dataclasses import replace

from jaxmon import catalog
from jaxmon.promql import Expr, Matcher
from jaxmon.promql.identity import Identity
from jaxmon.symptoms.alert import PAGE, TICKET
from jaxmon_alerts.slo.site import Site
from jaxmon_dashboards.boards.model import (
    Annotation,
    Dashboard,
    Link,
    Mapping,
    Notes,
    Panel,
    PanelLine,
    Row,
    Target,
)
from jaxmon_dashboards.boards.variables import DependentVariable, Variable


_JOB = 'job=~"$job"'
_OURS = f'severity=~"{PAGE}|{TICKET}"'
_PAGE = f'severity="{PAGE}"'


def localized(dashboard: Dashboard, site: Site) -> Dashboard:
    """Return *dashboard* for *site*."""
    own = _Localizer(site)
    return replace(
        dashboard,
        variables=(*own.new_variables(), *map(own.variable, dashboard.variables)),
        annotations=tuple(map(own.annotation, dashboard.annotations)),
        rows=tuple(map(own.row, dashboard.rows)),
    )


class _Localizer:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._identity = Identity(site.service_labels, site.process_labels)
        chosen = (f'{label}=~"${label}"' for label in site.service_labels)
        self._chosen = ",".join((*chosen, _JOB))

    def row(self, row: Row) -> Row:
        lines = (PanelLine(tuple(map(self._panel, line.panels))) for line in row.lines)
        return replace(row, lines=tuple(lines))

    def new_variables(self) -> list[Variable]:
        found: list[Variable] = []
        for label in self._site.service_labels:
            before = tuple(Matcher(one.label, "=~", f"${one.label}") for one in found)
            one = Variable(
                label=label,
                title=label.replace("_", " ").capitalize(),
                metric=_extended(catalog.BUILD_INFO, self._site.service_labels),
                matchers=before,
                # What has no such label is selected as well.
                all_value=".*",
                text=f"Services with this {label}.",
            )
            found.append(one)
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
            shown = " ".join(f"{{{{{one}}}}}" for one in self._identity.labels([ours]))
            legend = legend.replace(f"{{{{{ours}}}}}", shown)
        return replace(target, expr=self._expr(target.expr), legend=legend)

    def _link(self, link: Link) -> Link:
        """Keep what is chosen of the site's labels on the way to another board."""
        if not link.url.startswith("/d/"):
            return link
        kept = "".join(f"&${{{one}:queryparam}}" for one in self._site.service_labels)
        return replace(link, url=f"{link.url}{kept}")

    def _mapping(self, mapping: Mapping) -> Mapping:
        names = {str(ours): theirs for ours, theirs in self._site.severities}
        name = names.get(mapping.value)
        return replace(mapping, value=name, text=name) if name else mapping

    def _expr(self, expr: Expr) -> Expr:
        severities = "|".join(map(self._site.severity, (PAGE, TICKET)))
        found = expr.at(self._identity)
        text = found.marked.replace(_JOB, self._chosen)
        text = text.replace(_OURS, f'severity=~"{severities}"')
        text = text.replace(_PAGE, f'severity="{self._site.severity(PAGE)}"')
        return replace(found, marked=text)


def _extended(metric: catalog.Metric, labels: tuple[str, ...]) -> catalog.Metric:
    return metric._replace(labels=(*metric.labels, *labels))
