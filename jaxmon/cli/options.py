"""How commands and their options are declared, and options that several have."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from jaxmon.cli import output
from jaxmon.errors import CommandError, ConfigFileError, raised
from jaxmon.settings import declared, described, meanings


if TYPE_CHECKING:
    from jaxmon.limits import Limits

F = TypeVar("F", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
DIRECTORY = click.Path(file_okay=False, path_type=Path)

_CHOSEN = f"{__name__}.limits"
# Where exit codes or examples begin; click keeps lines after a backspace.
_ENDING = r"(?m)^(?=(?:Endpoints|Exit codes|Examples?)[^\n]*:$)"
_LABEL = r"([a-zA-Z_][a-zA-Z0-9_]*)=(.+)"


class Parameter(NamedTuple):
    """The default of a parameter: what declares it to click, with its meaning."""

    add: Callable[[str, str], Callable[[F], F]]


def subcommand(
    group: Any = click, name: str | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """
    Return a decorator that makes a command, of *group* if it is one of several. The
    defaults of its parameters say how they are declared; its docstring is the help, in
    which ``Options:`` says what each is for, and what comes after is printed as it is.
    What it returns is the exit code.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        text = inspect.cleandoc(function.__doc__ or "")
        about, *rest = re.split(_ENDING, text, maxsplit=1)
        function.__doc__, texts = described(about, "Options")
        declared = inspect.signature(function).parameters
        function = _exits(function)
        if unknown := sorted(texts.keys() - declared):
            msg = f"{function.__name__} has no options {unknown}; correct its docstring"
            raise ValueError(msg)
        for key in reversed(declared):
            if isinstance(added := declared[key].default, Parameter):
                function = added.add(key, texts.get(key, ""))(function)
        if rest:
            above = attributes.get("epilog", "").strip("\n")
            parts = [above, *(f"\b\n{part}" for part in rest[0].split("\n\n"))]
            attributes["epilog"] = "\n\n".join(filter(None, parts))
        made: click.Command = group.command(name, **attributes)(function)
        return made

    return decorate


