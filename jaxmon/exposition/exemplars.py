"""
Exemplars: one observation of a bucket, with the ids of its trace.

Kept as OpenMetrics writes them after the value of a series:
``# {trace_id="…",span_id="…"} 0.67 1700000000.123``.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import NamedTuple


LONGEST = 128
"""Characters that OpenMetrics allows names and values of an exemplar's labels."""

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\]*+(?:\\[\\"n][^"\\]*+)*+)"')
_ESCAPE = re.compile(r"\\(.)")
_TEXT = re.compile(r"# \{(.*)\} (\S+)(?: (\S+))?")
# In seconds; the year 5138.
_LATEST = 1e11


class SpanIds(NamedTuple):
    """The ids, in hexadecimal, of a span whose trace is kept, and of that trace."""

    trace: str
    span: str


class Exemplar(NamedTuple):
    """
    An observation.

    Attributes:
        labels: usually ``trace_id`` and ``span_id``.
        value: in the unit of the metric.
        time: Unix time, `None` if unknown.
    """

    labels: dict[str, str]
    value: float
    time: float | None


def text(ids: SpanIds, value: float, time: float) -> str:
    """Return the exemplar of a *value* observed at *time* in a span."""
    return f'# {{trace_id="{ids.trace}",span_id="{ids.span}"}} {value} {time:.3f}'


def read(text: str) -> Exemplar | None:
    """Return the content of an exemplar, `None` if it is not a usable one."""
    match = _TEXT.fullmatch(text)
    return None if match is None else checked(*match.groups(""))


def checked(labels: str, value: str, time: str) -> Exemplar | None:
    """
    Return the exemplar of these texts, `None` if OpenMetrics forbids it, or if it
    cannot be: too long, a label twice, a value or time that is no finite number.
    """
    pairs = [
        (name, _ESCAPE.sub(lambda one: "\n" if one[1] == "n" else one[1], content))
        for name, content in _LABEL.findall(labels)
    ]
    found = dict(pairs)
    length = sum(len(name) + len(content) for name, content in pairs)
    if len(found) < len(pairs) or length > LONGEST:
        return None
    try:
        number, moment = float(value), float(time) if time else None
    except ValueError:
        return None
    sane = moment is None or 0 <= moment < _LATEST
    return Exemplar(found, number, moment) if isfinite(number) and sane else None
