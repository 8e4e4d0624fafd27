"""Secrets on command lines and in texts, which must not get into a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jaxmon.http.redaction import Secrets


HIDDEN = "[secret]"

_NAME = r"[\w.-]*(?:token|secret|passw|pwd|api[_-]?key|access[_-]?key|credential|auth)"
# --token=VALUE, DB_PASSWORD=VALUE, --api-key VALUE
_OPTION = (
    rf"(?i)(?P<name>(?<!\S)-{{0,2}}{_NAME}[\w.-]*)(?P<sign>=|\s+(?!-))(?P<value>\S+)"
)
_ANYWHERE = (
    r"(?<=://)(?P<user>[^\s:/@]*):(?P<password>[^\s/@]+)(?=@)",
    r"\b(?:hf_|gh[pousr]_|glpat-|xox[abprs]-|sk-)[\w-]{16,}",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
)
# Anything shorter occurs in ordinary words.
_LEAST = 6


def command_line(text: str) -> str:
    """Return the command line *text* without values that look like secrets."""
    hidden = re.sub(_OPTION, lambda m: f"{m['name']}{m['sign']}{HIDDEN}", text)
    return anywhere(hidden)


def anywhere(text: str) -> str:
    """Return any *text* without passwords in URLs and tokens of well-known forms."""
    url, *tokens = _ANYWHERE
    text = re.sub(url, lambda match: f"{match['user']}:{HIDDEN}", text)
    for pattern in tokens:
        text = re.sub(pattern, HIDDEN, text)
    return text


def secrets_of(*command_lines: str) -> Secrets:
    """Return the values on *command_lines* that look like secrets."""
    found = {one for line in command_lines for one in _values(line)}
    return Secrets(*sorted(found), hidden=HIDDEN)


def _values(line: str) -> Iterator[str]:
    values = [match["value"] for match in re.finditer(_OPTION, line)]
    values += [match["password"] for match in re.finditer(_ANYWHERE[0], line)]
    yield from (one for one in values if len(one) >= _LEAST)
