"""
Text that would do something to a terminal, and a check that what is printed does not.
"""

from __future__ import annotations

import unicodedata


HOSTILE = (
    "a\x1b[31mred\x1b]0;title\x07\x9b2J\x1b[8m\u202eesrever\u2066\u200b\u00ad"
    "\r\nError: forged\n2026-01-01 ERROR forged\x85forged\u2028forged\x0bforged\x00"
    "\x08\x7f\ud800e\u0301\u0e01\u0e49\u0e49\u0e49"
)
"""Colours, a title, bidirectional overrides, line breaks of each kind, a surrogate."""


def harmful(text: str) -> list[str]:
    """
    Return the lines of *text* that would do more than show characters in one line, or
    begin as an attacker wants.
    """
    return [
        line
        for line in text.split("\n")
        if not line.isprintable()
        or line.startswith(("forged", "Error: forged", "2026-01-01 ERROR"))
        or any(unicodedata.category(one).startswith("M") for one in line)
    ]
