"""
The SDK's exporters of OTLP, which read endpoint, headers, certificates and time limits
from the standard variables.

What a receiver sends back is limited: by a `jaxmon.otel.session` over HTTP, and by
gRPC, whose calls have one deadline.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from jaxmon.otel.environment import GRPC


_PACKAGE = "opentelemetry.exporter.otlp.proto"
_CLASSES: Final = {
    "METRICS": ("metric_exporter", "OTLPMetricExporter"),
    "TRACES": ("trace_exporter", "OTLPSpanExporter"),
    "LOGS": ("_log_exporter", "OTLPLogExporter"),
}
_HTTP, _PROVIDER = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_", "CREDENTIAL_PROVIDER"
# A response says how many items were rejected, and why.
_CHANNEL = (
    ("grpc.max_receive_message_length", 1 << 16),
    # Otherwise the window grows with what a receiver sends unasked.
    ("grpc.http2.bdp_probe", 0),
)


def exporter(signal: str, protocol: str, environ: Mapping[str, str]) -> Any:
    """
    Return the exporter of a *signal*, ``METRICS``, ``TRACES`` or ``LOGS``, by
    *protocol*, `GRPC` or `HTTP`. It connects with the first export.

    Raises:
        ImportError: it is not installed.
        Exception: the SDK's, for an invalid variable.
    """
    module, name = _CLASSES[signal]
    if protocol == GRPC:
        made = getattr(import_module(f"{_PACKAGE}.grpc.{module}"), name)
        return made(channel_options=_CHANNEL)
    made = getattr(import_module(f"{_PACKAGE}.http.{module}"), name)
    if any([key.startswith(_HTTP) and key.endswith(_PROVIDER) for key in environ]):
        return made()  # the session is that of the provider of credentials
    from jaxmon.otel.session import session  # noqa: PLC0415 - one of two

    return made(session=session())
