"""An export by the SDK, of which the program notices nothing."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from opentelemetry import context

from jaxmon.threads import is_named, unlist


log = logging.getLogger("jaxmon")


def exported(exporter: Any, data: Any) -> bool:
    """
    Export *data* by an *exporter* of the SDK; return whether it arrived.

    Blocks while the exporter tries again, by default at most ten seconds.
    """
    with unobserved(), unlisted(exporter):
        try:
            return bool(exporter.export(data).name == "SUCCESS")
        except Exception as error:  # noqa: BLE001 - up to 1.39, of a lost connection
            log.warning("an export by OTLP failed: %s: %s", type(error).__name__, error)
            return False


@contextlib.contextmanager
def unlisted(exporter: Any) -> Iterator[None]:
    """
    Keep `threading` from listing this thread of ours, as it does for each log record:
    an *exporter* logs before it waits and tries again.
    """
    # Its own logger, and that of what all exporters by gRPC derive from.
    modules = {one.__module__ for one in type(exporter).__mro__}
    names = [one for one in modules if one.startswith("opentelemetry.")]
    loggers = [logging.getLogger(one) for one in names]
    named = partial(is_named)  # another export may add and remove its own meanwhile
    for logger in loggers:
        logger.addFilter(named)
    unlist()
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(named)
        unlist()


@contextlib.contextmanager
def unobserved() -> Iterator[None]:
    """Keep an instrumented HTTP client from making spans of our exports."""
    current = context.get_current()
    for key in ("_SUPPRESS_INSTRUMENTATION_KEY", "_SUPPRESS_HTTP_INSTRUMENTATION_KEY"):
        if (name := getattr(context, key, None)) is not None:
            current = context.set_value(name, True, current)  # noqa: FBT003 - its API
    token = context.attach(current)
    try:
        yield
    finally:
        context.detach(token)
