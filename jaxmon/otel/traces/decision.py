"""Whether there are traces. Loads no OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from jaxmon.otel.environment import is_disabled


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_RATIOS = ("traceidratio", "parentbased_traceidratio")
RATIO = 0.05
"""Fraction of healthy traces that is kept by default."""


def export_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the environment asks for traces to be sent."""
    if is_disabled(environ):
        return False
    names = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    return names != "none" and any(environ.get(one, "").strip() for one in _ENDPOINTS)


def sdk_is_loaded() -> bool:
    """Return whether the application has loaded the SDK."""
    return "opentelemetry.sdk.trace" in sys.modules


def healthy_ratio(environ: Mapping[str, str]) -> float:
    """
    Return the fraction of healthy traces to keep, 0.05 unless ``OTEL_TRACES_SAMPLER``
    says otherwise. An invalid argument is ignored, as the SDK does.
    """
    sampler = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
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
