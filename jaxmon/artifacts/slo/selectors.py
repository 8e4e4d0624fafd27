"""Selectors in ``slo.yaml``, checked against the catalogue."""

from __future__ import annotations

import difflib
import re

from jaxmon.artifacts.promql import Matcher
from jaxmon.artifacts.promql.shape import SCRAPED_LABELS
from jaxmon.artifacts.slo import patterns
from jaxmon.artifacts.slo.indicators import Selector
from jaxmon.artifacts.slo.source import Source
from jaxmon.catalog import BY_NAME, Metric


_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(?:\{(.*)\})?")
_MATCHER = re.compile(
    r'\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)'
)
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_ESCAPES = {r"\\": "\\", r"\"": '"'}


def selector(source: Source, *kinds: str) -> Selector:
    """
    Return the series that a text such as ``name{label="value"}`` selects.

    Raises:
        SloError: the text is not a selector, or the catalogue has no such metric, kind,
            label or value.
    """
    text = source.text()
    match = _SELECTOR.fullmatch(text)
    if not match:
        source.fail(f'{text!r} is not a selector such as name{{label="value"}}')
    metric = _metric(source, match[1])
    if metric.kind not in kinds:
        source.fail(
            f"{metric.name} is a {metric.kind}; expected a {' or '.join(kinds)}"
        )
    matchers = tuple(_matchers(source, match[2] or ""))
    for matcher in matchers:
        _check(source, metric, matcher)
    return Selector(metric, matchers)


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


def _metric(source: Source, name: str) -> Metric:
    if name not in BY_NAME:
        close = difflib.get_close_matches(name, BY_NAME, 3, 0.5)
        hint = f"did you mean {', '.join(close)}?" if close else "see docs/metrics.md"
        source.fail(f"the catalogue has no metric {name!r}; {hint}")
    return BY_NAME[name]


def _matchers(source: Source, text: str) -> list[Matcher]:
    matchers = []
    position = 0
    while position < len(text.rstrip()):
        if not (match := _MATCHER.match(text, position)):
            source.fail(
                f"{text[position:]!r} is not a list of matchers such as "
                'label="value", label!="value", label=~"a|b"'
            )
        value = _ESCAPED.sub(lambda one: _unescaped(source, one[0]), match[3])
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
    allowed = (*metric.labels, *SCRAPED_LABELS)
    if matcher.label not in allowed:
        source.fail(
            f"{metric.name} has no label {matcher.label!r}; it has {', '.join(allowed)}"
        )
    values = dict(metric.values).get(matcher.label)
    if values and matcher.operator in {"=", "!="} and matcher.value not in values:
        source.fail(
            f"{matcher.label}={matcher.value!r} never occurs on {metric.name}; "
            f"values are {', '.join(values)}"
        )
    if matcher.operator in {"=~", "!~"}:
        try:
            patterns.check(matcher.value)
        except patterns.PatternError as error:
            source.fail(f"{matcher.value!r} is not a regular expression: {error}")
