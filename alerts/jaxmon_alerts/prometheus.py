"""Queries to a Prometheus, or to what serves its API: Thanos, Mimir."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from jaxmon.host.http.session import MonitoringError, Session


class QueryError(MonitoringError):
    """Prometheus could not evaluate a query: too expensive, or it took too long."""


@dataclass(frozen=True, slots=True)
class PrometheusSeries:
    """One series of a result: Unix times and values, in order; numbers only."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        """The latest value."""
        return self.points[-1][1]


class Prometheus:
    """Evaluates queries; each is one request."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def instant(self, query: str, at: float) -> list[PrometheusSeries]:
        """Return what *query* yields at *at*; `QueryError`, `MonitoringError`."""
        return self._query("query", {"query": query, "time": f"{at:.3f}"})

    def rules(self) -> list[Mapping[str, Any]]:
        """Return the rules that are loaded, none if the API has none."""
        response = self._session.get("/api/v1/rules")
        document = self._session.decoded(response)
        data = document.get("data") if isinstance(document, dict) else None
        groups = data.get("groups") if isinstance(data, dict) else None
        return [
            rule
            for group in (groups if isinstance(groups, list) else [])
            if isinstance(group, dict) and isinstance(group.get("rules"), list)
            for rule in group["rules"]
            if isinstance(rule, dict)
        ]

    def between(
        self, query: str, start: float, end: float, *, step: float
    ) -> list[PrometheusSeries]:
        """Return what *query* yields each *step*, 11,000 times at most."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        return self._query("query_range", {"query": query, **times})

    def _query(self, endpoint: str, query: Mapping[str, str]) -> list[PrometheusSeries]:
        response = self._session.get(f"/api/v1/{endpoint}", query)
        document = self._session.decoded(response)
        status = document.get("status") if isinstance(document, dict) else None
        if status == "error":
            text = self._session.redacted(str(document.get("error")))
            msg = f"{self._session.whose} could not evaluate a query: {text}"
            raise QueryError(msg)
        data = document.get("data") if status == "success" else None
        result = data.get("result") if isinstance(data, dict) else None
        if response.status != HTTPStatus.OK or not isinstance(result, list):
            reason = f"{response.status} without the result of a query"
            raise self._session.foreign(reason)
        try:
            found = [_series(item) for item in result]
        except (KeyError, TypeError, ValueError, AttributeError):
            reason = "a result that is no vector"
            raise self._session.foreign(reason) from None
        return [series for series in found if series.points]


def _series(item: Mapping[str, Any]) -> PrometheusSeries:
    points = item["values"] if "values" in item else [item["value"]]
    labels = {str(name): str(value) for name, value in item["metric"].items()}
    numbers = ((float(time), float(text)) for time, text in points)
    finite = tuple(point for point in numbers if math.isfinite(point[1]))
    return PrometheusSeries(labels, finite)
