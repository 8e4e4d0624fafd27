"""Options of commands, made from what is declared in settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, TypeVar

import click

from jaxmon.cli.options import FILE, Number, Whole, collected
from jaxmon.declarations import declared
from jaxmon.settings import Settings


F = TypeVar("F", bound=Callable[..., Any])
Chosen = dict[str, Any]

# By annotation; what is in none of them is text. A file has to exist, since it is read
# at the start; a directory may come later, and so may the permission to read it.
_PATHS: dict[str, click.Path] = {
    "Path": click.Path(file_okay=False, readable=False, path_type=Path),
    "Path | None": FILE,
    "tuple[Path, ...]": click.Path(path_type=Path),
}


def settings(*names: str) -> Callable[[F], F]:
    """
    Add the options of the settings *names*, in that order.

    The command gets their values by name as *chosen*, `None` if not given. They declare
    no variables: `jaxmon.settings.load` reads the environment.
    """
    by_name = {setting.name: setting for setting in fields(Settings)}
    options = [_of_setting(by_name[name]) for name in names]
    return collected("chosen", dict, names, *options)


def options(command: F) -> F:
    """Add the options of the sidecar; *command* gets all by name, as *chosen*."""
    from jaxmon_exporter.options import SidecarOptions

    every = [
        option for option in fields(SidecarOptions) if "declared" in option.metadata
    ]
    names = [option.name for option in every]
    return collected("chosen", dict, names, *map(_of_option, every))(command)


def _of_setting(setting: Field[Any]) -> Callable[[F], F]:
    about, kind = declared(setting), str(setting.type)
    flag = f"--{setting.name.replace('_', '-')}"
    if kind == "bool":
        flag = f"{flag}/--no-{flag[2:]}"
    # Settings that may also be 0 are checked with the others.
    within = None if about.off else about.within
    return click.option(
        flag, setting.name, type=_type(kind, within), default=None, help=about.meaning
    )


def _of_option(option: Field[Any]) -> Callable[[F], F]:
    from jaxmon_exporter.options import PREFIX

    about, kind = declared(option), str(option.type)
    flag = about.flag or f"--{option.name.replace('_', '-')}"
    variable = PREFIX + flag[2:].replace("-", "_").upper()
    default = None if option.default is MISSING else option.default
    return click.option(
        flag,
        option.name,
        type=click.Choice(about.choices)
        if about.choices
        else _PATHS.get(kind) or _type(kind, about.within),
        is_flag=kind == "bool",
        multiple=kind.startswith("tuple"),
        default=default,
        show_default=bool(default) or about.within is not None,
        metavar=about.metavar,
        envvar=about.variable or variable,
        show_envvar=True,
        callback=_checked(about.check) if about.check else None,
        help=about.meaning,
    )


def _type(kind: str, within: tuple[float, float] | None) -> Number | Whole | None:
    if kind == "float":
        return Number(*within) if within else Number()
    if within and kind in ("int", "int | None"):
        return Whole(int(within[0]), int(within[1]))
    return None


def _checked(check: Callable[[Any], Any]) -> Callable[..., Any]:
    def callback(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback
