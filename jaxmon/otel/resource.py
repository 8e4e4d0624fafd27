"""
The resource of metrics and of our own traces: the same for both, so that they join.

It is what is found out, then what the standard variables say, then what the program has
given to a provider of the SDK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.resources import (
    TELEMETRY_SDK_LANGUAGE,
    TELEMETRY_SDK_NAME,
    TELEMETRY_SDK_VERSION,
    OTELResourceDetector,
    Resource,
    ResourceDetector,
)
from opentelemetry.sdk.version import __version__

from jaxmon.otel.identity import SERVICE_NAME, attributes


_UNKNOWN = "unknown_service"
_DETECTORS = "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"


def of_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the attributes that the standard variables give, and those of the detectors
    that they name. Unlike `Resource.create`, starts no threads.
    """
    said: dict[str, Any] = {
        TELEMETRY_SDK_LANGUAGE: "python",
        TELEMETRY_SDK_NAME: "opentelemetry",
        TELEMETRY_SDK_VERSION: __version__,
    }
    for one in _detectors(environ):
        said.update(_said(one.detect()))
    return said


def _detectors(environ: Mapping[str, str]) -> Iterator[ResourceDetector]:
    """Yield the detectors of the environment, that of the variables last."""
    names = {one.strip() for one in environ.get(_DETECTORS, "").split(",")}
    if names := names - {"", "otel"}:
        from importlib.metadata import entry_points  # noqa: PLC0415 - takes time

        for one in entry_points(group="opentelemetry_resource_detector"):
            if one.name in names or "*" in names:
                yield one.load()()
    yield OTELResourceDetector()


def resource(
    environ: Mapping[str, str], said: Mapping[str, Any], *, name: str | None = None
) -> Resource:
    """
    Return the resource of this process.

    Args:
        environ: the environment.
        said: what `of_variables` returned.
        name: default of ``service.name``; `None` to find one.
    """
    found: dict[str, Any] = dict(attributes(environ))
    if name is not None:
        found[SERVICE_NAME] = name
    return Resource({**found, **said, **_said(_of_program())})


def _said(known: Any) -> dict[str, Any]:
    """Return the attributes of a resource but for the SDK's default name."""
    said = dict(getattr(known, "attributes", None) or {})
    if str(said.get(SERVICE_NAME, _UNKNOWN)).startswith(_UNKNOWN):
        said.pop(SERVICE_NAME, None)
    return said


def _of_program() -> Any:
    """
    Return the resource of the program's provider, `None` without one.

    Read where the API keeps it, because its functions may create one. Elsewhere in
    another release, it is not found; metrics then have the resource of the variables.
    """
    tracing = getattr(trace, "_TRACER_PROVIDER", None)
    if (found := getattr(tracing, "resource", None)) is not None:
        return found
    metering = getattr(getattr(metrics, "_internal", None), "_METER_PROVIDER", None)
    return getattr(getattr(metering, "_sdk_config", None), "resource", None)
