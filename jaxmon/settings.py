"""
User settings, and how they and options of the sidecar are declared and checked.

Each field can be given to `jaxmon.instrument` by name or in the environment as
``JAXMON_<NAME>``; arguments take precedence over the environment. An empty variable is
as good as none, as OpenTelemetry has it. Values are validated against the declarations
here; `docs/settings.md`, `jaxmon.options` and options of commands are derived from
them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

from jaxmon.errors import SettingsError
from jaxmon.tuples import NamedTuple


PREFIX = "JAXMON_"

DIRECTORY = "str | None"
"""The annotation of directories, and of nothing else."""

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_NONE = "none"

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


class Declared(NamedTuple):
    """
    What a declaration says besides name, type and default: what to *give* if type and
    *within* do not say it; 0 is valid as well if *off*; lists are of words *among*
    these; *flag*, *variable* and *metavar* if they cannot be derived; *check* returns
    the validated value, or raises `ValueError`.
    """

    give: str
    within: tuple[float, float] | None
    off: bool
    among: tuple[str, ...]
    choices: tuple[str, ...]
    flag: str
    variable: str
    metavar: str | None
    check: Callable[[Any], Any] | None


def declared(setting: Field[Any]) -> Declared:
    """Return what is declared of a field."""
    found: Declared = setting.metadata["declared"]
    return found


def setting(  # noqa: PLR0913 - each is a word of a declaration
    *,
    default: Any = MISSING,
    give: str = "",
    within: tuple[float, float] | None = None,
    off: bool = False,
    among: tuple[str, ...] = (),
    choices: tuple[str, ...] = (),
    flag: str = "",
    variable: str = "",
    metavar: str | None = None,
    check: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a field with metadata; see `Declared`. The docstring has its meaning."""
    rest = flag, variable, metavar, check
    about = Declared(give, within, off, among, choices, *rest)
    return field(default=default, metadata={"declared": about})


def described(docstring: str, section: str) -> tuple[str, dict[str, str]]:
    """
    Return *docstring*, whose lines begin where its first does, without its last
    *section*, and what that says by name.
    """
    text, _, last = docstring.partition(f"\n{section}:\n")
    entry = r"(?ms)^ {4}(\w+): (.*?)\s*(?=^ {4}\w|\Z)"
    return text, {name: " ".join(of.split()) for name, of in re.findall(entry, last)}


def meanings(options: type) -> dict[str, str]:
    """Return what each field of *options* means, by name."""
    import inspect  # noqa: PLC0415 - not for agents

    return described(inspect.getdoc(options) or "", "Attributes")[1]


def words(text: str) -> list[str]:
    """Return the words of the list *text*, in lower case."""
    return [word for part in text.split(",") if (word := part.strip().lower())]


def wanted(setting: Field[Any]) -> str:
    """Return a description of valid values for *setting*."""
    declaration = declared(setting)
    if text := declaration.give or _KINDS[str(setting.type)][1]:
        return text
    low, high = declaration.within or ("", "")
    return f"{low} to {high}"


def parse(name: str, kind: str, text: str) -> object:
    """Return *text* as a value of the field's annotation *kind*."""
    variable, word = PREFIX + name.upper(), text.strip().lower()
    if kind.endswith("| None") and word == _NONE:
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


def check(setting: Field[Any], value: object) -> None:
    """Raise a `SettingsError` that says what is valid, if *value* is not."""
    kind, declaration = str(setting.type), declared(setting)
    if value is None and kind.endswith("| None"):
        return
    # A bool is an int to Python, not to a user. A name appears in logs and errors.
    if (
        not isinstance(value, _KINDS[kind][0])
        or (isinstance(value, bool) and not kind.startswith("bool"))
        or (kind == "str" and not str(value).isprintable())
        or (declaration.among and not set(words(str(value))) <= set(declaration.among))
    ):
        msg = f"{setting.name}={value!r} is invalid; give {wanted(setting)}"
        raise SettingsError(msg)
    if declaration.within is None or (declaration.off and value == 0):
        return
    low, high = declaration.within
    if not low <= value <= high:  # type: ignore[operator]  # a number, as seen above
        msg = f"{setting.name}={value!r} is out of range; give {low} to {high}"
        raise SettingsError(msg)


DEFAULT_PORT = 9466
# Agents looking for a free port leave it to the sidecar.
SIDECAR_PORT = 9467
RUNBOOKS = "https://github.com/jaxmon/jaxmon/blob/main/runbooks/"

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


