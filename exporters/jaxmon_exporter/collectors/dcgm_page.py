"""
A page of dcgm-exporter, line by line.

It is read with more patience than a page of ours: dcgm-exporter escapes no label
value, so a job's name may hold quotes and commas. Of a label that appears twice the
first counts: those that say which GPU it is stand before all that users can choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jaxmon_exporter.collectors.blank import known


_LINE = re.compile(r"(DCGM_[A-Z0-9_]{1,100})\{(.*)\}[ \t]+(\S{1,64})(?:[ \t]+-?\d+)?")
# A value ends where the next label begins. Split here, a line is read in one pass,
# whatever it holds.
_BEGIN = re.compile(r'(?:^|,)([a-zA-Z_][a-zA-Z0-9_]{0,100}+)="')
_MOST_OF_A_LINE = 8192


@dataclass(frozen=True, slots=True)
class Line:
    """
    One figure.

    Args:
        value: `None` when it is blank.
    """

    field: str
    labels: Mapping[str, str]
    value: float | None


def lines(text: str) -> Iterator[Line | None]:
    """
    Yield the figures of DCGM in *text*, and `None` for each line that is broken.

    Lines that are another exporter's are nobody's concern.
    """
    for text_line in text.split("\n"):
        line = text_line.strip()
        if line.startswith("DCGM_"):
            yield _line(line)


def _line(line: str) -> Line | None:
    match = _LINE.fullmatch(line) if len(line) <= _MOST_OF_A_LINE else None
    if match is None:
        return None
    labels: dict[str, str] = {}
    _, *parts = _BEGIN.split(match[2])
    for name, value in zip(parts[::2], parts[1::2], strict=True):
        if value.endswith('"'):
            labels.setdefault(name, value[:-1])
    try:
        return Line(match[1], labels, known(match[3]))
    except ValueError:
        return None
