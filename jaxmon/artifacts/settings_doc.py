"""
`docs/settings.md`: every setting of the agent, with its variable and default.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

from jaxmon.artifacts.markdown import page, table
from jaxmon.artifacts.write import HEADER
from jaxmon.settings import PREFIX, Settings


PATH = "docs/settings.md"

_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def render() -> str:
    """
    Return the page, from the fields and the docstring of `Settings`.

    Raises:
        KeyError: a field is not described in the docstring.
    """
    meanings = _meanings()
    rows = [
        (
            f"`{field.name}`",
            f"`{PREFIX}{field.name.upper()}`",
            f"`{field.type}`",
            f"`{field.default!r}`",
            meanings[field.name],
        )
        for field in fields(Settings)
    ]
    return page(
        HEADER,
        "# Settings",
        "Give a setting of the agent to `jaxmon.instrument` by name, or set its\n"
        "variable; an argument wins over the environment. A switch takes `1`, `true`,\n"
        "`yes`, `on` or `0`, `false`, `no`, `off`; where `None` is allowed, so is\n"
        "`none`. A value that cannot be used raises `jaxmon.SettingsError` before\n"
        "anything is hooked.",
        table(("Setting", "Variable", "Type", "Default", "Meaning"), rows),
        "The sidecar is configured on its command line: see\n"
        "[`jaxmon exporter`](cli.md#jaxmon-exporter).",
    )


def _meanings() -> dict[str, str]:
    """
    Return the ``Args`` entries of the docstring of `Settings`, on one line each.
    """
    _, _, entries = (inspect.getdoc(Settings) or "").partition("Args:\n")
    pairs = _ENTRY.findall(entries)
    return {name: _sentence(" ".join(text.split())) for name, text in pairs}


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
