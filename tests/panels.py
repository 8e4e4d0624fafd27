"""The panels of the dashboards, asked as Grafana would ask for them."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import pytest

from jaxmon.catalog import BY_NAME
from jaxmon_alerts.overviews import OVERVIEWS
from jaxmon_alerts.slo.site import PROCESS_LABELS, SERVICE_LABELS
from tests.rendered import DASHBOARDS, distinct
from tests.support import Prometheus, http_get


Series = list[dict[str, Any]]

# Labels that a site's Prometheus adds, and this one does not.
_SITE = (*SERVICE_LABELS, *PROCESS_LABELS)

VARIABLES: dict[str, dict[str, Any]] = {
    one["name"]: one
    for dashboard in DASHBOARDS.values()
    for one in dashboard["templating"]["list"]
}


class Grafana:
    """
    Asks Prometheus what Grafana would ask for a dashboard.

    Args:
        server: has the data.
        job: what is chosen for the variable ``job``.
        chosen: what is chosen for others; everything by default.
    """

    def __init__(self, server: Prometheus, job: str, **chosen: str) -> None:
        self.job = job
        self._url = f"{server.url}/api/v1"
        self._variables = {
            "__rate_interval": "15s",
            "__interval": "1s",
            "__range": "1m",
            "job": job,
            "instance": ".+",
            "worker": ".*",
            "function": ".*",
            "device": ".*",
            **chosen,
        }

    def expression(self, text: str) -> str:
        """Return *text* with variables filled in; an unknown one is an error."""
        return re.sub(
            r"\$\{?([a-z_]\w*)(:pipe)?\}?",
            lambda found: self._value(found[1], escaped=not found[2]),
            text,
        )

    def _value(self, name: str, *, escaped: bool = True) -> str:
        if name in self._variables:
            return self._variables[name]
        if pattern := VARIABLES[name].get("allValue"):
            return str(pattern)
        # Without a pattern of its own, all of a variable is what was found.
        found = "|".join(self.values(VARIABLES[name]))
        return f"({found})" if escaped else found

    def series(self, text: str, *, instant: bool, seconds: float = 30) -> Series:
        """Return what a query yields now, or over the last *seconds*."""
        now = time.time()
        query = {"query": self.expression(text)}
        data = (
            self._ask("query", **query, time=now)
            if instant
            else self._ask("query_range", **query, start=now - seconds, end=now, step=1)
        )
        found: Series = data["result"]
        return found

    def values(self, variable: Mapping[str, Any]) -> list[str]:
        """Return what a variable's query finds."""
        text: str = variable["definition"]
        if query := re.fullmatch(r"query_result\((.+)\)", text):
            lines = (
                "".join(f'{label}="{value}"' for label, value in one["metric"].items())
                for one in self.series(query[1], instant=True)
            )
            pattern = re.compile(variable["regex"].strip("/"))
            return sorted({found[1] for one in lines if (found := pattern.search(one))})
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", text)
        assert found is not None
        match = self.expression(found[1])
        values: list[str] = self._ask(f"label/{found[2]}/values", **{"match[]": match})
        return values

    def _ask(self, path: str, **parameters: Any) -> Any:
        answer = json.loads(http_get(f"{self._url}/{path}?{urlencode(parameters)}"))
        assert answer["status"] == "success"
        assert not answer.get("warnings")
        assert not answer.get("infos")
        return answer["data"]


def panels() -> Iterator[dict[str, Any]]:
    """Yield every panel, once if several dashboards have it."""
    yield from distinct()


def problems(
    grafana: Grafana, panel: dict[str, Any], *, without: tuple[str, ...] = ()
) -> Iterator[str]:
    """
    Say what is wrong with the answers to the queries of *panel*.

    Args:
        grafana: answers.
        panel: as in the dashboard.
        without: labels that a legend may name in vain.
    """
    for target in panel["targets"]:
        name = f"{grafana.job}: {panel['title']} {target['refId']}"
        found = grafana.series(target["expr"], instant=target.get("instant", False))
        if not found:
            yield f"{name}: no data"
        for one in found:
            samples = one.get("values") or [one["value"]]
            values = [float(value) for _, value in samples]
            if all(map(math.isnan, values)):
                yield f"{name}: nothing but NaN in {one['metric']}"
            if panel["fieldConfig"]["defaults"].get("max") == 1 and not all(
                value <= 1.05 for value in values
            ):
                yield f"{name}: {max(values)} is no ratio"
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        seen = {
            label for one in found for label, value in one["metric"].items() if value
        }
        if absent := legend - seen - {*without, *_SITE}:
            yield f"{name}: no series has the label {sorted(absent)}"


# Metrics of which series are recorded.
RECORDED = {one.name: one.metric for one in OVERVIEWS}


def is_sidecars(panel: Mapping[str, Any]) -> bool:
    """Return whether a panel shows what no agent exports by itself."""
    names = re.findall(r"`([\w:]+)`", panel["description"])
    metrics = [BY_NAME.get(one) or RECORDED.get(one) for one in names]
    return any("agent" not in one.sources for one in metrics if one)


def settled(
    probes: Sequence[Callable[[], Iterable[str]]],
    *,
    before: Callable[[], None] = lambda: None,
    seconds: float = 90.0,
) -> None:
    """
    Wait until no probe finds a problem; fail with those that remain.

    Only those that found one are asked again; when none is left, all of them are.

    Args:
        probes: say what is wrong.
        before: called before each round.
        seconds: to wait.
    """
    deadline = time.monotonic() + seconds
    asked = list(probes)
    while True:
        before()
        found = [(probe, list(probe())) for probe in asked]
        failing = [probe for probe, said in found if said]
        if not failing and len(asked) == len(probes):
            return
        if failing:
            if time.monotonic() > deadline:
                problems = [line for _, said in found for line in said]
                pytest.fail("\n".join(problems), pytrace=False)
            time.sleep(1)
        asked = failing or list(probes)