def _exits(function: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(function)
    def called(**given: Any) -> None:
        if code := function(**given):
            raise click.exceptions.Exit(code)

    return called


def option(kind: Any, *flags: str, meaning: str = "", **given: Any) -> Any:
    """
    Return the default of a parameter that is an option of this *kind*; *flags* are
    derived from its name, and what is *given* is click's. Help shows defaults and
    variables.
    """

    def add(name: str, described: str) -> Callable[[F], F]:
        return click.option(
            *(flags or [f"--{name.replace('_', '-')}"]),
            name,
            type=kind,
            help=meaning or described,
            show_envvar="envvar" in given,
            **{"show_default": given.get("default") not in (None, ""), **given},
        )

    return Parameter(add)


def flag(*flags: str, meaning: str = "") -> Any:
    """Return the default of a parameter that is a flag."""
    return option(None, *flags, meaning=meaning, is_flag=True)


def argument(kind: Any = str, **given: Any) -> Any:
    """Return the default of a parameter that is an argument."""
    return Parameter(lambda name, _: click.argument(name, type=kind, **given))


WORKER = argument(required=False)


def printed(*, private: bool = False) -> Any:
    """
    Return the default of ``as_json`` of a command that prints a result: as text, or as
    JSON with ``--json``; and with ``--out``, to a file, which only its owner can read
    if *private*.
    """

    def add(name: str, meaning: str) -> Callable[[F], F]:
        def wrapped(function: F) -> F:
            @functools.wraps(function)
            def called(*, out: Path | None, **given: Any) -> Any:
                if out is not None and given.get("watch"):
                    msg = "--watch prints again and again; omit it or --out"
                    raise click.UsageError(msg)
                with output.written(out, private=private):
                    return function(**given)

            whose = ", for its owner only" if private else ""
            file = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
            meant = f"Write to this file{whose}, instead of standard output."
            found = click.option("--out", type=file, help=meant)(cast("F", called))
            meant = meaning or "Print everything as JSON."
            return click.option("--json", name, is_flag=True, help=meant)(found)

        return wrapped

    return Parameter(add)


AS_JSON = printed()
OF_PROCESS = printed(private=True)


def beside(parameter: Any, hidden: Callable[[F], F]) -> Any:
    """Return *parameter* with a *hidden* option after it, which the command lacks."""
    return Parameter(lambda *about: lambda f: parameter.add(*about)(hidden(f)))


def collected(make: Callable[..., Any], **several: Any) -> Any:
    """Return the default of a parameter that *make* makes of others, or of its own."""
    texts: dict[str, str] = {}
    if not several:
        texts = described(inspect.getdoc(make) or "", "Options")[1]
        declared = inspect.signature(make).parameters
        several = {key: declared[key].default for key in declared}

    def add(name: str, _: str) -> Callable[[F], F]:
        def wrapped(function: F) -> F:
            @functools.wraps(function)
            def called(**given: Any) -> Any:
                made = make(**{key: given.pop(key) for key in several})
                return function(**{name: made}, **given)

            found = cast("F", called)
            for key, parameter in reversed(several.items()):
                found = parameter.add(key, texts.get(key, ""))(found)
            return found

        return wrapped

    return Parameter(add)


class Parsed(click.types.StringParamType):
    """A text that *parse* turns into a value, or rejects with a `ValueError`."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, *where: Any) -> Any:
        """Return what a text stands for; click may pass what it had before."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), *where)


class _Ascii:
    """Python accepts the digits of every script; users get those of ASCII."""

    def convert(self: Any, value: Any, *where: Any) -> Any:
        """Return *value* as a number."""
        if isinstance(value, str) and not value.isascii():
            self.fail(f"{value!r} is not a number", *where)
        number = super().convert(value, *where)  # type: ignore[misc] # of click
        if not math.isfinite(number):  # which click accepts in any range
            self.fail(f"{value!r} is not a finite number", *where)
        return number


class Number(_Ascii, click.FloatRange):
    """A finite number."""

    def _describe_range(self) -> str:
        # click would show one without bounds as x<=None.
        unbounded = self.min is None and self.max is None
        return "" if unbounded else super()._describe_range()


class Whole(_Ascii, click.IntRange):
    """A whole number."""


def _seconds(value: str) -> float:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)", value, re.ASCII)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    seconds = float(match[1]) * units[match[2]] if match else 0.0
    if not 0 < seconds <= 86_400:  # noqa: PLR2004 - a day
        msg = f"{value[:40]!r} is not a duration such as 200ms, 1s or 10m"
        raise ValueError(msg)
    return seconds


SECONDS = Parsed("duration", _seconds)
"""A duration such as ``200ms``, ``1.5s`` or ``10m``, in seconds."""


def _url(value: str, *, path_follows: bool = False) -> str:
    from jaxmon.host.http.urls import parts_of

    parts = parts_of(value)
    if path_follows and (parts.query or parts.fragment):
        msg = "a path is appended: give a URL without ? and #"
        raise ValueError(msg)
    return value


URL = Parsed("url", _url)
BASE_URL = Parsed("url", functools.partial(_url, path_follows=True))

RUNBOOK_BASE = option(URL, meaning="Base URL of the runbooks; NAME.md is appended.")


def _moment(value: str) -> datetime:
    if value == "now":
        return datetime.now(UTC)
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        msg = (
            f"{value!r} is not a date or time, such as 2026-05-18, 2026-05-18T09:00 "
            "or now"
        )
        raise ValueError(msg) from None
    if not 1970 <= found.year < 3000:  # noqa: PLR2004 - days before and after exist
        msg = f"{value!r} is out of range; give a time from 1970 to 2999"
        raise ValueError(msg)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


MOMENT = Parsed("time", _moment)
"""``now``, or a time in ISO format, of UTC unless it has an offset."""


def _label(text: str) -> tuple[str, str]:
    match = re.fullmatch(_LABEL, text)
    if match is None:
        msg = f"{text!r} is not a label; give NAME=VALUE, such as job=web"
        raise ValueError(msg)
    return match[1], match[2]


