"""
Cause alerts: likely reasons for missed objectives, and what no objective covers. They
are those of the symptoms, as a site changes them: local limits, overrides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from jaxmon import catalog
from jaxmon.limits import Limits
from jaxmon.promql import Expr, RecordedSeries, counter, eq, gauge, records
from jaxmon.symptoms.alert import FORMER_NAMES, Alert, SiteLimits
from jaxmon.symptoms.findings import SYMPTOMS
from jaxmon_alerts.slo import Slos
from jaxmon_alerts.slo.site import LocalLimits, Override


# A series that exists if the label has the value, by label.
_WITNESSES = {
    "loop": catalog.STEP_AGE_SECONDS,
    "route": catalog.REQUESTS,
    "function": catalog.COMPILES,
}


# In files, where they keep their place from release to release; new ones come last.
_ORDER = (
    " "
    "DeployInProgress RequestsHang ReplicaSlow ColdStartBudgetBurn TrainingStalled "
    "RankStuck TrainingDied CrashLoop WarmupFailed NonFinite TimeLost Straggler "
    "CheckpointFailed RunNoProgress GoodputLow Slowdown OutOfMemory DeviceMemoryHigh "
    "MemoryLeak HostMemoryGrowth RecompileStorm CompileFailed CompileStuck "
    "ThunderingCompilation ProgramsDiverge CheckFailed SilentCorruption "
    "AcceleratorLost GpuFault GpuThrottled Watchdog TargetDown ServiceVanished "
    "AgentSilent MonitoringDegraded "
)


def cause_alerts(limits: SiteLimits) -> list[Alert]:
    """
    Return the alerts of all symptoms, that on deployments first: it inhibits.

    If several conditions share a name, their label ``symptom`` tells them apart.
    """
    # Some symptoms have the same.
    rows = {symptom.rule: symptom for symptom in SYMPTOMS.values() if symptom.rule[1]}
    number = Counter(name for name, _ in rows)
    return sorted(
        (
            replace(alert, labels=(("symptom", symptom.name), *alert.labels))
            if number[symptom.alert] > 1
            else alert
            for symptom in rows.values()
            for alert in symptom.alerts(limits)
        ),
        key=_place,
    )


def causes(slos: Slos, scale: float) -> Iterator[Alert]:
    """Yield the cause alerts, with local limits; `SloError` if one concerns none."""

    def build(limits: Limits) -> list[Alert]:
        page = slos.site.severity("page")
        return cause_alerts(SiteLimits.of(limits, scale, slos.runs, page))

    usual = build(slos.limits)
    recorded = records(alert.expr for alert in usual)
    others = [
        (local, _renamed(alerts, recorded, f"_local{number}"))
        for number, local in enumerate(slos.local, 1)
        for alerts in [build(slos.limits.replaced(**dict(local.limits)))]
    ]
    used: set[int] = set()
    for place, alert in enumerate(usual):
        # Each alert follows from the limits: those that differ concern it.
        differing = [
            (number, local, alerts[place])
            for number, (local, alerts) in enumerate(others)
            if alerts[place] != alert
            and _subjects(local) <= (alert.expr.shape.labels or set())
        ]
        expr = alert.expr
        for number, local, other in differing:
            used.add(number)
            which, labels = _witness(local), tuple(dict(local.match))
            local_expr = other.expr.and_(which, *labels)
            expr = expr.unless(which, *labels)
            if replace(other, expr=expr) == replace(alert, expr=expr):
                expr = expr.or_(local_expr)
            else:
                # Rules of one name need different labels.
                values = ", ".join(value for _, value in local.match)
                marked = (*other.labels, ("local", values))
                yield replace(other, expr=local_expr, labels=marked)
        yield replace(alert, expr=expr)
    for number, local in enumerate(slos.local):
        if number not in used:
            names = ", ".join(name for name, _ in local.limits)
            subjects = ", ".join(sorted(_subjects(local)))
            local.source.fail(
                f"no alert that depends on {names} has the labels {subjects}; use "
                "fewer labels, such as job alone"
            )


def _renamed(
    alerts: list[Alert], usual: Mapping[str, RecordedSeries], suffix: str
) -> list[Alert]:
    names: dict[str, str] = {}
    for name, record in records(alert.expr for alert in alerts).items():
        if name in usual and record.expr.renamed(names) != usual[name].expr:
            names[name] = f"{name}{suffix}"
    return [replace(alert, expr=alert.expr.renamed(names)) for alert in alerts]


def overridden(
    alerts: Iterable[Alert], overrides: Iterable[Override]
) -> Iterator[Alert]:
    """Yield the alerts as *overrides* change them; `SloError` if one names none."""
    alerts, overrides = list(alerts), list(overrides)
    by_name = {override.alert: override for override in overrides}
    conditions = {_condition(alert) for alert in alerts}
    names = sorted({alert.name for alert in alerts})
    for unknown in by_name.keys() - conditions.union(names):
        part = FORMER_NAMES.get(unknown)
        by_name[unknown].source.fail(
            f"{unknown} is no alert any more; see {part}"
            if part
            else f"there is no alert {unknown!r}; allowed are {', '.join(names)}"
        )
    for alert in alerts:
        change = change_of(alert, overrides)
        if change is None:
            yield alert
        elif change.enabled:
            severity = change.severity or alert.severity
            # Its page and its ticket remain two.
            usual = (("usually", alert.severity),) * (severity != alert.severity)
            yield replace(
                alert,
                severity=severity,
                for_=change.for_ or alert.for_,
                labels=(*alert.labels, *usual, *change.labels),
                summary=change.summary or alert.summary,
                description=change.description or alert.description,
            )


def change_of(alert: Alert, overrides: Iterable[Override]) -> Override | None:
    """Return the override of the condition of *alert*, or else of its name."""
    found = {override.alert: override for override in overrides}
    return found.get(_condition(alert)) or found.get(alert.name)


def _condition(alert: Alert) -> str:
    return f"{alert.name}/{alert.symptom}"


def _place(alert: Alert) -> int:
    place = _ORDER.find(f" {alert.name.removeprefix('Jaxmon')} ")
    return len(_ORDER) if place < 0 else place


def _subjects(local: LocalLimits) -> set[str]:
    return {label for label in dict(local.match) if label in {"job", *_WITNESSES}}


def _witness(local: LocalLimits) -> Expr:
    """Return series with the labels of *local*, while their subject is there."""
    labels = dict(local.match)
    special = next((label for label in _WITNESSES if label in labels), None)
    metric = _WITNESSES[special] if special else catalog.BUILD_INFO
    # Some of the labels are the site's.
    extended = metric._replace(labels=(*metric.labels, *labels))
    matchers = tuple(eq(*pair) for pair in labels.items())
    if metric.kind == "counter":
        return counter(extended, *matchers).total().max(*labels)
    return gauge(extended, *matchers).max(*labels)
