"""What ``jaxmon explain`` prints in colour: headings, and findings by urgency."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from jaxmon.symptoms.findings import about
from jaxmon.symptoms.symptom import Finding, Urgency


COLOURS = {Urgency.FAILURE: "red", Urgency.TIME: "yellow", Urgency.HINT: "cyan"}
BROKEN = COLOURS[Urgency.FAILURE]
"""Of a process that does not respond."""

_HEADING = r"[A-Z][A-Z ]{3,}[A-Z](?=$|[ :(])"
_NUMBERED = r"  ( ?\d+)\. "
# Evidence is indented further, and advice says that it is.
_VERDICT = r"     (?! )(?!Advice: |To win back: |panel |jaxmon )"


class Painted(NamedTuple):
    """A line and how it looks; *colour* is one that click knows."""

    text: str
    colour: str | None = None
    bold: bool = False


BLANK = Painted("")


def painted(lines: Iterable[str], findings: Sequence[Finding]) -> Iterator[Painted]:
    """Yield the *lines* of a report that has these *findings*."""
    among, colour = False, None
    for number, line in enumerate(lines):
        if number == 0 or re.match(_HEADING, line):
            among, colour = line.startswith("FINDINGS"), None
            yield Painted(line, bold=True)
        elif among and (found := re.match(_NUMBERED, line)):
            place = int(found[1]) - 1
            urgency = about(findings[place]).urgency if place < len(findings) else None
            colour = None if urgency is None else COLOURS.get(urgency)
            yield Painted(line, colour, bold=True)
        elif colour and re.match(_VERDICT, line):
            yield Painted(line, colour, bold=True)
        else:
            colour = None
            yield Painted(line)
