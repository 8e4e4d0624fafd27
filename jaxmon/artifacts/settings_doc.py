"""`docs/settings.md`: every setting of agent and sidecar, with variable and default."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

import click

from jaxmon.artifacts.markdown import page, table
from jaxmon.artifacts.write import HEADER
from jaxmon.settings import PREFIX, Settings, declared, wanted


PATH = "docs/settings.md"


def render(exporter: click.Command) -> str:
    """Return the page: the fields of `Settings`, then the options of *exporter*."""
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
    rows = [
        (
            f"`{one.name}`",
            f"`{PREFIX}{one.name.upper()}`",
            f"`{one.default!r}`",
            _takes(one),
            declared(one).meaning,
        )
        for one in fields(Settings)
    ]
    return table(("Setting", "Variable", "Default", "Takes", "Meaning"), rows)


def _takes(setting: Field[Any]) -> str:
    words, known = wanted(setting), declared(setting)
    if known.within is None:
        return words
    low, high = known.within
    span = f"{low} to {high}"
    ranged = words if span in words else f"{words}, {span}"
    return f"{ranged}, or 0" if known.off else ranged


def _sidecar(exporter: click.Command) -> str:
    rows = []
    for option in exporter.params:
        if isinstance(option, click.Option) and not option.hidden:
            # Some releases of click keep a sentinel, not None, for "no default".
            default = option.to_info_dict()["default"]
            nothing = default is False or default in (None, (), "")
            shown = "-" if nothing else f"`{default}`"
            variable = f"`{option.envvar}`" if option.envvar else "-"
            rows.append((f"`{option.opts[0]}`", variable, shown, option.help or ""))
    return table(("Option", "Variable", "Default", "Meaning"), rows)
