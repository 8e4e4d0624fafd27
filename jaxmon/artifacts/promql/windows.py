"""Time windows as PromQL and Grafana write them."""

from __future__ import annotations

import re


RATE_INTERVAL = "$__rate_interval"
"""Grafana's window for a rate: at least four scrapes."""

_WINDOW = re.compile(r"\d+(ms|[smhdwy])|\$__(rate_interval|range|interval)")


def checked(window: str) -> str:
    """
    Return *window* as it is.

    Raises:
        ValueError: it is not a duration, nor a variable of Grafana for one.
    """
    if not _WINDOW.fullmatch(window):
        msg = f"{window!r} is not a window such as 5m, 1h or {RATE_INTERVAL}"
        raise ValueError(msg)
    return window
