"""Selectors in ``slo.yaml``, checked against the catalogue."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Mapping
from typing import Any

from jaxmon.catalog import BY_NAME, Metric
from jaxmon.promql import Matcher, series
from jaxmon.promql.shape import SCRAPED_LABELS
from jaxmon_alerts.slo.indicators import Selector
from jaxmon_alerts.slo.source import Source


_KINDS = ("counter", "gauge", "histogram")
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?")
_MATCHER = re.compile(
    r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)'
)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
# What RE2 and Python read differently: Prometheus says at load what it rejects.
_RE2 = re.compile(r"\\\w|\(\?")
_ESCAPES = {r"\\": "\\", r"\"": '"'}


class Metrics:
    """
    Metrics that indicators may read: the catalogue's, and those that a file declares.

    Args:
        declared: metrics of others, by name.
        series: labels that the site's Prometheus adds to every series.
    """

    def __init__(self, declared: Mapping[str, Metric], series: tuple[str, ...]) -> None:
        self._declared = declared
        self._series = series

    @classmethod
    def declared(cls, source: Source | None, series: tuple[str, ...]) -> Metrics:
        """Return the catalogue's, and those of the section ``metrics``."""
        metrics: dict[str, Metric] = {}
        for item in source.items() if source else ():
            metric = _declared(item)
            if metric.name in metrics or metric.name in BY_NAME:
                item.fail(f"{metric.name} is declared already; use another metric")
            metrics[metric.name] = metric
        return cls(metrics, series)

    def selector(self, source: Source, *kinds: str) -> Selector:
        """
        Return the series that a text such as ``name{label="value"}`` selects.

        Raises:
            SloError: the text is not a selector, or there is no such metric, kind,
                label or value.
        """
        text = source.text()
        match = _SELECTOR.fullmatch(text)
        if not match:
            source.fail(f'{text!r} is not a selector such as name{{label="value"}}')
        metric = self._metric(source, match[1])
        if metric.kind not in kinds:
            source.fail(
                f"{metric.name} is a {metric.kind}; expected a {' or '.join(kinds)}"
            )
        matchers = tuple(_matchers(source, match[2] or ""))
        for matcher in matchers:
            _check(source, metric, matcher)
        return Selector(metric, matchers)

    def _metric(self, source: Source, name: str) -> Metric:
        metric = self._declared.get(name) or BY_NAME.get(name)
        if metric is None:
            close = difflib.get_close_matches(name, [*BY_NAME, *self._declared], 3, 0.5)
            hint = (
                f"did you mean {', '.join(close)}?" if close else "see docs/metrics.md"
            )
            source.fail(
                f"the catalogue has no metric {name!r}; {hint} Metrics of others are "
                "declared in the section 'metrics'"
            )
        more = (label for label in self._series if label not in metric.labels)
        return metric._replace(labels=(*metric.labels, *more))


def _declared(source: Source) -> Metric:
    found = source.mapping(["name", "kind"], ["labels", "buckets"])
    name = found["name"].text()
    if not _METRIC_NAME.fullmatch(name):
        found["name"].fail(
            f"{name!r} is not a metric name, such as http_requests_total"
        )
    kind: Any = found["kind"].choice(_KINDS)
    if ("buckets" in found) != (kind == "histogram"):
        found["kind"].fail("histograms have the key 'buckets', others do not")
    buckets = (
        [bound.count() for bound in found["buckets"].items()]
        if "buckets" in found
        else []
    )
    if buckets != sorted(set(buckets)):
        found["buckets"].fail("expected increasing bounds, without +Inf")
    labels = (
        [label.text() for label in found["labels"].items()] if "labels" in found else []
    )
    return Metric(name, kind, "", labels=tuple(labels), buckets=tuple(buckets))


def labels(source: Source, metrics: tuple[Metric, ...]) -> tuple[str, ...]:
    """Return a list of labels that every one of *metrics* has."""
    found = tuple(item.text() for item in source.items())
    shared = [
        label
        for label in (*SCRAPED_LABELS, *metrics[0].labels)
        if all(label in (*SCRAPED_LABELS, *metric.labels) for metric in metrics)
    ]
    for item, label in zip(source.items(), found, strict=True):
        if label not in shared:
            item.fail(f"found {label!r}; the metrics share {', '.join(shared)}")
    return found


def _matchers(source: Source, text: str) -> list[Matcher]:
    matchers = []
    position = 0
    while position < len(text.rstrip()):
        if not (match := _MATCHER.match(text, position)):
            source.fail(
                f"{text[position:]!r} is not a list of matchers such as "
                'label="value", label!="value", label=~"a|b"'
            )
        value = _ESCAPED.sub(lambda escape: _unescaped(source, escape[0]), match[3])
        matchers.append(Matcher(match[1], match[2], value))  # type: ignore[arg-type]
        position = match.end()
    return matchers


def _unescaped(source: Source, text: str) -> str:
    """Return the character that *text*, a backslash and one character, represents."""
    if text not in _ESCAPES:
        source.fail(
            f"invalid escape {text}; in PromQL strings, backslashes of regular "
            f"expressions must be doubled: \\{text}"
        )
    return _ESCAPES[text]


def _check(source: Source, metric: Metric, matcher: Matcher) -> None:
    try:
        series.check(metric, [matcher])
        if matcher.operator in {"=~", "!~"} and not _RE2.search(matcher.value):
            with warnings.catch_warnings(action="ignore"):
                re.compile(matcher.value)
    except (re.error, OverflowError, RecursionError) as error:
        source.fail(f"{matcher.value!r} is not a regular expression: {error}")
    except ValueError as error:
        source.fail(str(error))
