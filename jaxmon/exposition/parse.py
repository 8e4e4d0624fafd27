"""
Parses text format 0.0.4 and OpenMetrics 1.0.0, as read by the sidecar from agents.

Strict where an error would corrupt the output that relays it: names, labels, numbers
and types must be valid, or all of it is rejected. The caller bounds its size; parsing
time is linear in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, TypeAlias, get_args

from jaxmon.catalog import BY_NAME, Kind, Metric
from jaxmon.errors import PageError
from jaxmon.exposition.families import Family, checked, labels_text


ParsedSample: TypeAlias = tuple[str, str, float]

# Possessive throughout: a line either matches in one pass or does not.
_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*+"
_LABEL_NAME = r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*+"
_LABEL_VALUE = r'[^"\\]*+(?:\\[\\"n][^"\\]*+)*+'
_LABEL = f'{_LABEL_NAME}="{_LABEL_VALUE}"'
_LABELS = rf"\{{((?:{_LABEL}(?:,{_LABEL})*+)?+),?+\}}"
_VALUE = r"[0-9a-zA-Z+.-]{1,64}"
_LINE = rf"({_NAME})(?:{_LABELS})?[ \t]++({_VALUE})(?:[ \t]++-?[0-9]{{1,20}})?+"
_SAMPLE = re.compile(rf"{_LINE}[ \t]*+")
# Compiled when an agent has one.
_WITH_EXEMPLAR = rf"({_LINE}) # {_LABELS} ({_VALUE})(?: ({_VALUE}))?"
_END = "\n# EOF"
_ANY_NAME = re.compile(_NAME)
_ANY_LABEL = re.compile(f'({_LABEL_NAME})="({_LABEL_VALUE})"')
_INTEGER = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|Inf|NaN)"
)
_ESCAPE = re.compile(r'\\([\\"n])')
_HELP_ESCAPE = re.compile(r"\\([\\n])")
_TYPES = ("counter", "gauge", "histogram", "summary", "untyped")
_SERIES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("", "_sum", "_count"),
}
_SHOWN = 80


@dataclass(slots=True)
class ParsedFamily:
    """One family as exported, ``untyped`` without a TYPE line."""

    name: str
    kind: str = "untyped"
    help: str = ""
    samples: list[ParsedSample] = field(default_factory=list)
    exemplars: dict[int, str] = field(default_factory=dict)


def parse(text: str) -> list[ParsedFamily]:
    """
    Return the families in *text*, in order, under the names of text format 0.0.4;
    without timestamps, and without exemplars that OpenMetrics does not allow. Raises
    `PageError`: with the number and the beginning of the invalid line.
    """
    page = _OpenMetrics() if text.rstrip("\n").endswith(_END) else _ParsedPage()
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.isspace():
            continue
        try:
            if line.startswith("#"):
                page.comment(line)
            else:
                page.sample(line)
        except ValueError as error:
            msg = f"line {number}: {error}: {line[:_SHOWN]!r}"
            raise PageError(msg) from None
    return list(page.families.values())


def labels(label_text: str) -> dict[str, str]:
    """Return the labels in *label_text*, values unescaped."""
    return {
        name: _ESCAPE.sub(_unescaped, value) if "\\" in value else value
        for name, value in _ANY_LABEL.findall(label_text)
    }


def relabel(family: ParsedFamily, name: str, value: str) -> ParsedFamily:
    """Return *family* with the label *name* first; others become ``exported_``."""
    first = labels_text((name,), (value,))
    samples = [
        (series, f"{first},{_without(name, text)}" if text else first, number)
        for series, text, number in family.samples
    ]
    return ParsedFamily(
        family.name, family.kind, family.help, samples, family.exemplars
    )


def to_family(parsed: ParsedFamily) -> Family:
    """Return *parsed* as a family of the catalogue, or as an ad-hoc one."""
    metric = BY_NAME.get(parsed.name)
    if metric is None or _shown_kind(metric) != parsed.kind:
        kinds: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}
        metric = Metric(parsed.name, kinds[parsed.kind], parsed.help)
    samples = [
        (f"{series}{{{text}}}" if text else series, number)
        for series, text, number in parsed.samples
    ]
    exemplars = {samples[index][0]: text for index, text in parsed.exemplars.items()}
    return Family(metric, samples, exemplars)


class _ParsedPage:
    """What the lines so far amount to. Methods raise `ValueError` with the reason."""

    def __init__(self) -> None:
        self.families: dict[str, ParsedFamily] = {}
        self._typed: set[str] = set()
        self._owners: dict[str, ParsedFamily] = {}
        self._orders: dict[tuple[str, ...], tuple[str, ...]] = {}

    def comment(self, line: str) -> None:
        word, _, rest = line[1:].lstrip(" \t").partition(" ")
        if word not in ("HELP", "TYPE"):
            return
        name, _, rest = rest.partition(" ")
        if not _ANY_NAME.fullmatch(name):
            msg = f"malformed {word}"
            raise ValueError(msg)
        if word == "HELP":
            family = self.families.setdefault(name, ParsedFamily(name))
            family.help = _HELP_ESCAPE.sub(_unescaped, rest)
        else:
            self._type(name, rest.strip(" \t"))

    def _type(self, name: str, kind: str) -> None:
        if kind not in _TYPES:
            msg = f"unknown type {kind[:_SHOWN]!r}, allowed are {', '.join(_TYPES)}"
            raise ValueError(msg)
        family = self.families.setdefault(name, ParsedFamily(name))
        series = [name + suffix for suffix in _SERIES.get(kind, ("",))]
        if name in self._typed or any(
            taken in self._owners for taken in (name, *series)
        ):
            msg = "duplicate TYPE line, or TYPE after samples"
            raise ValueError(msg)
        family.kind = kind
        self._typed.add(name)
        self._owners.update(dict.fromkeys(series, family))

    def sample(self, line: str) -> None:
        match = _SAMPLE.fullmatch(line)
        if match is None:
            self.unmatched(line)
            return
        series, text, number = match.groups("")
        if not text.isprintable():
            text = _printable(text)
        if text.count('="') > 1 or '=""' in text:
            text = self._normal(text)
        family = self._owners.get(series) or self._untyped(series)
        family.samples.append((series, text, _number(number)))

    def unmatched(self, line: str) -> None:
        """Reject a line that is no sample."""
        del line
        msg = "malformed sample"
        raise ValueError(msg)

    def _normal(self, text: str) -> str:
        """Return the labels in *text* without empty ones, in their first order."""
        found: list[tuple[str, str]] = _ANY_LABEL.findall(text)
        names = tuple([name for name, _ in found])
        if '=""' in text:
            # Before that, because a duplicate label is invalid.
            self._order(names)
            names = tuple([name for name, value in found if value])
        order = self._orders.get(names) or self._order(names)
        if order == names and '=""' not in text:
            return text
        values = dict(found)
        return ",".join([f'{name}="{values[name]}"' for name in order])

    def _order(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(names)) < len(names):
            msg = "a label appears twice"
            raise ValueError(msg)
        order = self._orders.setdefault(tuple(sorted(names)), names)
        self._orders[names] = order
        return order

    def _untyped(self, series: str) -> ParsedFamily:
        if series in self._typed:
            msg = "a histogram has only _bucket, _sum and _count"
            raise ValueError(msg)
        family = self.families.setdefault(series, ParsedFamily(series))
        self._owners[series] = family
        return family


class _OpenMetrics(_ParsedPage):
    """Lines of OpenMetrics: other names in TYPE and HELP, and exemplars."""

    _SUFFIXES: ClassVar = {"counter": "_total", "info": "_info"}
    _KINDS: ClassVar = {"info": "gauge", "unknown": "untyped"}

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, str] = {}

    def comment(self, line: str) -> None:
        word, _, rest = line.removeprefix("# ").partition(" ")
        name, _, rest = rest.partition(" ")
        if word == "TYPE":
            suffix = self._SUFFIXES.get(rest, "")
            self._names[name] = name if name.endswith(suffix) else name + suffix
            rest = self._KINDS.get(rest, rest)
        elif word == "HELP":
            rest = rest.replace('\\"', '"')
        super().comment(f"# {word} {self._names.get(name, name)} {rest}")

    def unmatched(self, line: str) -> None:
        """Read a sample with an exemplar: few have one."""
        match = re.fullmatch(_WITH_EXEMPLAR, line) if " # {" in line else None
        if match is None:
            super().unmatched(line)
            return
        whole, series, _, _, labels, value, time = match.groups("")
        self.sample(whole)
        family = self._owners[series]
        part = family.kind, series.removeprefix(family.name)
        if part in _WITH_EXEMPLARS and checked(labels, value, time) is not None:
            text = f"# {{{labels}}} {value} {time}".rstrip()
            family.exemplars[len(family.samples) - 1] = text


_WITH_EXEMPLARS = (("histogram", "_bucket"), ("counter", ""))


def _number(text: str) -> float:
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        msg = "malformed value"
        raise ValueError(msg)
    return float(text)


def _shown_kind(metric: Metric) -> str:
    return "gauge" if metric.kind == "info" else metric.kind


def _without(name: str, text: str) -> str:
    """Return *text* with the label *name* renamed, if it is there."""
    if f'{name}="' not in text or name not in (found := labels(text)):
        return text
    renamed = f"exported_{name}"
    while renamed in found:
        renamed = f"exported_{renamed}"
    names = [renamed if key == name else key for key in found]
    return labels_text(names, found.values())


def _printable(text: str) -> str:
    """Return the labels in *text* with unprintable characters escaped."""
    found: list[tuple[str, str]] = _ANY_LABEL.findall(text)
    pairs = [(name, _ESCAPE.sub(_unescaped, value)) for name, value in found]
    return labels_text([name for name, _ in pairs], [value for _, value in pairs])


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


_TOTALS = ("_sum", "_count")
_HIGHEST = 1e300


def check_distribution(family: Family) -> None:
    """Check the distributions of *family*, or raise a `PageError`."""
    label = "le" if family.metric.kind == "histogram" else "quantile"
    seen: set[str] = set()
    # The same few for all of them.
    bounds: dict[str, float] = {}
    current: _Distribution | None = None
    length = len(family.metric.name)
    try:
        for series, value in family.samples:
            part, labels, text = _parts(series[length:], label)
            bound = bounds.get(text)
            if bound is None:
                bound = bounds[text] = _bound(text, label)
            if current is None or labels != current.labels:
                if current is not None:
                    current.check()
                current = _begun(labels, label, seen)
            current.add(part, bound, value)
        if current is not None:
            current.check()
    except ValueError as error:
        msg = f"{family.metric.kind} {family.metric.name} {error}"
        raise PageError(msg) from None


class _Distribution:
    """What belongs to one set of labels. Methods raise `ValueError` with the reason."""

    def __init__(self, labels: str, label: str) -> None:
        self.labels = labels
        self._label = label
        self._bound = -inf
        self._below = 0.0
        self._totals: dict[str, float] = {}

    def add(self, part: str, bound: float, value: float) -> None:
        if not 0 <= value < inf and (part or value < 0):
            msg = f"has {value} in {part or self._label}"
            raise ValueError(msg)
        if part in _TOTALS:
            self._totals[part] = value
            return
        if bound <= self._bound:
            msg = f"has {self._label} {bound:g} out of order"
            raise ValueError(msg)
        self._bound = bound
        if part:
            if value < self._below or value != int(value):
                msg = (
                    f"counts {value} in bucket {bound} after {self._below}; give whole "
                    "numbers that never decrease"
                )
                raise ValueError(msg)
            self._below = value

    def check(self) -> None:
        if len(self._totals) != len(_TOTALS):
            msg = "must have exactly one _sum and one _count"
            raise ValueError(msg)
        count = self._totals["_count"]
        if self._label == "le" and (self._bound != inf or count != self._below):
            msg = "has no +Inf bucket equal to its count"
            raise ValueError(msg)
        if count != int(count):
            msg = f"counts {count}"
            raise ValueError(msg)


def _begun(labels: str, label: str, seen: set[str]) -> _Distribution:
    if labels in seen:
        msg = "is not contiguous"
        raise ValueError(msg)
    seen.add(labels)
    return _Distribution(labels, label)


def _parts(rest: str, label: str) -> tuple[str, str, str]:
    """Return which part of a distribution a series is, its labels, and its bound."""
    part, _, labels = rest.partition("{")
    if part in _TOTALS:
        return part, labels[:-1], "0"
    # In a label value, the quotation mark would be escaped.
    others, found, bound = labels[:-2].rpartition(f'{label}="')
    if not found or others[-1:] not in ("", ",") or '"' in bound:
        msg = f"has no label {label} at the end"
        raise ValueError(msg)
    return part, others[:-1], bound


def _bound(text: str, label: str) -> float:
    """Return the number *text*: spelled in one way, or two bounds may be the same."""
    if text == "+Inf" and label == "le":
        return inf
    number = float(text)
    highest = 1.0 if label == "quantile" else _HIGHEST
    if not 0 <= number <= highest or text not in (repr(number), f"{number:g}"):
        msg = f"has the bound {text[:40]}"
        raise ValueError(msg)
    return number
