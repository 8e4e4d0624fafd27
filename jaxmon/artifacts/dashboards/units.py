"""Units of the catalogue, and what Grafana calls them."""

from __future__ import annotations

from jaxmon.promql.shape import PER_SECOND


UNITS = {
    "": "short",
    PER_SECOND: "ops",
    "per minute": "opm",
    "bytes": "bytes",
    "bytes per second": "Bps",
    "FLOPs per second": "flops",
    "celsius": "celsius",
    "dollars": "currencyUSD",
    "hertz": "hertz",
    "joules": "joule",
    "ratio": "percentunit",
    "seconds": "s",
    "times": "suffix: ×",  # noqa: RUF001 - the sign that a reader expects
    "watts": "watt",
}
"""Grafana's name of each unit."""
