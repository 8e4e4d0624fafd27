"""`docs/settings.md`: every setting of agent and sidecar, with variable and default."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import click

from jaxmon.artifacts.markdown import page, table
from jaxmon.artifacts.write import HEADER
from jaxmon.settings import PREFIX, Settings


PATH = "docs/settings.md"

_ENTRY = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


def render(exporter: click.Command) -> str:
    """
    Return the page: the fields of `Settings`, then the options of *exporter*.

    Raises:
        KeyError: a field is not described in the docstring of `Settings`.
    """
    return page(
        HEADER,
        "# Settings",
        "## Agent",
        "Give a setting to `jaxmon.instrument` by name, or set its variable; an\n"
        "argument wins over the environment. A switch takes `1`, `true`, `yes`, `on`\n"
        "or `0`, `false`, `no`, `off`; where `None` is allowed, so is `none`. A value\n"
        "that cannot be used raises `jaxmon.SettingsError` before anything is hooked.",
        _agent(),
        "## Sidecar",
        "Options of [`jaxmon exporter`](cli.md#jaxmon-exporter); an option wins over\n"
        "its variable.",
        _sidecar(exporter),
    )


def _agent() -> str:
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
    return table(("Setting", "Variable", "Type", "Default", "Meaning"), rows)


def _sidecar(exporter: click.Command) -> str:
    rows = []
    for option in exporter.params:
        if isinstance(option, click.Option) and not option.hidden:
            # Some releases of click keep a sentinel, not None, for "no default".
            default = option.to_info_dict()["default"]
            shown = "-" if default in (None, False, ()) else f"`{default}`"
            variable = f"`{option.envvar}`" if option.envvar else "-"
            rows.append((f"`{option.opts[0]}`", variable, shown, option.help or ""))
    return table(("Option", "Variable", "Default", "Meaning"), rows)


def _meanings() -> dict[str, str]:
    """Return the ``Args`` entries of the docstring of `Settings`, on one line each."""
    _, _, entries = (inspect.getdoc(Settings) or "").partition("Args:\n")
    pairs = _ENTRY.findall(entries)
    return {name: _sentence(" ".join(text.split())) for name, text in pairs}


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
