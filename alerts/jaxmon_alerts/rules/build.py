"""Generates Prometheus and Alertmanager files from objectives and limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import filterfalse
from typing import Any, Literal

import yaml

from jaxmon.catalog import BUILD_INFO
from jaxmon.host.formats import durations
from jaxmon.promql import Expr, RecordedSeries, eq, events, gauge_over
from jaxmon.promql.events import Evaluation
from jaxmon.promql.expressions import Identity
from jaxmon.settings import RUNBOOKS
from jaxmon.symptoms import recorded
from jaxmon.symptoms.alert import (
    DEPLOY_NOISE,
    MONITORING_ALERT,
    PAGE,
    TICKET,
    Alert,
    Severity,
    SiteLimits,
)
from jaxmon.symptoms.findings import SYMPTOMS
from jaxmon.symptoms.starts import young_ratio
from jaxmon.symptoms.steps import STALLED_SLO
from jaxmon_alerts import slo as slo_module
from jaxmon_alerts.overviews import overview_groups
from jaxmon_alerts.overviews.hosts import recorded_alerts, recorded_power
from jaxmon_alerts.overviews.services import recorded_slowdowns
from jaxmon_alerts.rules.causes import causes, change_of, overridden
from jaxmon_alerts.rules.routes import configuration, notifications, resources
from jaxmon_alerts.slo import Slo, Slos
from jaxmon_alerts.slo.model import LatencyIndicator, Pair, Ratio
from jaxmon_alerts.slo.recording import Rule, RuleGroup, complete, recording_groups
from jaxmon_alerts.slo.recording import recording as recording_rule
from jaxmon_alerts.slo.site import Site


ONCALL = "jaxmon-oncall"
"""The board of what has none of its own; only services are selected there."""

# By the module of the symptom.
_BOARDS = {
    "jaxmon-serving": "requests serving",
    "jaxmon-training": "steps runs time job",
    "jaxmon-accelerators": "hardware",
    "jaxmon-fleet": "starts",
    "jaxmon-itself": "monitoring",
    "jaxmon-debug": "compiles memory recompiles results",
}
_BOARD = {
    **{
        name: board
        for board, modules in _BOARDS.items()
        for name, build in (symptom.rule for symptom in SYMPTOMS.values())
        if build and build.__module__.rpartition(".")[2] in modules.split()
        if not name.endswith("BudgetBurn")
    },
    "JaxmonNonFinite": "jaxmon-training",
    "JaxmonProgramsDiverge": "jaxmon-fleet",
    "JaxmonServiceVanished": "jaxmon-serving",
    "JaxmonSlowdown": "jaxmon-debug",
    "JaxmonThunderingCompilation": "jaxmon-fleet",
    "JaxmonTrainingDied": "jaxmon-training",
    "JaxmonWarmupFailed": "jaxmon-serving",
}
_NAMES = frozenset(symptom.alert for symptom in SYMPTOMS.values())
# Labels of alerts, and the variables that select by them, where boards have them.
_VARIABLES = {
    "job": "job",
    "instance": "instance",
    "worker": "worker",
    "function": "function",
    "uuid": "gpu",
}
_MISSING = {
    ONCALL: ("instance", "worker", "function", "gpu"),
    "jaxmon-debug": ("gpu",),
    "jaxmon-fleet": ("function",),
    "jaxmon-itself": ("function",),
    "jaxmon-serving": ("gpu",),
    "jaxmon-training": ("function",),
}


@dataclass(frozen=True, slots=True)
class RuleOptions:
    """How the rules are used; *scale* divides every duration, and no other limit."""

    scale: float = 1
    drawn: bool = True


def document(
    alert: Alert, site: Site, more: tuple[tuple[str, str], ...] = ()
) -> dict[str, Any]:
    """Return *alert* in rule-file form, as *site* wants it, with *more* annotations."""
    identity = site.identity
    waits = {"for": alert.for_, "keep_firing_for": alert.keep_for}
    address = _address(alert.name, alert.kept, identity)
    # A site has pages about its own objectives, the project has none.
    ours = site.runbooks == RUNBOOKS.rstrip("/")
    page = alert.name if alert.name in _NAMES else "unknown"
    # A path alone is no link where people are notified.
    boards = {"dashboard_url": site.dashboards + address} if site.dashboards else {}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **{key: value for key, value in waits.items() if value},
        "labels": {
            "severity": site.severity(alert.severity),
            **dict(site.labels),
            **dict(alert.labels),
        },
        "annotations": {
            "summary": identity.text(alert.summary),
            "description": identity.text(alert.description),
            "runbook_url": f"{site.runbooks}/{page if ours else alert.name}.md",
            # Where no browser reaches that.
            "runbook": f"jaxmon runbook show {page}",
            **boards,
            **dict(site.annotations),
            **dict(more),
        },
    }


def _address(alert: str, labels: Iterable[str], identity: Identity) -> str:
    found = {*labels}
    board = _BOARD.get(alert, ONCALL)
    of_site = {label: label for label in identity.service} if "job" in found else {}
    missing = _MISSING.get(board, ())
    of_alert = {
        label: variable
        for label, variable in _VARIABLES.items()
        if label in found and variable not in missing
    }
    values = "&".join(
        f"var-{name}={{{{ $labels.{label} | urlquery }}}}"
        for label, name in (of_site | of_alert).items()
    )
    return f"/d/{board}?{values}"


Format = Literal["prometheus", "prometheusrule", "alertmanagerconfig", "mimir"]

RECORDING = "recording.yaml"
ALERTS = "alerts.yaml"
RESOURCE = "prometheusrule.yaml"
NOTIFICATIONS = "alertmanagerconfig.yaml"
NAMESPACE = "mimir.yaml"
ALERTMANAGER = "alertmanager.yaml"

_HEADER = "# Generated by `jaxmon alerts build`; do not edit.\n"
# Pages need to be soon; tickets wait for someone to work on them. Those on causes read
# what every process exports, and are the dearest rules.
_SOON, _SHORT, _LATER, _SELDOM = "30s", "1m", "2m", "4m"
_LONG = "10m"


def all_alerts(
    slos: Slos | None = None, options: RuleOptions | None = None
) -> tuple[Alert, ...]:
    """Return every alert; `SloError` if an override or local limit concerns none."""
    slos, options = slos or slo_module.load(), options or RuleOptions()
    limits = SiteLimits.of(slos.limits, options.scale, (), slos.site.severity(PAGE))
    alerts = [
        *causes(slos, options.scale),
        *(alert for slo in slos for alert in bucket_alerts(slo, options.scale)),
        *(
            _unpaged(alert, slo, limits)
            for slo in slos
            for alert in burn_alerts(slo, options.scale)
        ),
    ]
    changed = overridden(alerts, slos.overrides)
    return tuple(
        left
        for alert in changed
        for left in _excepted(alert, slos, durations.scaled("1d", options.scale))
    )


def _excepted(alert: Alert, slos: Slos, window: str) -> Iterator[Alert]:
    """Yield *alert* without the services that ran within *window* and are excepted."""
    override = change_of(alert, slos.overrides)
    if override is None:
        yield alert
        return
    for match in override.except_:
        labels = dict(match)
        if unknown := labels.keys() - {"job", *slos.site.service_labels}:
            allowed = ", ".join(("job", *slos.site.service_labels))
            override.source.fail(
                f"except has the label {min(unknown)!r}; services have {allowed}"
            )
        if "job" in dict(alert.labels):
            # That of an expected run.
            if set(match) <= set(alert.labels):
                return
            continue
        metric = BUILD_INFO._replace(labels=(*BUILD_INFO.labels, *labels))
        seen = gauge_over(metric, "last", window, *(eq(*pair) for pair in match))
        alert = replace(alert, expr=alert.expr.unless(seen.max(*labels), *labels))
    yield alert


def _unpaged(alert: Alert, slo: Slo, limits: SiteLimits) -> Alert:
    """Return the *alert* on a budget: no ticket for what the run has paged for."""
    if alert.severity == PAGE or slo.name != STALLED_SLO:
        return alert
    sentence = "Error ratio over one of the windows, if it burns."
    burning = alert.expr.record("slo", slo.series, "burning", sentence)
    # For so long do its windows remember an outage.
    short = max((pair.short for pair in slo.pairs), key=durations.seconds)
    paged = recorded.paged("", limits, limits.duration(short))
    return replace(alert, expr=burning.unless(paged, "job"))


def all_groups(slos: Slos, options: RuleOptions) -> list[RuleGroup]:
    """Return every group of rules, with the labels of the site, overviews first."""
    found = complete([*recording(slos, options), *groups(slos, options)])
    return [group.identified(slos.site.identity) for group in found]


def recording(slos: Slos, options: RuleOptions) -> list[RuleGroup]:
    """Return the groups of recording rules."""
    scale, when = options.scale, Evaluation(delay=slos.site.delay)
    counting = replace(when, interval=events.INTERVAL).scaled(scale)
    limits = SiteLimits.of(slos.limits, scale, (), PAGE)
    soon, later = (durations.scaled(every, scale) for every in (_SOON, _LATER))
    return [
        *recording_groups(slos, when=when, scale=scale),
        _group("events", counting.interval, events.recorded(counting)),
        _group("starts", soon, [young_ratio(limits)]),
        _group("slowdowns", later, recorded_slowdowns(scale)),
        _group("power", soon, recorded_power(scale)),
        _group("firing", soon, recorded_alerts()),
        *(overview_groups(scale) if options.drawn else ()),
    ]


def _group(name: str, interval: str, found: Iterable[RecordedSeries]) -> RuleGroup:
    return RuleGroup(f"jaxmon-{name}", interval, tuple(map(recording_rule, found)))


def groups(slos: Slos, options: RuleOptions) -> list[RuleGroup]:
    """Return the groups of alerting rules: two for causes, one for each objective."""
    soon, minutely, later, seldom = (
        durations.scaled(interval, options.scale)
        for interval in (_SOON, _SHORT, _LATER, _SELDOM)
    )
    alerts = all_alerts(slos, options)
    burning = {(slo.alert, ("slo", slo.name)) for slo in slos}
    others = [
        alert
        for alert in alerts
        if burning.isdisjoint((alert.name, label) for label in alert.labels)
    ]

    def rules(found: Iterable[Alert]) -> tuple[Rule, ...]:
        return tuple(
            document(alert, slos.site, change.annotations if change else ())
            for alert in found
            for change in [change_of(alert, slos.overrides)]
        )

    def short(alert: Alert) -> bool:
        wait = durations.seconds(alert.for_) * options.scale if alert.for_ else 0
        return 0 < wait < durations.seconds(_LONG)

    tickets = [alert for alert in others if alert.severity == TICKET]
    urgent = (alert for alert in others if alert.severity != TICKET)
    found: list[tuple[str, str, Iterable[Alert]]] = [
        ("causes", soon, urgent),
        ("causes-tickets", seldom, filterfalse(short, tickets)),
        # What must hold for some minutes is looked at as often.
        ("causes-tickets-short", minutely, filter(short, tickets)),
    ]
    for slo in slos:
        of_slo = [of for of in alerts if of.name == slo.alert and of not in others]
        found.append((f"slo-{slo.name}-alerts", soon if slo.page else later, of_slo))
    made = (RuleGroup(f"jaxmon-{name}", every, rules(of)) for name, every, of in found)
    return [group for group in made if group.rules]


def render(
    slos: Slos | None = None,
    options: RuleOptions | None = None,
    *,
    form: Format = "prometheus",
) -> dict[str, str]:
    """
    Return the files by name: rule files for ``prometheus``; for the Prometheus operator
    the resource ``prometheusrule``, with the ``alertmanagerconfig`` or without; or a
    namespace of a ruler of Mimir. Raises `SloError`: an override or a local threshold
    concerns no alert, or an AlertmanagerConfig cannot hold what the site wants.
    """
    slos, options = slos or slo_module.load(), options or RuleOptions()
    every = all_groups(slos, options)
    routing = configuration(slos.site, options.scale)
    files = {ALERTMANAGER: _yaml(routing)}

    def text(content: dict[str, Any]) -> str:
        return _explained(_yaml(content), every)

    if form in {"prometheusrule", "alertmanagerconfig"}:
        if form == "alertmanagerconfig":
            files = {NOTIFICATIONS: _yaml(notifications(routing, slos.site))}
        parts = resources([group.document() for group in every], slos.site, text)
        return {RESOURCE: "---\n".join(parts), **files}
    if form == "mimir":
        namespace = {"namespace": "jaxmon", **_rules(every)}
        return {NAMESPACE: text(namespace), **files}
    return {
        RECORDING: text(_rules(group for group in every if not group.alerting)),
        ALERTS: text(_rules(group for group in every if group.alerting)),
        **files,
    }


def _rules(found: Iterable[RuleGroup]) -> dict[str, Any]:
    return {"groups": [group.document() for group in found]}


def _explained(text: str, found: Iterable[RuleGroup]) -> str:
    rules = (rule for group in found for rule in group.rules if "record" in rule)
    sentences = {f"- record: {rule['record']}": rule["sentence"] for rule in rules}
    lines = []
    for line in text.splitlines():
        if sentence := sentences.get(bare := line.lstrip()):
            lines.append(f"{line.removesuffix(bare)}# {sentence}")
        lines.append(line)
    return "\n".join((*lines, ""))


def _yaml(content: dict[str, Any]) -> str:
    # libyaml, if PyYAML has it, writes the same in a tenth of the time.
    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    # Without references from one list to another.
    dumper = type("Dumper", (base,), {"ignore_aliases": lambda *_: True})
    text = yaml.dump(content, Dumper=dumper, sort_keys=False, width=100_000)
    return f"{_HEADER}{text}"


def bucket_alerts(slo: Slo, scale: float) -> Iterator[Alert]:
    """Yield a ticket for each bucket without which *slo* is not judged."""
    indicator, ten = slo.indicator, durations.scaled("10m", scale)
    if isinstance(indicator, Ratio) and indicator.left:
        indicator = indicator.left
    if not isinstance(indicator, LatencyIndicator):
        return
    for bound in indicator.bounds:
        yield Alert(
            name=MONITORING_ALERT,
            expr=indicator.missing(bound, ten, slo),
            for_=ten,
            summary=(
                "Job {{ $labels.job }} exports "
                f"{indicator.histogram.metric.name} without the "
                f"bucket {{{{ $labels.le }}}}, by which '{slo.title}' is judged."
            ),
            description="A histogram lacks the bucket of an objective.",
            labels=(("symptom", "bucket"), ("slo", slo.name)),
        )


def burn_alerts(slo: Slo, scale: float) -> Iterator[Alert]:
    """
    Yield a page and a ticket, those that there are: each fires while one of its pairs
    of windows does, and reads only what is recorded.
    """
    for severity in (PAGE, TICKET):
        pairs = sorted(
            (pair for pair in slo.pairs if slo.severity(pair) == severity),
            key=lambda pair: durations.seconds(pair.long),
        )
        if pairs:
            yield _alert(slo, severity, pairs, scale)


def _alert(slo: Slo, severity: Severity, pairs: list[Pair], scale: float) -> Alert:
    waits = [durations.seconds(durations.scaled(pair.for_, scale)) for pair in pairs]
    # The windows are one alert, or each would notify: what waits longer than another
    # must hold for the difference before.
    burning = [
        slo.burning(pair, wait - min(waits))
        for pair, wait in zip(pairs, waits, strict=True)
    ]
    # The value is that of the first that burns.
    *windows, last = dict.fromkeys(durations.scaled(of.long, scale) for of in pairs)
    spans = f"last {last}"
    if windows:
        spans = f"shortest of the last {', '.join(windows)} and {last} that burns"
    who = ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in slo.by)
    return Alert(
        name=slo.alert,
        expr=reduce(Expr.or_, burning),
        for_=durations.text(min(waits)),
        severity=severity,
        summary=f"{who}: {{{{ $value | humanizePercentage }}}} of events in the "
        f"{spans} were bad ({slo.budget * 100:.6g}% allowed).",
        description=(
            f"The error budget of '{slo.title}' is burning too fast: {slo.description}"
        ),
        labels=(
            ("slo", slo.name),
            ("owner", slo.owner),
            *(DEPLOY_NOISE if slo.deploy_noise and severity != PAGE else ()),
        ),
    )
