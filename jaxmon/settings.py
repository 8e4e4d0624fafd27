"""
User settings.

Each field can be given to `jaxmon.instrument` by name or in the environment as
``JAXMON_<NAME>``; arguments take precedence over the environment. Values are validated
against the declarations here; `docs/settings.md`, `jaxmon.options` and options of
commands are derived from them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from jaxmon.errors import SettingsError


PREFIX = "JAXMON_"
DEFAULT_PORT = 9466
# Agents looking for a free port leave it to the sidecar.
SIDECAR_PORT = 9467
RUNBOOKS = "https://github.com/jaxmon/jaxmon/blob/main/runbooks/"

DIRECTORY = "str | None"
"""The annotation of directories, and of nothing else."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_NONE = ("", "none")

# Defaults where nothing runs between invocations.
_FROZEN: Mapping[str, Any] = {
    "port": None,
    "socket": False,
    "history": False,
    "memory_interval": 0.0,
    "memory_lines_interval": 0.0,
    "sample_rate": 0.0,
    "time_interval": 0.0,
}

# Types accepted for each annotation, and their description.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "bool": ((bool,), "True or False"),
    "bool | None": ((bool,), "True, False or None"),
    "int": ((int,), ""),
    "int | None": ((int,), ""),
    "float": ((int, float), ""),
    "str": ((str,), ""),
    DIRECTORY: ((str,), "a directory, or None"),
}


class Declared:
    """
    Metadata of a setting besides its name, type and default.

    Args:
        meaning: in sentences.
        give: description of valid values, if type and *within* do not say it.
        within: the lowest and the highest number.
        off: whether 0 is valid as well.
        among: the words of which valid values are lists.
    """

    __slots__ = ("among", "give", "meaning", "off", "within")

    def __init__(
        self,
        meaning: str,
        give: str,
        within: tuple[float, float] | None,
        *,
        off: bool,
        among: tuple[str, ...],
    ) -> None:
        self.meaning = meaning
        self.give = give
        self.within = within
        self.off = off
        self.among = among


def declared(setting: Field[Any]) -> Declared:
    """Return the metadata of a field of `Settings`."""
    known: Declared = setting.metadata["declared"]
    return known


