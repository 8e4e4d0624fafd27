"""Options shared by several commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jaxmon.errors import CommandError, ConfigFileError, SloError


if TYPE_CHECKING:
    from jaxmon.limits import Limits


F = TypeVar("F", bound=Callable[..., Any])

_LABEL = r"([a-zA-Z_][a-zA-Z0-9_]*)=(.+)"


def with_options(*several: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds *several* options in this order."""

    def add(function: F) -> F:
        for option in reversed(several):
            function = option(function)
        return function

    return add


class Number(click.FloatRange):
    """A finite number: click accepts ``nan`` and infinity in any range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """
        Return *value* as a number.

        Raises:
            click.BadParameter: it is not a number, or is out of range.
        """
        _require_ascii(self, value, param, ctx)
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number

    def _describe_range(self) -> str:
        # click would show one without bounds as x<=None.
        if self.min is None and self.max is None:
            return ""
        return super()._describe_range()


class Whole(click.IntRange):
    """A whole number in ASCII digits: Python accepts those of every script."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """
        Return *value* as a number.

        Raises:
            click.BadParameter: it is not a number, or is out of range.
        """
        _require_ascii(self, value, param, ctx)
        return int(super().convert(value, param, ctx))


def seconds_of(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> float | None:
    """
    Return a duration such as ``200ms``, ``1.5s`` or ``10m`` in seconds.

    Raises:
        click.BadParameter: it is none, or longer than a day.
    """
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
    """
    An address of HTTP or HTTPS.

    Args:
        path_follows: a path will be appended, so it must have no query or fragment.
    """

    name = "url"

    def __init__(self, *, path_follows: bool = False) -> None:
        self._path_follows = path_follows

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """
        Return *value* unchanged.

        Raises:
            click.BadParameter: it is invalid.
        """
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
    """
    Return ``now``, or a date or a time in ISO format; UTC unless it has an offset.

    Raises:
        click.BadParameter: it is none of these, or not from 1970 to 2999.
    """
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
    """
    Return the labels given as ``NAME=VALUE``.

    Raises:
        click.BadParameter: one of them is something else.
    """
    found = {}
    for text in values:
        match = re.fullmatch(_LABEL, text)
        if match is None:
            msg = f"{text!r} is not a label; give NAME=VALUE, such as job=web"
            raise click.BadParameter(msg, ctx, param)
        found[match[1]] = match[2]
    return found


def _require_ascii(
    kind: Number | Whole,
    value: Any,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> None:
    if isinstance(value, str) and not value.isascii():
        kind.fail(f"{value!r} is not a number", param, ctx)


RUN_DIR = click.option(
    "--run-dir",
    # We check ourselves whether it can be read, and say what to do about it.
    type=click.Path(path_type=Path, readable=False),
    envvar="JAXMON_RUN_DIR",
    show_envvar=True,
    help="Directory of the agents' sockets; by default this user's run directory.",
)


_CHOSEN = f"{__name__}.chosen"


def from_file(path: Path) -> Limits:
    """
    Return the limits in *path*: JSON, or else a ``slo.yaml``.

    Raises:
        CommandError: it is invalid, or cannot be read.
    """
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
    """
    Return the limits that the command was given, else those of its run directory; on
    the command's thread.
    """
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
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    envvar="JAXMON_LIMITS",
    show_envvar=True,
    expose_value=False,
    callback=_choose,
    help="Judge by the limits in this slo.yaml, or JSON; by default those that the "
    "sidecar of the run directory was given.",
)
