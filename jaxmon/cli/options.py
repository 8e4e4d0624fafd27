"""Options shared by several commands."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from jaxmon.errors import CommandError, ConfigFileError, SloError
from jaxmon.settings import declared


if TYPE_CHECKING:
    from jaxmon.limits import Limits

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

_CHOSEN = f"{__name__}.limits"
_LABEL = r"([a-zA-Z_][a-zA-Z0-9_]*)=(.+)"


def with_options(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds *several* options in this order."""

    def add(function: F) -> F:
        for option in reversed(several):
            function = option(function)
        return function

    return add


def collected(
    name: str, make: Callable[..., Any], names: Iterable[str], *several: Any
) -> Callable[[F], F]:
    """
    Return a decorator that adds *several* options; the command gets those called
    *names* as *name*, as what *make* makes of them.
    """

    def add(function: F) -> F:
        @functools.wraps(function)
        def called(**given: Any) -> Any:
            made = make(**{option: given.pop(option) for option in names})
            return function(**{name: made}, **given)

        return cast("F", with_options(*several)(called))

    return add


class _Ascii:
    """Python accepts the digits of every script; users get those of ASCII."""

    def convert(
        self: Any, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        """Return *value* as a number."""
        if isinstance(value, str) and not value.isascii():
            self.fail(f"{value!r} is not a number", param, ctx)
        number = super().convert(value, param, ctx)  # type: ignore[misc] # of click
        if not math.isfinite(number):  # which click accepts in any range
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Number(_Ascii, click.FloatRange):
    """A finite number."""

    def _describe_range(self) -> str:
        # click would show one without bounds as x<=None.
        unbounded = self.min is None and self.max is None
        return "" if unbounded else super()._describe_range()


class Whole(_Ascii, click.IntRange):
    """A whole number."""


def seconds_of(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """Return a duration such as ``200ms``, ``1.5s`` or ``10m`` in seconds."""
    if value is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", value, re.ASCII)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    seconds = float(match[1]) * units[match[2]] if match else 0.0
    if not 0 < seconds <= 86_400:  # noqa: PLR2004 - a day
        msg = f"{value[:40]!r} is not a duration such as 200ms, 1s or 10m"
        raise click.BadParameter(msg, ctx, param)
    return seconds


class Url(click.types.StringParamType):
    """An address of HTTP; it has no query or fragment if a *path_follows*."""

    name = "url"

    def __init__(self, *, path_follows: bool = False) -> None:
        self._path_follows = path_follows

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return *value* unchanged."""
        from jaxmon.host.http.urls import parts_of

        address = str(value)
        try:
            parts = parts_of(address)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if self._path_follows and (parts.query or parts.fragment):
            self.fail("a path is appended: give a URL without ? and #", param, ctx)
        return address


RUNBOOK_BASE = click.option(
    "--runbook-base",
    type=Url(),
    metavar="URL",
    help="Base URL of the runbooks; NAME.md is appended.",
)


def moment(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> datetime | None:
    """Return ``now``, or a time in ISO format, of UTC unless it has an offset."""
    if value is None:
        return None
    if value == "now":
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        msg = (
            f"{value!r} is not a date or time, such as 2026-05-18, 2026-05-18T09:00 "
            "or now"
        )
        raise click.BadParameter(msg, ctx, param) from None
    if not 1970 <= found.year < 3000:  # noqa: PLR2004 - days before and after exist
        msg = f"{value!r} is out of range; give a time from 1970 to 2999"
        raise click.BadParameter(msg, ctx, param)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def labels(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Return the labels given as ``NAME=VALUE``."""
    found = {}
    for text in values:
        match = re.fullmatch(_LABEL, text)
        if match is None:
            msg = f"{text!r} is not a label; give NAME=VALUE, such as job=web"
            raise click.BadParameter(msg, ctx, param)
        found[match[1]] = match[2]
    return found


RUN_DIR = click.option(
    "--run-dir",
    # We check ourselves whether it can be read, and say what to do about it.
    type=click.Path(path_type=Path, readable=False),
    envvar="JAXMON_RUN_DIR",
    show_envvar=True,
    help="Directory of the agents' sockets; by default this user's run directory.",
)


def from_file(path: Path) -> Limits:
    """Return the limits in *path*: JSON, or else a ``slo.yaml``."""
    from jaxmon.limits import shared

    try:
        if path.suffix == ".json":
            return shared.read(path)
        from jaxmon_alerts import slo

        return slo.load(path).limits
    except SloError as error:
        raise CommandError(str(error)) from error
    except (OSError, ConfigFileError) as error:
        msg = f"{path}: {error}"
        raise CommandError(msg) from error


def limits_of(run_dir: Path | None) -> Limits:
    """Return the command's limits, else those of its run directory; on its thread."""
    from jaxmon.limits import shared

    return chosen() or shared.current(run_dir)


def chosen() -> Limits | None:
    """Return the limits that the command was given, on the command's thread."""
    found: Limits | None = click.get_current_context().meta.get(_CHOSEN)
    return found


def _choose(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        context.meta[_CHOSEN] = from_file(path)


LIMITS = click.option(
    "--limits",
    type=FILE,
    envvar="JAXMON_LIMITS",
    show_envvar=True,
    expose_value=False,
    callback=_choose,
    help="Judge by the limits in this slo.yaml, or JSON; by default those that the "
    "sidecar of the run directory was given.",
)


# By annotation; what is in none of them is text. A file has to exist, since it is read
# at the start; a directory may come later, and so may the permission to read it.
_PATHS: dict[str, click.Path] = {
    "Path": click.Path(file_okay=False, readable=False, path_type=Path),
    "Path | None": FILE,
    "tuple[Path, ...]": click.Path(path_type=Path),
}


def with_settings(*names: str) -> Callable[[F], F]:
    """
    Add the options of the settings *names*; their values are in *chosen*, `None` if not
    given. They declare no variables: `jaxmon.settings.load` reads the environment.
    """
    from jaxmon.settings import Settings

    by_name = {setting.name: setting for setting in fields(Settings)}
    options = [_of_setting(by_name[name]) for name in names]
    return collected("chosen", dict, names, *options)


def with_sidecar_options(command: F) -> F:
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
