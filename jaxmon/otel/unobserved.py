"""An export by the SDK, of which the program notices nothing."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from opentelemetry import context

from jaxmon import disclosure


log = logging.getLogger("jaxmon")


def exported(exporter: Any, data: Any) -> bool:
    """
    Export *data* by an *exporter* of the SDK; return whether it arrived.

    Blocks while the exporter tries again, by default at most ten seconds.
    """
    with unobserved():
        try:
            return bool(exporter.export(data).name == "SUCCESS")
        except Exception as error:  # noqa: BLE001 - up to 1.39, of a lost connection
            log.warning("an export by OTLP failed: %s", disclosure.error(error))
            return False


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
