"""Every dashboard: its rows, as a site sees it, and as files."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from jaxmon import catalog, promql
from jaxmon.promql import Expr, alerts, eq, recorded
from jaxmon.symptoms.alert import PAGE, TICKET
from jaxmon.symptoms.steps import SAMPLES, VERSIONS
from jaxmon_alerts import slo
from jaxmon_alerts.overviews import services as overviews
from jaxmon_alerts.overviews.hosts import FIRING, STARTS, firing
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.site import Site
from jaxmon_dashboards.boards import model
from jaxmon_dashboards.boards import queries as q
from jaxmon_dashboards.boards.rows import (
    accelerators,
    functions,
    monitoring,
    oncall,
    processes,
    requests,
    services,
    training,
)


_ALERT = ("alertname", "job", "severity")

VARIABLES = (
    # Without a pattern for "All": only the jobs that run jaxmon, not every job of
    # this Prometheus. `up` and `process_*` exist for those, too.
    model.Variable(
        *("job", "Service", catalog.BUILD_INFO),
        "The Prometheus job, which is the service.",
    ),
    model.Variable(
        *("instance", "Host", catalog.BUILD_INFO),
        "The scraped address: a host's sidecar, or an agent.",
        *((q.JOB,), ".+"),
    ),
    model.Variable(
        *("worker", "Worker", catalog.BUILD_INFO),
        "The slot of a process on its host. Series scraped directly from an agent have "
        "none; enter .+ to exclude them.",
        *(q.HOST, ".*"),
    ),
    *q.VARIABLES,
)
"""Every variable; a board has those that its panels select by."""

_STARTS = model.Annotation(
    *("Starts", "Processes started", "{{job}}", "blue"), STARTS(q.JOB).sum("job")
)
# Their beginnings: for as long as many fire, every graph would be red.
_ALERTS = model.Annotation(
    *("Alerts", "{{alertname}}", "{{severity}}: {{job}}", "red"),
    firing(q.JOB).max(*_ALERT).unless(firing(q.JOB).offset("5m"), *_ALERT),
)
# Of a release, people see its beginning.
_RECENT = "10m"
_MOST = 5


def _new(name: str, *labels: str) -> Expr:
    """Return series that their service has now, and did not have a moment ago."""
    now = recorded(name, q.JOB, labels=("job", *labels), unit="")
    before = now.offset(_RECENT)
    # All of a service that is new itself would be new.
    jobs = before.max("job")
    return now.unless(before, "job", *labels).and_(jobs, "job").max("job", *labels)


RECOMPILES = model.Annotation(
    *("Recompiles", "Recompiling", "{{job}}: {{function}}", "orange"),
    # Where it begins: of many services, some function always recompiles.
    overviews.RECOMPILES(q.JOB)
    .sum("job", "function")
    .unless(overviews.RECOMPILES(q.JOB).offset(_RECENT), "job", "function")
    .topk(_MOST),
)
PROGRAMS = model.Annotation(
    *("Programs", "New program", "{{job}}: {{function}} {{fingerprint}}", "yellow"),
    _new(SAMPLES, "function", "fingerprint"),
)
VERSION = model.Annotation(
    *("Versions", "New version"),
    *("{{job}}: JAX {{jax}}, jaxlib {{jaxlib}}, {{platform_version}}", "green"),
    _new(VERSIONS, "jax", "jaxlib", "platform_version"),
)
# Over weeks, only what someone was called for.
PAGES = model.Annotation(
    *("Pages", "{{alertname}}", "{{job}}", "red"),
    alerts(q.JOB, *FIRING, eq("severity", PAGE)).max("alertname", "job"),
)

DEPLOY_TAGS = ("jaxmon", "deploy")
"""Tags of what ``jaxmon dashboards annotate`` notes."""

DEPLOYMENTS = model.Notes(name="Deployments", tags=DEPLOY_TAGS, color="purple")

EVENTS = (_STARTS, RECOMPILES, VERSION, PROGRAMS, DEPLOYMENTS, _ALERTS)
SUMMARY = (VERSION, DEPLOYMENTS, PAGES)


_JOB = 'job=~"$job"'
_ANY = str(q.ANY_JOB)


def localized(dashboard: model.Dashboard, site: Site) -> model.Dashboard:
    """Return *dashboard* for *site*."""
    localizer = _Localizer(site)
    found: model.Dashboard = localizer.made(dashboard)
    return replace(found, variables=(*localizer.new_variables(), *found.variables))


class _Localizer:
    def __init__(self, site: Site) -> None:
        self._site = site
        self._labels = site.service_labels
        self._chosen = tuple(promql.re(label, f"${label}") for label in self._labels)
        # Hosts are read by a service of another namespace, but of the same cluster:
        # the first, which is the widest, of several labels.
        widest = self._chosen[:-1][:1]
        page, ticket = map(site.severity, (PAGE, TICKET))
        self._texts = {
            _JOB: ",".join((*map(str, self._chosen), _JOB)),
            _ANY: "".join(map(str, widest)) or _ANY,
            f'severity=~"{PAGE}|{TICKET}"': f'severity=~"{page}|{ticket}"',
            f'severity="{PAGE}"': f'severity="{page}"',
        }

    def new_variables(self) -> list[model.Variable]:
        return [
            model.Variable(
                label=label,
                title=label.replace("_", " ").capitalize(),
                metric=_extended(catalog.BUILD_INFO, self._labels),
                matchers=self._chosen[:number],
                # What has no such label is selected as well.
                all_value=".*",
                text=f"Services with this {label}.",
            )
            for number, label in enumerate(self._labels)
        ]

    def made(self, found: Any) -> Any:
        """Return a part of a dashboard, of which all parts are for the site."""
        if isinstance(found, tuple):
            return tuple(map(self.made, found))
        if isinstance(found, Expr):
            return self._expr(found)
        if not is_dataclass(found) or isinstance(found, type):
            return found
        made = {of.name: self.made(getattr(found, of.name)) for of in fields(found)}
        names = {str(ours): theirs for ours, theirs in self._site.severities}
        match found:
            case model.Variable():
                # The job is the first that depends on them.
                made["metric"] = _extended(found.metric, self._labels)
                made["matchers"] = (*self._chosen, *found.matchers)
            case model.Mapping() if found.value in names:
                made["value"] = made["text"] = names[found.value]
            case model.Link() if found.url.startswith("/d/"):
                # What is chosen is kept on the way to another board.
                made["url"] += "".join(f"&${{{of}:queryparam}}" for of in self._labels)
            case model.Panel():
                made["labels"] = self._site.identity.labels(found.labels)
            case model.Target():
                made["legend"] = self._legend(found.legend)
        return replace(found, **made)

    def _legend(self, legend: str) -> str:
        for ours in ("job", "instance"):
            labels = self._site.identity.labels([ours])
            shown = " ".join(f"{{{{{label}}}}}" for label in labels)
            legend = legend.replace(f"{{{{{ours}}}}}", shown)
        return legend

    def _expr(self, expr: Expr) -> Expr:
        found = expr.at(self._site.identity)
        text = found.marked
        for ours, theirs in self._texts.items():
            text = text.replace(ours, theirs)
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


def all_dashboards(
    options: DashboardOptions | None = None,
) -> tuple[model.Dashboard, ...]:
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


def _boards(slos: Slos, runbooks: str) -> Iterator[model.Dashboard]:
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
        functions.functions(slos),
        functions.calls(),
        functions.debug(slos),
        functions.programs(),
        processes.device_memory(),
        processes.transfers(),
        functions.checks(),
        functions.errors(),
        processes.debug(),
    )
    # For those who run training: is it fast, is it healthy, which rank holds it up.
    yield _board(
        *("training", "Training", "now-6h"),
        "Whether runs make progress, what their time goes into, and which rank holds "
        "up the others.",
        training.glance(slos),
        training.oncall(slos),
        training.time(),
        training.across_restarts(slos),
        training.ranks(slos),
        training.debug(),
        training.inspected(),
    )
    # For those who run servers: how fast, for whom not, and what requests wait for.
    yield _board(
        *("serving", "Serving", "now-3h"),
        "How fast requests are served, cold and warm, what they wait for, and which "
        "replica differs from the others.",
        requests.glance(slos),
        requests.oncall(slos),
        requests.stalls(slos),
        requests.replicas(slos),
        requests.tenants(slos),
        requests.serverless(),
        requests.debug().opened("Distributions"),
    )
    # GPUs and TPUs in one schema: load, memory, power, health.
    yield _board(
        *("accelerators", "Accelerators", "now-3h"),
        "Load, memory, power and health of GPUs and TPUs, by the service that uses "
        "them; the last rows are of one vendor each.",
        accelerators.glance(slos),
        accelerators.worst(),
        accelerators.oncall(),
        accelerators.debug(),
        accelerators.gpus(),
        accelerators.tpus(),
    )
    # From cluster to process: what runs where, and what stands out.
    yield _board(
        *("fleet", "Fleet", "now-6h"),
        "From cluster to process: what runs where, in which version, what starts or "
        "compiles at the moment, and what stands out.",
        processes.glance(slos),
        processes.starts(slos),
        processes.differences(),
        processes.down(slos),
        processes.machines(),
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
    *rows: model.Row,
    annotations: tuple[model.Annotation | model.Notes, ...] = EVENTS,
) -> model.Dashboard:
    return model.Dashboard(
        uid=f"jaxmon-{name}",
        title=f"jaxmon / {title}",
        description=description,
        since=since,
        variables=_selecting(rows),
        annotations=annotations,
        rows=rows,
    )


def _selecting(
    rows: tuple[model.Row, ...],
) -> tuple[model.Variable | model.DependentVariable, ...]:
    panels = (panel for row in rows for panel in row.panels)
    texts = [str(target.expr) for panel in panels for target in panel.targets]
    kept: list[model.Variable | model.DependentVariable] = []
    for variable in reversed(VARIABLES):
        used = re.compile(rf"\$\{{?{variable.name}\b")
        if any(map(used.search, texts)):
            kept.insert(0, variable)
            texts.append(variable.query)
    return tuple(kept)
