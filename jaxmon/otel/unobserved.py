"""Keeps the program's instrumentation of clients away from our exports."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from opentelemetry import context


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
