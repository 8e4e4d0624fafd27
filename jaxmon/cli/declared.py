"""Options of commands, made from what is declared in settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from jaxmon.cli.options import Number, Whole
from jaxmon.declarations import declared
from jaxmon.settings import Settings


Chosen = dict[str, Any]
_Command = Callable[..., None]

# By annotation; what is in none of them is text. A file has to exist, since it is read
# at the start; a directory may come later, and so may the permission to read it.
_PATHS: dict[str, click.Path] = {
    "Path": click.Path(file_okay=False, readable=False, path_type=Path),
    "Path | None": click.Path(exists=True, dir_okay=False, path_type=Path),
    "tuple[Path, ...]": click.Path(path_type=Path),
}


def settings(*names: str) -> Callable[[_Command], _Command]:
    """
    Add the options of the settings *names*, in that order.

    The command is called with their values by name, `None` if not given. They declare
    no variables: `jaxmon.settings.load` reads the environment.
    """
    known = {one.name: one for one in fields(Settings)}
    return _added([_of_setting(known[name]) for name in names], names)


def options(command: _Command) -> _Command:
    """Add the options of the sidecar; *command* is called with all, by name."""
    from jaxmon_exporter.options import SidecarOptions

    made = {
        option.name: _of_option(option)
        for option in fields(SidecarOptions)
        if "declared" in option.metadata
    }
    return _added(list(made.values()), tuple(made))(command)


def _added(
    made: list[Callable[[_Command], _Command]], names: tuple[str, ...]
) -> Callable[[_Command], _Command]:
    """Return a decorator that adds options and hands their values over together."""

    def decorate(command: _Command) -> _Command:
        @wraps(command)
        def called(**given: Any) -> None:
            command({name: given.pop(name) for name in names}, **given)

        for one in reversed(made):
            one(called)
        return called

    return decorate


def _of_setting(setting: Field[Any]) -> Callable[[_Command], _Command]:
    known, kind = declared(setting), str(setting.type)
    flag = f"--{setting.name.replace('_', '-')}"
    if kind == "bool":
        flag = f"{flag}/--no-{flag[2:]}"
    # Settings that may also be 0 are checked with the others.
    within = None if known.off else known.within
    return click.option(
        flag, setting.name, type=_type(kind, within), default=None, help=known.meaning
    )


def _of_option(option: Field[Any]) -> Callable[[_Command], _Command]:
    from jaxmon_exporter.options import PREFIX

    known, kind = declared(option), str(option.type)
    flag = known.flag or f"--{option.name.replace('_', '-')}"
    variable = PREFIX + flag[2:].replace("-", "_").upper()
    default = None if option.default is MISSING else option.default
    return click.option(
        flag,
        option.name,
        type=click.Choice(known.choices)
        if known.choices
        else _PATHS.get(kind) or _type(kind, known.within),
        is_flag=kind == "bool",
        multiple=kind.startswith("tuple"),
        default=default,
        show_default=bool(default) or known.within is not None,
        metavar=known.metavar,
        envvar=known.variable or variable,
        show_envvar=True,
        callback=_checked(known.check) if known.check else None,
        help=known.meaning,
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
