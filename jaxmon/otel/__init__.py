"""
What jaxmon exports, pushed by the OpenTelemetry protocol (OTLP), and its traces.

`environment` reads the standard variables, `resource` says who we are, `pipes` turns
families into data points for the SDK's own `exporters`, whose `session` limits
responses, and `pusher` is the thread. The SDK is imported when it is used;
`instrumentor` is loaded by ``opentelemetry-instrument``. Spans are in `traces`.
"""

from __future__ import annotations

from collections.abc import Mapping


def is_named(environ: Mapping[str, str]) -> bool:
    """Return whether any of the standard variables is set."""
    return any([name.startswith("OTEL_") for name in environ])
