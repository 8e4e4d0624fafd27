"""Text from elsewhere in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from jaxmon.host.formats.layout import clean


# Entities are no markup for any renderer, and end no cell. HTML, math and mentions have
# no other escape that all renderers know; a backslash is easier to read.
_SPECIAL = str.maketrans(
    {
        **{character: f"&#{ord(character)};" for character in r"&<>|\~$#@"},
        **{character: rf"\{character}" for character in "`*[]"},
    }
)
# Not within words: `jit_step`.
_UNDERSCORE = r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"
# What some renderers make a link of, and what begins a list.
_ADDRESS = r"(?i)(?<=[a-z]):(?=//)|(?<=www)\.|(?<=mailto):"
_ITEM = r"^(?:[-+]|\d+[.)])(?= |$)"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with cells of untrusted text."""
    lines = [
        _row(map(escaped, head)),
        _row("---" for _ in head),
        *(_row(map(escaped, row)) for row in rows),
    ]
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Return untrusted *text* as one line that shows as it is, anywhere."""
    line = " ".join(clean(text).split()).translate(_SPECIAL)
    line = re.sub(_UNDERSCORE, r"\\_", line)
    line = re.sub(_ADDRESS, lambda match: f"&#{ord(match[0])};", line)
    if len(line) > 1 and re.match(_ITEM, line):
        line = f"&#{ord(line[0])};{line[1:]}"
    return line


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
