"""
The layers of packages, drawn into docs/contributors/architecture.md.

import-linter holds the imports to the layers in pyproject.toml, so a picture of these
layers is a picture of the imports. A package that it does not describe is an error.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent
PAGE = "docs/contributors/architecture.md"
# A picture is named after the contract that it shows.
_PICTURE = re.compile(
    r"(<!-- layers of (?P<contract>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)
_WIDTH = 76


def layers(contract: str) -> list[list[str]]:
    """Return the names in each layer of *contract*, the highest layer first."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    found = next(one for one in contracts if one["id"] == contract)
    return [
        sorted(name.removeprefix("jaxmon.") for name in re.split(r"\s*[|:]\s*", layer))
        for layer in found["layers"]
    ]


def picture(rows: list[list[str]]) -> Iterator[str]:
    """Yield the lines of a picture: each layer imports only from those below it."""
    yield "```text"
    for number, row in enumerate(rows):
        if number:
            yield "      ↓"
        yield from textwrap.wrap("   ".join(row), _WIDTH)
    yield "```"


def drawn(text: str) -> str:
    """Return *text* with its pictures as they should be."""

    def replacement(block: re.Match[str]) -> str:
        lines = "\n".join(picture(layers(block["contract"])))
        return f"{block[1]}\n{lines}\n\n{block[3]}"

    return _PICTURE.sub(replacement, text)


def unlisted() -> list[str]:
    """Return the packages and modules of jaxmon that stand in no layer."""
    listed = {name.partition(".")[0] for row in layers("packages") for name in row}
    found = {
        path.stem
        for path in (ROOT / "jaxmon").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    return sorted(found - listed - {"__init__"})


def undescribed(text: str) -> list[str]:
    """Return the packages and modules in the pictures that *text* does not mention."""
    prose = _PICTURE.sub("", text)
    return [
        name
        for block in _PICTURE.finditer(text)
        for row in layers(block["contract"])
        for name in row
        if not re.search(rf"`(?:[\w/]*/)?{name}(?:/|\.py)?`", prose)
    ]


def render() -> dict[str, str]:
    """
    Return the page with its pictures, by path.

    Raises:
        ValueError: a package is in no layer, or not described.
    """
    text = (ROOT / PAGE).read_text()
    if outside := unlisted():
        msg = f"no layer in pyproject.toml has {', '.join(outside)}: add each to one"
        raise ValueError(msg)
    if missing := undescribed(text):
        msg = f"{PAGE} does not describe {', '.join(missing)}; add lines"
        raise ValueError(msg)
    return {PAGE: drawn(text)}