def _setting(  # noqa: PLR0913 - each is a word of a declaration
    meaning: str,
    *,
    default: object,
    give: str = "",
    within: tuple[float, float] | None = None,
    off: bool = False,
    among: tuple[str, ...] = (),
) -> Any:
    known = Declared(meaning, give, within, off=off, among=among)
    return field(default=default, metadata={"declared": known})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of the in-process agent."""

    enabled: bool = _setting("`False` disables jaxmon.", default=True)
    host: str = _setting(
        "Address that the metrics server binds.",
        default="127.0.0.1",
        give="a host name or address",
    )
    port: int | None = _setting(
        "TCP port; 0 means any free port. If the port is in use, the next free "
        "one is used, except 9467, the sidecar's.",
        default=DEFAULT_PORT,
        give="0 to 65535, or None for no TCP port",
        within=(0, 65535),
    )
    socket: bool = _setting(
        "Serve on a Unix socket in the run directory, for the sidecar.", default=True
    )
    run_dir: str | None = _setting(
        "Directory of the agents' sockets; by default this user's run directory "
        "(see `jaxmon.rundir`).",
        default=None,
    )
    calls: bool = _setting(
        "Count calls and hits (the call layer); if off, cached calls have no "
        "overhead and hits are not exported.",
        default=True,
    )
    max_functions: int = _setting(
        "Maximum number of function labels; further functions share `other`.",
        default=200,
        within=(1, 10_000),
    )
    jax_functions: bool = _setting(
        "Export the metrics of JAX's own functions, such as those of `jax.numpy`, by "
        "function; if off, export their sums as the function `jax`.",
        default=True,
    )
    few_buckets: str = _setting(
        "Groups of metrics whose histograms are exported with three or four buckets "
        "instead of six to twelve. The thresholds of the default objectives remain, "
        "others may not.",
        default="",
        give="some of calls, compile, requests, self, training, separated by commas, "
        "or all",
        among=("calls", "compile", "requests", "self", "training", "all"),
    )
    memory_interval: float = _setting(
        "Seconds between snapshots of device memory and live arrays; 0 disables them.",
        default=10.0,
        give="seconds",
        within=(0.1, 86_400),
        off=True,
    )
    memory_lines_interval: float = _setting(
        "Seconds between snapshots of the source lines that hold memory; 0 "
        "disables them, and leak detection with them.",
        default=60.0,
        give="seconds",
        within=(0.1, 86_400),
        off=True,
    )
    leak_window: float = _setting(
        "Seconds of steady growth that count as a leak; fewer if memory is full soon.",
        default=600.0,
        give="seconds",
        within=(1, 604_800),
    )
    programs: bool = _setting(
        "Read size, cost and fingerprint of each compiled program, and its source.",
        default=True,
    )
    peak_flops: float = _setting(
        "What one device can do in a second, for utilization of devices that jaxmon "
        "does not know; 0 means what its vendor says.",
        default=0.0,
        give="floating-point operations per second",
        within=(1e6, 1e21),
        off=True,
    )
    peak_bandwidth: float = _setting(
        "What one device can read from its memory in a second; 0 means what its vendor "
        "says.",
        default=0.0,
        give="bytes per second",
        within=(1e6, 1e18),
        off=True,
    )
    signatures: bool = _setting(
        "Record what each function is compiled for, for warm starts.", default=True
    )
    expect_warmup: bool = _setting(
        "Respond 503 at /-/ready until `jaxmon.warmup` has run.", default=False
    )
    time_interval: float = _setting(
        "Seconds between two looks at what the program's threads do, for the shares "
        "of its time; more often in the first 20 seconds; 0 disables them.",
        default=0.1,
        give="seconds",
        within=(0.01, 60),
        off=True,
    )
    sample_rate: float = _setting(
        "Timed calls per second and function; 0 disables timing, and the checks "
        "of sampled calls with it.",
        default=1.0,
        give="calls per second",
        within=(0, 1000),
    )
    run: str = _setting(
        "Name of the run that this process is an attempt at, the same in all attempts, "
        "for goodput across restarts. By default, if `run_state` is set, the "
        "scheduler's name or number of the job, or else the last part of that path.",
        default="",
        give="a name",
    )
    attempt: int | None = _setting(
        "How often the run was restarted before; `None` means what the scheduler says, "
        "if it does.",
        default=None,
        give="0 to 1000000, or None",
        within=(0, 1_000_000),
    )
    run_state: str | None = _setting(
        "Directory in which process 0 keeps the record of the run, on storage that "
        "survives restarts and that all attempts share; `None` means the run "
        "directory of the host, if `run` is set.",
        default=None,
    )
    run_interval: float = _setting(
        "Seconds between two writes of that record: what a kill costs of it at most.",
        default=10.0,
        give="seconds",
        within=(0.1, 3600),
    )
    history: bool = _setting(
        "Keep what sampled programs take in the run directory, to compare the next run "
        "of the same command with it.",
        default=True,
    )
    transfers: bool = _setting(
        "Observe transfers between host and device.", default=True
    )
    nonfinite: bool = _setting(
        "Detect outputs that become NaN: read small outputs of sampled calls, such as "
        "a loss.",
        default=True,
    )
    shadow_interval: float = _setting(
        "Seconds between re-runs of a sampled call that compare its outputs; 0 "
        "disables them. They take device time.",
        default=0.0,
        give="seconds",
        within=(0.1, 86_400),
        off=True,
    )
    event_values: bool = _setting(
        "Keep values of static arguments in the local event log.", default=True
    )
    log_events: bool = _setting(
        "Log the events of the local event log, such as recompiles with their causes, "
        "to the logger `jaxmon.events`.",
        default=False,
    )
    traces: bool | None = _setting(
        "Make OpenTelemetry spans of requests, steps and compiles; `None` means if the "
        "program has a tracer provider, or the environment names a receiver.",
        default=None,
    )
    traces_wait: float = _setting(
        "Shortest transfer or sync that has a span below its request or step; 0 means "
        "none has.",
        default=0.01,
        give="seconds",
        within=(0.0001, 3600),
        off=True,
    )
    report: bool = _setting("Print a summary when the process exits.", default=False)
    report_dir: str | None = _setting(
        "Directory for reports of out-of-memory errors; `None` means "
        "`jaxmon-reports` in the directory for temporary files.",
        default=None,
    )
    summary_dir: str | None = _setting(
        "Directory to which a report of the run is written when the process exits: a "
        "page, and a summary for `jaxmon compare`. `None` disables this.",
        default=None,
    )
    figures_dir: str | None = _setting(
        "Directory to which the agent writes the statistics of each function when "
        "it stops, for `jaxmon baseline`; every call is then timed, and each program "
        "waited for. `None` disables this.",
        default=None,
    )
    device_figures: bool = _setting(
        "Query NVML for the GPUs of this process, for a sidecar without a driver "
        "in its container.",
        default=False,
    )
    profile_gpu: bool = _setting(
        "Allow `jaxmon profile` to trace GPUs, which has crashed programs.",
        default=False,
    )

    otlp: bool | None = _setting(
        "Push metrics by OTLP, as OpenTelemetry's standard variables say; needs "
        "`jaxmon[otel]`. `None` means if these name an endpoint or exporter for "
        "metrics.",
        default=None,
    )
    otlp_names: str = _setting(
        "Names of what is pushed by OTLP: `served`, as on the page, or `semantic`, by "
        "OpenTelemetry's conventions where they exist.",
        default="served",
        give="served or semantic",
        among=("served", "semantic"),
    )

    serverless: bool = _setting(
        "For platforms that freeze the process between invocations: metrics and spans "
        "are pushed by `jaxmon.serverless` and `jaxmon.flush` only. By default, there "
        "is then no port, no socket, and nothing that is done periodically.",
        default=False,
    )

    def __post_init__(self) -> None:
        for one in fields(self):
            _check(one, getattr(self, one.name))


def load(
    options: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> Settings:
    """
    Return settings from *options*, then the environment, then the defaults.

    Raises:
        SettingsError: an unknown name or an invalid value. Unknown ``JAXMON_*``
            variables are ignored: other parts of jaxmon have their own.
    """
    environ = os.environ if environ is None else environ
    kinds = {one.name: str(one.type) for one in fields(Settings)}
    options = dict(options)
    if unknown := sorted(set(options) - set(kinds)):
        msg = (
            f"unknown setting {', '.join(map(repr, unknown))}; "
            f"settings are {', '.join(kinds)}"
        )
        raise SettingsError(msg)
    for name, value in options.items():
        if kinds[name] == DIRECTORY and isinstance(value, os.PathLike):
            options[name] = os.fspath(value)
    values = {
        name: _parse(name, kind, environ[PREFIX + name.upper()])
        for name, kind in kinds.items()
        if PREFIX + name.upper() in environ and name not in options
    }
    values.update(options)
    defaults = _FROZEN if values.get("serverless") is True else {}
    return Settings(**{**defaults, **values})


def words(text: str) -> list[str]:
    """Return the words of the list *text*, in lower case."""
    return [word for one in text.split(",") if (word := one.strip().lower())]


def wanted(setting: Field[Any]) -> str:
    """Return a description of valid values for *setting*."""
    known = declared(setting)
    if text := known.give or _KINDS[str(setting.type)][1]:
        return text
    low, high = known.within or ("", "")
    return f"{low} to {high}"


def _parse(name: str, kind: str, text: str) -> object:
    """Return *text* as a value of the field's annotation *kind*."""
    variable, word = PREFIX + name.upper(), text.strip().lower()
    if kind.endswith("| None") and word in _NONE:
        return None
    if kind.startswith("bool"):
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
        allowed = ", ".join((*_TRUE, *_FALSE))
        msg = f"{variable}={text!r} is not a boolean; use one of {allowed}"
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


def _check(setting: Field[Any], value: object) -> None:
    """
    Raise the error that says what is valid instead of *value*.

    Raises:
        SettingsError: *value* is invalid.
    """
    kind, known = str(setting.type), declared(setting)
    if value is None and kind.endswith("| None"):
        return
    # A bool is an int to Python, not to a user. A name appears in logs and errors.
    if (
        not isinstance(value, _KINDS[kind][0])
        or (isinstance(value, bool) and not kind.startswith("bool"))
        or (kind == "str" and not str(value).isprintable())
        or (known.among and not set(words(str(value))) <= set(known.among))
    ):
        msg = f"{setting.name}={value!r} is invalid; give {wanted(setting)}"
        raise SettingsError(msg)
    if known.within is None or (known.off and value == 0):
        return
    low, high = known.within
    if not low <= value <= high:  # type: ignore[operator]  # a number, as seen above
        msg = f"{setting.name}={value!r} is out of range; give {low} to {high}"
        raise SettingsError(msg)