LABEL = Parsed("name=value", _label)
"""A label with its value."""


RUN_DIR = option(
    # We check ourselves whether it can be read, and say what to do about it.
    click.Path(path_type=Path, readable=False),
    meaning="Directory of the agents' sockets; by default this user's run directory.",
    envvar="JAXMON_RUN_DIR",
)


def from_file(path: Path) -> Limits:
    """Return the limits in *path*: JSON, or else a ``slo.yaml``."""
    from jaxmon.limits import shared

    with raised(CommandError, path, OSError, ConfigFileError):
        if path.suffix == ".json":
            return shared.read(path)
        from jaxmon_alerts import slo

        return slo.load(path).limits


def limits_of(run_dir: Path | None) -> Limits:
    """Return the command's limits, else those of its run directory; on its thread."""
    from jaxmon.cli.workers import directory_of
    from jaxmon.limits import shared

    return chosen() or shared.current(directory_of(run_dir))


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

JUDGED_RUN_DIR = beside(RUN_DIR, LIMITS)
"""That of a command that judges what it finds there, by the limits that it is given."""


# By annotation; what is in none of them is text. A file has to exist, since it is read
# at the start; a directory may come later, and so may the permission to read it.
_PATHS: dict[str, click.Path] = {
    "Path": click.Path(file_okay=False, readable=False, path_type=Path),
    "Path | None": FILE,
    "tuple[Path, ...]": click.Path(path_type=Path),
}


def settings(*names: str) -> Any:
    """Declare options of the settings *names*, as a dict; `None` if not given."""
    from jaxmon.settings import Settings

    by_name = {setting.name: setting for setting in fields(Settings)}
    about = meanings(Settings)
    return collected(
        dict,
        **{name: _of_setting(by_name[name], about.get(name, "")) for name in names},
    )


def sidecar_options() -> Any:
    """Declare the options of the sidecar, as a dict of values by name."""
    from jaxmon_exporter.options import SidecarOptions

    about = meanings(SidecarOptions)
    every = {
        option.name: _of_option(option, about.get(option.name, ""))
        for option in fields(SidecarOptions)
        if "declared" in option.metadata
    }
    return collected(dict, **every)


def _of_setting(setting: Field[Any], meaning: str) -> Any:
    about, kind = declared(setting), str(setting.type)
    flag = f"--{setting.name.replace('_', '-')}"
    both = [f"{flag}/--no-{flag[2:]}"] if kind == "bool" else []
    # Settings that may also be 0 are checked with the others.
    within = None if about.off else about.within
    return option(_type(kind, within), *both, meaning=meaning, default=None)


def _of_option(declaration: Field[Any], meaning: str) -> Any:
    from jaxmon_exporter.options import PREFIX

    about, kind = declared(declaration), str(declaration.type)
    flag = about.flag or f"--{declaration.name.replace('_', '-')}"
    default = None if declaration.default is MISSING else declaration.default
    return option(
        click.Choice(about.choices)
        if about.choices
        else _PATHS.get(kind) or _type(kind, about.within),
        flag,
        meaning=meaning,
        is_flag=kind == "bool",
        multiple=kind.startswith("tuple"),
        default=default,
        show_default=bool(default) or about.within is not None,
        metavar=about.metavar,
        envvar=about.variable or PREFIX + flag[2:].replace("-", "_").upper(),
        callback=_checked(about.check) if about.check else None,
    )


def _type(kind: str, within: tuple[float, float] | None) -> Number | Whole | None:
    if kind == "float":
        return Number(*within) if within else Number()
    if within and kind in ("int", "int | None"):
        return Whole(int(within[0]), int(within[1]))
    return None


def _checked(check: Callable[[Any], Any]) -> Callable[..., Any]:
    def callback(_context: click.Context, _option: click.Parameter, value: Any) -> Any:
        with raised(click.BadParameter, "", ValueError):
            return check(value)

    return callback
