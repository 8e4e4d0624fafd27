"""
Parses text format 0.0.4 and OpenMetrics 1.0.0, as read by the sidecar from agents.

Strict where an error would corrupt the output that relays it: names, labels, numbers
and types must be valid, or all of it is rejected. The caller bounds its size; parsing
time is linear in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby, pairwise
from math import inf
from operator import itemgetter
from typing import ClassVar, TypeAlias, get_args

from jaxmon.catalog import BY_NAME, Kind, Metric
from jaxmon.errors import PageError
from jaxmon.exposition.encode import SUFFIXES
from jaxmon.exposition.families import Family, checked, labels_text, unescaped


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
_TYPES = ("counter", "gauge", "histogram", "untyped")
_SERIES = {"histogram": ("_bucket", "_sum", "_count")}
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
        name: _ESCAPE.sub(unescaped, value) if "\\" in value else value
        for name, value in _ANY_LABEL.findall(label_text)
    }


def relabel(family: ParsedFamily, name: str, value: str) -> ParsedFamily:
    """Return *family* with the label *name* first; `PageError` if it has such a one."""
    first = labels_text((name,), (value,))
    for series, text, _ in family.samples:
        if f'{name}="' in text and name in labels(text):
            msg = f"{series} has a label {name}"
            raise PageError(msg)
    samples = [
        (series, f"{first},{text}" if text else first, number)
        for series, text, number in family.samples
    ]
    return ParsedFamily(
        family.name, family.kind, family.help, samples, family.exemplars
    )


def to_family(parsed: ParsedFamily) -> Family:
    """Return *parsed* as a family of the catalogue, or as an ad-hoc one."""
    metric = BY_NAME.get(parsed.name)
    shown = metric and ("gauge" if metric.kind == "info" else metric.kind)
    if metric is None or shown != parsed.kind:
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
        self._orders: dict[tuple[str, frozenset[str]], list[str]] = {}

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
            family.help = _HELP_ESCAPE.sub(unescaped, rest)
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
            text = self._normal(series, text)
        family = self._owners.get(series) or self._untyped(series)
        family.samples.append((series, text, _number(number)))

    def unmatched(self, _: str) -> None:
        """Reject a line that is no sample."""
        msg = "malformed sample"
        raise ValueError(msg)

    def _normal(self, series: str, text: str) -> str:
        """Return the labels in *text*, of *series*, without empty ones."""
        found: list[tuple[str, str]] = _ANY_LABEL.findall(text)
        names = [name for name, value in found if value]
        if len(dict(found)) < len(found):
            msg = "a label appears twice"
            raise ValueError(msg)
        # A series must have one name.
        if self._orders.setdefault((series, frozenset(names)), names) != names:
            msg = "its labels have another order than before"
            raise ValueError(msg)
        if len(names) == len(found):
            return text
        return ",".join([f'{name}="{value}"' for name, value in found if value])

    def _untyped(self, series: str) -> ParsedFamily:
        if series in self._typed:
            msg = "a histogram has only _bucket, _sum and _count"
            raise ValueError(msg)
        family = self.families.setdefault(series, ParsedFamily(series))
        self._owners[series] = family
        return family


class _OpenMetrics(_ParsedPage):
    """Lines of OpenMetrics: other names in TYPE and HELP, and exemplars."""

    _KINDS: ClassVar = {"info": "gauge", "unknown": "untyped"}

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, str] = {}

    def comment(self, line: str) -> None:
        word, _, rest = line.removeprefix("# ").partition(" ")
        name, _, rest = rest.partition(" ")
        if word == "TYPE":
            suffix = SUFFIXES.get(rest, "")
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


def _printable(text: str) -> str:
    found: list[tuple[str, str]] = _ANY_LABEL.findall(text)
    pairs = [(name, _ESCAPE.sub(unescaped, value)) for name, value in found]
    return labels_text([name for name, _ in pairs], [value for _, value in pairs])


_TOTALS = ("_sum", "_count")


def check_histogram(family: Family) -> None:
    """Check the histograms of *family*, or raise a `PageError`."""
    length = len(family.metric.name)
    seen: set[str] = set()
    parts = ((*_parts(name[length:]), value) for name, value in family.samples)
    try:
        for labels, samples in groupby(parts, itemgetter(0)):
            problem = _problem([row[1:] for row in samples])
            if labels in seen:
                problem = "is not contiguous"
            if problem:
                raise ValueError(problem)  # noqa: TRY301 - as those of `_parts`
            seen.add(labels)
    except ValueError as error:
        msg = f"histogram {family.metric.name} {error}"
        raise PageError(msg) from None


def _problem(samples: list[tuple[str, float, float]]) -> str:
    """Return what is wrong with the parts, bounds and values of a set of labels."""
    buckets = [(bound, value) for part, bound, value in samples if part not in _TOTALS]
    totals = {part: value for part, _, value in samples if part in _TOTALS}
    counts = [value for part, _, value in samples if part != "_sum"]
    for part, _, value in samples:
        if not 0 <= value < inf:
            return f"has {value} in {part}"
    if any(low >= high for (low, _), (high, _) in pairwise(buckets)):
        return "has le out of order"
    if len(totals) != len(_TOTALS):
        return "must have exactly one _sum and one _count"
    if buckets[-1:] != [(inf, totals["_count"])]:
        return "has no +Inf bucket equal to its count"
    if any(count != int(count) for count in counts) or counts != sorted(counts):
        return f"counts {counts}; give whole numbers that never decrease"
    return ""


def _parts(rest: str) -> tuple[str, str, float]:
    """Return a series's labels, which part of a histogram it is, and its bound."""
    part, _, labels = rest.partition("{")
    if part in _TOTALS:
        return labels[:-1], part, 0.0
    # In a label value, the quotation mark would be escaped.
    others, found, bound = labels[:-2].rpartition('le="')
    if not found or others[-1:] not in ("", ",") or '"' in bound:
        msg = "has no label le at the end"
        raise ValueError(msg)
    return others[:-1], part, _bound(bound)


@lru_cache(maxsize=256)
def _bound(text: str) -> float:
    """Return the number *text*: spelled in one way, or two bounds may be the same."""
    number = inf if text == "+Inf" else float(text)
    spelled = text in ("+Inf", repr(number), f"{number:g}")
    if not spelled or not number >= 0 or (number == inf and text != "+Inf"):
        msg = f"has the bound {text[:40]}"
        raise ValueError(msg)
    return number
