"""
What to do about each cause of recompiles, in the pages that list the causes.

The advice is that of `jaxmon explain`. In docs/causes.md it is the last cell of a row
that begins with a cause; the rest of the row is written by hand. In the runbook it is
an item of a list.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from jaxmon.catalog import CAUSES
from jaxmon.symptoms.recompiles import recompile_advice


ROOT = Path(__file__).resolve().parent.parent
_CAUSE = rf"`(?P<cause>{'|'.join(CAUSES)})`"
_ROW = re.compile(rf"^(?P<before>\| {_CAUSE} \|.*\|) .* \|$", re.MULTILINE)
_ITEM = re.compile(rf"^- {_CAUSE}: .*(?:\n  .*)*", re.MULTILINE)
PAGES = {
    "docs/causes.md": _ROW,
    "runbooks/JaxmonRecompileStorm.md": _ITEM,
}
_CODE = re.compile(r"(?<!`)(__\w+__|(?:jax|jnp)(?:\.\w+)+(?:\([^)]*\))?|[A-Z_]{9,}=\d)")
_WIDTH = 90


def row(found: re.Match[str]) -> str:
    """Return the row *found* with the advice of today."""
    return f"{found['before']} {_marked_up(found['cause'])} |"


def item(found: re.Match[str]) -> str:
    """Return the item *found* with the advice of today."""
    return textwrap.fill(
        f"- `{found['cause']}`: {_marked_up(found['cause'])}",
        _WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _marked_up(cause: str) -> str:
    return _CODE.sub(r"`\1`", recompile_advice(cause))


def written(text: str, place: re.Pattern[str]) -> str:
    """
    Return *text* with the advice of today in each *place*.

    Raises:
        ValueError: a cause has no place, or several.
    """
    found = [one["cause"] for one in place.finditer(text)]
    if sorted(found) != sorted(CAUSES):
        msg = f"advice on {', '.join(found) or 'no cause'}; have it on each cause, once"
        raise ValueError(msg)
    return place.sub(row if place is _ROW else item, text)


def render() -> dict[str, str]:
    """Return the pages by path; raises as `written`."""
    return {
        page: written((ROOT / page).read_text(), place) for page, place in PAGES.items()
    }
