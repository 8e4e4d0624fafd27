"""Families to bytes, in the two text formats that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from math import isinf, isnan

from jaxmon.catalog import Metric
from jaxmon.exposition.families import Family, Sample, printable


_PLAIN = frozenset((int, float))
SUFFIXES = {"counter": "_total", "info": "_info"}
"""OpenMetrics names a family without the suffix that its samples bear."""
_RESERVED = {
    "counter": ("", "_total", "_created"),
    "histogram": ("", "_bucket", "_sum", "_count", "_created"),
    "info": ("", "_info"),
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Format(Enum):
    """A text format and its content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


TEXT = Format.TEXT
OPENMETRICS = Format.OPENMETRICS


def preferences(header: str) -> list[tuple[str, dict[str, str], float]]:
    """Return name, parameters and q-value of each item of an ``Accept…`` header."""
    items = []
    for item in header.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        pairs = (parameter.partition("=") for parameter in parameters)
        values = {key.strip(): value.strip(' "\t') for key, _, value in pairs}
        try:
            q = float(values.pop("q", 1.0))
        except ValueError:
            q = 0.0
        items.append((name, values, q))
    return items


def negotiate(accept: str) -> Format:
    """
    Return the format that an ``Accept`` header prefers: OpenMetrics 1.0.0 only if
    named, and in a tie if listed first; all others get text 0.0.4.
    """
    best, best_q = TEXT, 0.0
    for name, parameters, q in preferences(accept):
        version = parameters.get("version")
        if name == "application/openmetrics-text" and version in (None, "1.0.0"):
            candidate = OPENMETRICS
        elif name in ("*/*", "text/*") or (
            name == "text/plain" and version in (None, "0.0.4")
        ):
            candidate = TEXT
        else:
            continue
        if q > best_q:
            best, best_q = candidate, q
    return best


def encode(
    families: Iterable[Family],
    fmt: Format = TEXT,
    *,
    failed: Callable[[Metric, Exception], None] | None = None,
) -> bytes:
    """
    Return *families* as text in *fmt*.

    Families of one name become one block, in the position of the first; one of another
    kind is omitted, as are those without samples, and NaN. If a sample is no number,
    *failed* is called with metric and error, and the family omitted; without it, the
    error is raised.
    """
    blocks: dict[str, tuple[Metric, list[str]]] = {}
    for family in families:
        try:
            text = (
                _exemplars_text(family)
                if family.exemplars and fmt is OPENMETRICS
                else _samples_text(family.samples)
            )
        except Exception as error:
            if failed is None:
                raise
            failed(family.metric, error)
            continue
        if not text:
            continue
        metric, texts = blocks.setdefault(family.metric.name, (family.metric, []))
        if metric.kind == family.metric.kind:
            texts.append(text)
    header = _text_header if fmt is TEXT else _openmetrics_header
    parts: list[str] = []
    for metric, texts in blocks.values():
        parts.append(header(metric))
        parts += texts
    if fmt is OPENMETRICS:
        parts.append("# EOF\n")
    return "".join(parts).encode(errors="replace")


def names_of(metric: Metric) -> tuple[str, ...]:
    """Return the names that *metric* reserves in OpenMetrics: no two may share one."""
    name, kind = _family(metric)
    return tuple([name + suffix for suffix in _RESERVED.get(kind, ("",))])


def _family(metric: Metric) -> tuple[str, str]:
    suffix = SUFFIXES.get(metric.kind, "")
    # A counter without _total, for example of another exporter, is invalid in
    # OpenMetrics.
    is_typed = metric.kind != "untyped" and metric.name.endswith(suffix)
    return metric.name.removesuffix(suffix), metric.kind if is_typed else "unknown"


def _samples_text(samples: list[Sample]) -> str:
    return "".join(
        [
            f"{series} {value}\n"
            # x - x is 0 for every number but the infinities and NaN.
            if type(value) in _PLAIN and value - value == 0
            else _unusual_text(series, value)
            for series, value in samples
        ]
    )


def _exemplars_text(family: Family) -> str:
    lines = []
    for sample in family.samples:
        exemplar = family.exemplars.get(sample[0])
        line = _samples_text([sample])
        lines.append(f"{line[:-1]} {exemplar}\n" if exemplar and line else line)
    return "".join(lines)


def _unusual_text(series: str, value: float) -> str:
    """Return the line of a value that is no plain number: a bool, NumPy's, +Inf."""
    number = float(value)
    if isnan(number):
        return ""
    if isinf(number):
        return f"{series} {'+Inf' if number > 0 else '-Inf'}\n"
    return f"{series} {int(number) if number.is_integer() else number}\n"


# The catalogue fits. What agents of another release have beyond it may change with each
# response, and every one would stay: a name and its help have up to 1,000 characters.
_headers = lru_cache(maxsize=512)


@_headers
def _text_header(metric: Metric) -> str:
    kind = "gauge" if metric.kind == "info" else metric.kind
    text = printable(metric.help).replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {kind}\n"


@_headers
def _openmetrics_header(metric: Metric) -> str:
    name, kind = _family(metric)
    text = printable(metric.help).translate(_ESCAPES)
    unit = f"# UNIT {name} {metric.unit}\n" if name.endswith(f"_{metric.unit}") else ""
    return f"# TYPE {name} {kind}\n{unit}# HELP {name} {text}\n"
