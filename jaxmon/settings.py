"""
What a user may choose, in one place.

Each field can be given to `jaxmon.instrument` by name or in the environment as
``JAXMON_<NAME>``; an argument wins over the environment. See `docs/settings.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict

from jaxmon.errors import SettingsError


PREFIX = "JAXMON_"
DEFAULT_PORT = 9466
# Agents that look for a free port leave it to the sidecar.
SIDECAR_PORT = 9467

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_NONE = ("", "none")

_SWITCHES = (
    "enabled",
    "socket",
    "calls",
    "programs",
    "transfers",
    "nonfinite",
    "event_values",
    "report",
    "device_figures",
    "profile_gpu",
)
_DIRECTORIES = ("run_dir", "report_dir", "figures_dir")
_INTERVALS = ("memory_interval", "memory_lines_interval", "shadow_interval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """
    Settings of the in-process agent.

    Args:
        enabled: `False` makes `jaxmon.instrument` do nothing at all.
        host: address that the metrics server binds.
        port: TCP port; 0 takes any free one, `None` opens none. A busy port is
            left alone and the next free one taken, but not 9467, the sidecar's.
        socket: serve on a Unix socket in the run directory, for the sidecar.
        run_dir: directory of the sockets; `None` finds one (see `jaxmon.rundir`).
        calls: count calls and hits (the call layer); off, a cached call costs
            nothing and hits are not exported.
        max_functions: most function labels; further functions share ``other``.
        memory_interval: seconds between two looks at device memory and live
            arrays; 0 turns them off.
        memory_lines_interval: seconds between two looks at the source lines that
            hold memory; 0 turns them off, and leak detection with them.
        leak_window: seconds of growth without a pause that make a leak.
        programs: read size, cost and fingerprint of each compiled program.
        sample_rate: calls of each function that are timed, per second; 0 turns
            timing off, and the checks of sampled calls with it.
        transfers: observe transfers between host and device.
        nonfinite: count non-finite values in the outputs of sampled calls.
        shadow_interval: seconds between two repetitions of a sampled call, which
            compare the outputs; 0 turns them off. They cost device time.
        event_values: keep values of static arguments in the local event log.
        report: print a summary when the process ends.
        report_dir: directory for reports of out-of-memory errors; `None` takes
            ``jaxmon-reports`` in the directory for temporary files.
        figures_dir: directory in which the agent leaves the figures of each function
            as it stops, for `jaxmon baseline`; `None` leaves none.
        device_figures: ask NVML about the GPUs of this process, for a sidecar that has
            no driver in its container.
        profile_gpu: let `jaxmon profile` trace GPUs, which has crashed programs.
    """

    enabled: bool = True
    host: str = "127.0.0.1"
    port: int | None = DEFAULT_PORT
    socket: bool = True
    run_dir: str | None = None
    calls: bool = True
    max_functions: int = 200
    memory_interval: float = 10.0
    memory_lines_interval: float = 60.0
    leak_window: float = 600.0
    programs: bool = True
    sample_rate: float = 1.0
    transfers: bool = True
    nonfinite: bool = False
    shadow_interval: float = 0.0
    event_values: bool = True
    report: bool = False
    report_dir: str | None = None
    figures_dir: str | None = None
    device_figures: bool = False
    profile_gpu: bool = False

    def __post_init__(self) -> None:
        for name in _SWITCHES:
            _require(name, getattr(self, name), bool, "True or False")
        _require("host", self.host, str, "a host name or address")
        if not self.host.isprintable():  # it stands in logs and errors
            msg = f"host={self.host!r} cannot be used; give a host name or address"
            raise SettingsError(msg)
        if self.port is not None:
            _require("port", self.port, int, "0 to 65535, or None for no TCP port")
            _within("port", self.port, 0, 65535)
        for name in _DIRECTORIES:
            if getattr(self, name) is not None:
                _require(name, getattr(self, name), str, "a directory, or None")
        _require("max_functions", self.max_functions, int, "1 to 10000")
        _within("max_functions", self.max_functions, 1, 10_000)
        for name in _INTERVALS:
            _require(name, getattr(self, name), (int, float), "seconds")
            if getattr(self, name) != 0:
                _within(name, getattr(self, name), 0.1, 86_400)
        _require("leak_window", self.leak_window, (int, float), "seconds")
        _within("leak_window", self.leak_window, 1, 604_800)
        _require("sample_rate", self.sample_rate, (int, float), "calls a second")
        _within("sample_rate", self.sample_rate, 0, 1000)


class Options(TypedDict, total=False):
    """The settings as keyword arguments, for type checkers."""

    enabled: bool
    host: str
    port: int | None
    socket: bool
    run_dir: str | os.PathLike[str] | None
    calls: bool
    max_functions: int
    memory_interval: float
    memory_lines_interval: float
    leak_window: float
    programs: bool
    sample_rate: float
    transfers: bool
    nonfinite: bool
    shadow_interval: float
    event_values: bool
    report: bool
    report_dir: str | os.PathLike[str] | None
    figures_dir: str | os.PathLike[str] | None
    device_figures: bool
    profile_gpu: bool


def load(
    options: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> Settings:
    """
    Return settings from *options*, then the environment, then the defaults.

    Raises:
        SettingsError: an unknown name or a value that cannot be used. Unknown
            ``JAXMON_*`` variables are left alone: other parts of jaxmon have theirs.
    """
    environ = os.environ if environ is None else environ
    known = {field.name: field for field in fields(Settings)}
    options = dict(options)
    for name in _DIRECTORIES:
        if isinstance(options.get(name), os.PathLike):
            options[name] = os.fspath(options[name])
    if unknown := sorted(set(options) - set(known)):
        msg = (
            f"unknown setting {', '.join(map(repr, unknown))}; "
            f"settings are {', '.join(known)}"
        )
        raise SettingsError(msg)
    values = {
        name: _parse(name, str(field.type), environ[PREFIX + name.upper()])
        for name, field in known.items()
        if PREFIX + name.upper() in environ and name not in options
    }
    return Settings(**{**values, **options})


def _parse(name: str, kind: str, text: str) -> object:
    """Return *text* as a value of the field's annotation *kind*."""
    variable, word = PREFIX + name.upper(), text.strip().lower()
    if kind.endswith("| None") and word in _NONE:
        return None
    if kind == "bool":
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        allowed = ", ".join((*_TRUE, *_FALSE))
        msg = f"{variable}={text!r} is not a switch; use one of {allowed}"
        raise SettingsError(msg)
    number = {"int": int, "int | None": int, "float": float}.get(kind)
    if number is None:
        return text
    try:
        # Python takes the digits of any script.
        return number(word if word.isascii() else "")
    except ValueError:
        wanted = "a whole number" if number is int else "a number"
        msg = f"{variable}={text!r} is not {wanted}; give one or unset it"
        raise SettingsError(msg) from None


def _require(
    name: str, value: object, kind: type | tuple[type, ...], allowed: str
) -> None:
    # A bool is an int to Python, not to a user.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        msg = f"{name}={value!r} cannot be used; give {allowed}"
        raise SettingsError(msg)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        msg = f"{name}={value!r} is out of range; give {low} to {high}"
        raise SettingsError(msg)
