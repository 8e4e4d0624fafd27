"""`jaxmon/options.py`: the settings as keyword arguments, for type checkers."""

from __future__ import annotations

from dataclasses import fields

from jaxmon.artifacts.write import WARNING
from jaxmon.declarations import DIRECTORY
from jaxmon.settings import Settings


PATH = "jaxmon/options.py"

_HEAD = f'''"""The settings as keyword arguments, for type checkers."""

# {WARNING}

from __future__ import annotations

from os import PathLike
from typing import TypedDict


class Options(TypedDict, total=False):
    """What `jaxmon.instrument` takes; see `docs/settings.md`."""

'''


def render() -> str:
    """Return the module."""
    kinds = {one.name: str(one.type) for one in fields(Settings)}
    lines = [
        f"    {name}: {'str | PathLike[str] | None' if kind == DIRECTORY else kind}\n"
        for name, kind in kinds.items()
    ]
    return _HEAD + "".join(lines)