# To generate methods for as many fields takes two milliseconds of each start.
@dataclass(init=False, repr=False, eq=False)
class Settings:
    """
    Settings of the in-process agent.

    Attributes:
        enabled: `False` disables jaxmon.
        host: Address that the metrics server binds.
        port: TCP port; 0 means any free port. If the port is in use, the next free one
            is used, except 9467, the sidecar's.
        socket: Serve on a Unix socket in the run directory, for the sidecar.
        run_dir: Directory of the agents' sockets; by default this user's run directory
            (see `jaxmon.host.rundir`).
        calls: Count calls and hits (the call layer); if off, cached calls have no
            overhead and hits are not exported.
        max_functions: Maximum number of function labels; further functions share
            `other`.
        jax_functions: Export the metrics of JAX's own functions, such as those of
            `jax.numpy`, by function; if off, export their sums as the function `jax`.
        few_buckets: Groups of metrics whose histograms are exported with three or four
            buckets instead of all. The thresholds of the default objectives remain,
            others may not.
        memory_interval: Seconds between snapshots of device memory and live arrays; 0
            disables them.
        memory_lines_interval: Seconds between snapshots of the source lines that hold
            memory; 0 disables them, and leak detection with them.
        leak_window: Seconds of steady growth that count as a leak; fewer if memory is
            full soon.
        programs: Read size, cost and fingerprint of each compiled program, and its
            source.
        peak_flops: What one device can do in a second, for utilization of devices that
            jaxmon does not know; 0 means what its vendor says.
        peak_bandwidth: What one device can read from its memory in a second; 0 means
            what its vendor says.
        signatures: Record what each function is compiled for, for warm starts.
        expect_warmup: Respond 503 at /-/ready until `jaxmon.warmup` has run, or
            `jaxmon.ready` is called.
        after_ready: What to do about a compile after that: `count` it, also `warn` in
            the log, or `fail`, after `jaxmon.ready`: the call raises
            `CompiledAfterReady`, for tests and canaries.
        time_interval: Seconds between two looks at what the program's threads do, for
            the shares of its time; more often in the first 20 seconds; 0 disables them.
        sample_rate: Timed calls per second and function, of which more than 100 are as
            100; 0 disables timing, and the checks of sampled calls with it.
        run: Name of the run that this process is an attempt at, the same in all
            attempts, for goodput across restarts. By default, if `run_state` is set,
            the scheduler's name or number of the job, or else the last part of that
            path.
        attempt: How often the run was restarted before; `None` means what the scheduler
            says, if it does.
        run_state: Directory in which process 0 keeps the record of the run, on storage
            that survives restarts and that all attempts share; `None` means the run
            directory of the host, if `run` is set.
        run_interval: Seconds between two writes of that record: a kill loses at most
            this much.
        frameworks: Count requests of Starlette, FastAPI and Flask applications that
            mark none; `jaxmon run` does, unless this is off.
        release: Release of the program, such as the tag of its image, by which boards
            compare its processes; by default, `service.version` of
            `OTEL_RESOURCE_ATTRIBUTES`.
        history: Keep what sampled programs take in the run directory, to compare the
            next run of the same command with it.
        transfers: Observe transfers between host and device.
        nonfinite: Detect outputs that become NaN: read small outputs of sampled calls,
            such as a loss.
        shadow_interval: Seconds between re-runs of a sampled call that compare its
            outputs; 0 disables them. They take device memory, and at most 1 % of the
            time.
        shadow_memory: Memory that a re-run may take on each device, for copies of a
            donated state and for outputs.
        event_values: Keep values of static arguments in the local event log.
        log_events: Log the events of the local event log, such as recompiles with their
            causes, to the logger `jaxmon.events`.
        traces: Make OpenTelemetry spans of requests, steps and compiles; `None`: if
            the program has a tracer provider, or the environment names a receiver.
        traces_wait: Shortest transfer or sync that has a span below its request or
            step; 0 means none has.
        report: Print a summary when the process exits.
        report_dir: Directory for reports of out-of-memory errors; `None` means
            `jaxmon-reports` in the directory for temporary files.
        summary_dir: Directory to which a report of the run is written when the process
            exits: a page, and a summary for `jaxmon compare`. `None` disables this.
        figures_dir: Directory to which the agent writes the statistics of each function
            when it stops, for `jaxmon baseline`; every call is then timed, and each
            program waited for. `None` disables this.
        passes_dir: Directory to which the agent writes a trace of each compile, for
            `jaxmon compiles run`. `None` disables this.
        device_figures: Query NVML for the GPUs of this process, for a sidecar without a
            driver in its container.
        profile_gpu: Allow `jaxmon profile` to trace GPUs, which has crashed programs.
        otlp: Push metrics by OTLP, as OpenTelemetry's standard variables say; needs
            `jaxmon[otel]`. `None`: if these name an endpoint or exporter for metrics.
        otlp_names: Names of what is pushed by OTLP: `served`, as on the page, or
            `semantic`, by OpenTelemetry's conventions where they exist.
        serverless: For platforms that freeze the process between invocations: metrics
            and spans are pushed by `jaxmon.serverless` and `jaxmon.flush` only. By
            default, there is then no port, no socket, and nothing that is done
            periodically.
    """

    enabled: bool = setting(default=True)
    host: str = setting(default="127.0.0.1", give="a host name or address")
    port: int | None = setting(
        default=DEFAULT_PORT,
        give="0 to 65535, or None for no TCP port",
        within=(0, 65535),
    )
    socket: bool = setting(default=True)
    run_dir: str | None = setting(default=None)
    calls: bool = setting(default=True)
    max_functions: int = setting(default=200, within=(1, 10_000))
    jax_functions: bool = setting(default=True)
    few_buckets: str = setting(
        default="",
        give="some of calls, compile, requests, self, training, separated by commas, "
        "or all",
        among=("calls", "compile", "requests", "self", "training", "all"),
    )
    memory_interval: float = setting(
        default=10.0, give="seconds", within=(0.1, 86_400), off=True
    )
    memory_lines_interval: float = setting(
        default=60.0, give="seconds", within=(0.1, 86_400), off=True
    )
    leak_window: float = setting(default=600.0, give="seconds", within=(1, 604_800))
    programs: bool = setting(default=True)
    peak_flops: float = setting(
        default=0.0,
        give="floating-point operations per second",
        within=(1e6, 1e21),
        off=True,
    )
    peak_bandwidth: float = setting(
        default=0.0, give="bytes per second", within=(1e6, 1e18), off=True
    )
    signatures: bool = setting(default=True)
    expect_warmup: bool = setting(default=False)
    after_ready: str = setting(
        default="count",
        give="count, warn or fail",
        among=("count", "warn", "fail"),
    )
    time_interval: float = setting(
        default=0.1, give="seconds", within=(0.01, 60), off=True
    )
    sample_rate: float = setting(default=1.0, give="calls per second", within=(0, 1000))
    run: str = setting(default="", give="a name")
    attempt: int | None = setting(
        default=None, give="0 to 1000000, or None", within=(0, 1_000_000)
    )
    run_state: str | None = setting(default=None)
    run_interval: float = setting(default=10.0, give="seconds", within=(0.1, 3600))
    frameworks: bool = setting(default=False)
    release: str = setting(default="", give="a name")
    history: bool = setting(default=True)
    transfers: bool = setting(default=True)
    nonfinite: bool = setting(default=True)
    shadow_interval: float = setting(
        default=0.0, give="seconds", within=(0.1, 86_400), off=True
    )
    shadow_memory: int = setting(
        default=256 * 1024 * 1024, give="bytes", within=(1024, 1 << 44)
    )
    event_values: bool = setting(default=True)
    log_events: bool = setting(default=False)
    traces: bool | None = setting(default=None)
    traces_wait: float = setting(
        default=0.01, give="seconds", within=(0.0001, 3600), off=True
    )
    report: bool = setting(default=False)
    report_dir: str | None = setting(default=None)
    summary_dir: str | None = setting(default=None)
    figures_dir: str | None = setting(default=None)
    passes_dir: str | None = setting(default=None)
    device_figures: bool = setting(default=False)
    profile_gpu: bool = setting(default=False)

    otlp: bool | None = setting(default=None)
    otlp_names: str = setting(
        default="served", give="served or semantic", among=("served", "semantic")
    )

    serverless: bool = setting(default=False)

    def __init__(self, **given: Any) -> None:
        for setting in fields(self):
            vars(self)[setting.name] = given.pop(setting.name, setting.default)
            check(setting, getattr(self, setting.name))
        if given:
            msg = f"no settings: {', '.join(given)}"
            raise TypeError(msg)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"Settings({values})"

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"the setting {name} is fixed at the start"
        raise AttributeError(msg)


def load(
    options: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> Settings:
    """
    Return settings from *options*, then the environment, then the defaults. Raises
    `SettingsError`; unknown ``JAXMON_*`` variables are of other parts.
    """
    environ = os.environ if environ is None else environ
    kinds = {field.name: str(field.type) for field in fields(Settings)}
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
        name: parse(name, kind, text)
        for name, kind in kinds.items()
        if (text := environ.get(PREFIX + name.upper())) and name not in options
    }
    values.update(options)
    defaults = _FROZEN if values.get("serverless") is True else {}
    return Settings(**{**defaults, **values})
