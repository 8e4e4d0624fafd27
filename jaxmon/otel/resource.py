"""
The resource of metrics and of our own traces: the same for both, so that they join.

It is what is found out, then what the standard variables say, then what the program has
given to a provider of the SDK.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.resources import Resource

from jaxmon.otel.identity import INSTANCE, SERVICE_NAME, attributes


_UNKNOWN = "unknown_service"
_VARIABLE = "OTEL_RESOURCE_ATTRIBUTES"


def of_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    """
    Return the attributes that the standard variables give.

    Not while the interpreter shuts down: the SDK starts threads to find them.
    """
    said = _said(Resource.create())
    # The SDK makes one up for each process, unless the variable has one.
    if f"{INSTANCE}=" not in environ.get(_VARIABLE, ""):
        said.pop(INSTANCE, None)
    return said


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
