"""
What OpenTelemetry's standard variables ask for.

Endpoint, headers, compression and certificates are read by the SDK's exporters. Here
are their timeout, which those by gRPC take for a number unseen, and what the SDK reads
elsewhere:
https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxmon.catalog.values import SERVED


GRPC, HTTP, CONSOLE = "grpc", "http/protobuf", "console"

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_{}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTER = "OTEL_METRICS_EXPORTER"
_TEMPORALITY = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
_HISTOGRAMS = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
_EXPLICIT = "explicit_bucket_histogram"

# The names of the SDK's exporters.
_NAMED = {"otlp_proto_grpc": GRPC, "otlp_proto_http": HTTP, "console": CONSOLE}
_TEMPORALITIES = ("cumulative", "delta", "lowmemory")

_TIMEOUT = 10.0
_INTERVAL = 60.0
_DEADLINE = 3.0
_SHORTEST = 0.01
# More than anyone means, and less than a lock can wait.
_LONGEST = 1e6


class Plan(NamedTuple):
    """
    How metrics are pushed: routes, seconds between exports and of *deadline* for the
    last, *temporality* as in the variable, and *problems* with ignored ones.

    Beyond what variables say, *name* is the default of ``service.name``, *names* one of
    `jaxmon.catalog.values.PUSHED_NAMES`, and *from_zero* is as of `Converter`.
    """

    routes: tuple[str, ...]
    interval: float = _INTERVAL
    deadline: float = _DEADLINE
    temporality: str = "cumulative"
    problems: tuple[str, ...] = ()
    name: str | None = None
    names: str = SERVED
    from_zero: bool = True


def is_asked(environ: Mapping[str, str]) -> bool:
    """
    Return whether the variables ask for metrics to be pushed: one of them names an
    endpoint, or OTEL_METRICS_EXPORTER an exporter that we have. Not if that names only
    others, or none, or if OTEL_SDK_DISABLED is true, or if OTEL_CONFIG_FILE names a
    file, which replaces the other variables.
    """
    if is_disabled(environ, or_by_file=True):
        return False
    if _word(environ, _EXPORTER):
        return bool(_exporters(environ))
    return any([_word(environ, name) for name in _ENDPOINTS])


def logs_are_asked(environ: Mapping[str, str]) -> bool:
    """Return whether logs are to be sent by OTLP."""
    if is_disabled(environ, or_by_file=True):
        return False
    if named := _word(environ, "OTEL_LOGS_EXPORTER"):
        return "otlp" in {name.strip() for name in named.split(",")}
    return bool(_word(environ, "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"))


def is_disabled(environ: Mapping[str, str], *, or_by_file: bool = False) -> bool:
    """Return whether OpenTelemetry is off, or a file replaces the other variables."""
    replaced = or_by_file and bool(_word(environ, "OTEL_CONFIG_FILE"))
    return replaced or _word(environ, "OTEL_SDK_DISABLED") == "true"


def plan(environ: Mapping[str, str]) -> Plan:
    """Return how to push."""
    problems: list[str] = []
    usual = protocol(environ, "METRICS", problems)
    named = _exporters(environ) or ["otlp"]
    routes = [_NAMED.get(name, usual) for name in named]
    _choice(environ, _HISTOGRAMS, (_EXPLICIT,), problems)
    temporality = _choice(environ, _TEMPORALITY, _TEMPORALITIES, problems)
    return Plan(
        tuple(dict.fromkeys(routes)),
        _seconds(environ, "OTEL_METRIC_EXPORT_INTERVAL", _INTERVAL, problems),
        _seconds(environ, "OTEL_METRIC_EXPORT_TIMEOUT", _DEADLINE, problems),
        temporality,
        tuple(problems),
    )


def protocol(environ: Mapping[str, str], signal: str, problems: list[str]) -> str:
    """
    Return `GRPC` or `HTTP`: which OTLP to use for a *signal*, ``METRICS``,
    ``TRACES`` or ``LOGS``. Variables that are ignored are added to *problems*.
    """
    for name in (pattern.format(signal) for pattern in _PROTOCOLS):
        if found := _word(environ, name):
            if found in (GRPC, HTTP):
                return found
            problems.append(f"{name}={found} is ignored; give {GRPC} or {HTTP}")
    # As the SDK for Python: both should reach the same receiver.
    return GRPC


def timeout(environ: Mapping[str, str], signal: str, problems: list[str]) -> float:
    """Return the seconds of an export; unlike others, these variables are seconds."""
    usual = _seconds(environ, "OTEL_EXPORTER_OTLP_TIMEOUT", _TIMEOUT, problems, unit=1)
    name = f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT"
    return _seconds(environ, name, usual, problems, unit=1)


def _exporters(environ: Mapping[str, str]) -> list[str]:
    """Return those that OTEL_METRICS_EXPORTER names, of the ones that we have."""
    named = [name.strip() for name in _word(environ, _EXPORTER).split(",")]
    return [name for name in named if name == "otlp" or name in _NAMED]


def _choice(
    environ: Mapping[str, str], name: str, allowed: Sequence[str], problems: list[str]
) -> str:
    if (found := _word(environ, name) or allowed[0]) in allowed:
        return found
    problems.append(f"{name}={found} is ignored; give {', '.join(allowed)}")
    return allowed[0]


def _seconds(
    environ: Mapping[str, str],
    name: str,
    default: float,
    problems: list[str],
    *,
    unit: int = 1000,
) -> float:
    """Return the milliseconds, or seconds if *unit* is 1, in a variable as seconds."""
    if not (text := environ.get(name, "").strip()):
        return default
    try:
        found = float(text) / unit
    except ValueError:
        found = 0.0
    if _SHORTEST <= found < _LONGEST:
        return found
    units = "seconds" if unit == 1 else "milliseconds"
    least = f"{_SHORTEST * unit:g} or more"
    problems.append(f"{name}={text} is ignored; give {units}, {least}")
    return default


def _word(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()


_TRACE_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_RATIOS = ("traceidratio", "parentbased_traceidratio")
RATIO = 0.05
"""Fraction of healthy traces that is kept by default."""


def export_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the environment asks for traces to be sent."""
    if is_disabled(environ):
        return False
    named = any([_word(environ, name) for name in _TRACE_ENDPOINTS])
    return named and _word(environ, "OTEL_TRACES_EXPORTER") != "none"


def healthy_ratio(environ: Mapping[str, str]) -> float:
    """Return the part of healthy traces to keep, 0.05 if not given, or not validly."""
    sampler = _word(environ, "OTEL_TRACES_SAMPLER")
    if sampler.endswith("always_on"):
        return 1.0
    if sampler.endswith("always_off"):
        return 0.0
    if sampler not in _RATIOS:
        return RATIO
    try:
        ratio = float(environ.get("OTEL_TRACES_SAMPLER_ARG", ""))
    except ValueError:
        return 1.0
    return ratio if 0 <= ratio <= 1 else 1.0
