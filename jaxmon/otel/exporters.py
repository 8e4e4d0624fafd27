"""
The SDK's exporters of OTLP, which read endpoint, headers and certificates from the
standard variables.

What a receiver sends back is limited: by a `jaxmon.otel.session` over HTTP, and by
gRPC, whose calls have one deadline.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

from opentelemetry import context

from jaxmon.host import disclosure
from jaxmon.otel.environment import GRPC, protocol, timeout
from jaxmon.threads import is_named, unlist


log = logging.getLogger("jaxmon")


def exported(exporter: Any, data: Any) -> bool:
    """Export *data*; return whether it arrived, by default within ten seconds."""
    with unobserved(), unlisted(exporter):
        try:
            return bool(exporter.export(data).name == "SUCCESS")
        except Exception as error:  # noqa: BLE001 - up to 1.39, of a lost connection
            log.warning("an export by OTLP failed: %s", disclosure.error(error))
            return False


@contextlib.contextmanager
def unlisted(exporter: Any) -> Iterator[None]:
    """Keep `threading` from listing this thread, as it does when *exporter* logs."""
    # Its own logger, and that of what all exporters by gRPC derive from.
    modules = {base.__module__ for base in type(exporter).__mro__}
    names = [module for module in modules if module.startswith("opentelemetry.")]
    loggers = [logging.getLogger(module) for module in names]
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


def exporter(signal: str, environ: Mapping[str, str], chosen: str | None = None) -> Any:
    """
    Return the exporter of a *signal*, ``METRICS``, ``TRACES`` or ``LOGS``, by `GRPC` or
    `HTTP`, as *chosen* or as the environment says. It connects with the first export.
    Raises `ImportError`: it is not installed; `Exception`: the SDK's, for an invalid
    variable.
    """
    problems: list[str] = []
    by = chosen or protocol(environ, signal, problems)
    wrong_protocols = len(problems)
    seconds = timeout(environ, signal, problems)
    for problem in problems:
        log.warning("%s", problem)
    module, name = _CLASSES[signal]
    route = "grpc" if by == GRPC else "http"
    made = getattr(import_module(f"{_PACKAGE}.{route}.{module}"), name)
    given = {key: text for key, text in environ.items() if text}
    readers: list[dict[str, Any]] = []
    # An empty variable is unset by the standard, but a value for exporters by gRPC. An
    # exporter that the program makes meanwhile may be made without these, too.
    if len(problems) > wrong_protocols or len(given) < len(environ):
        given = {key: text for key, text in given.items() if "TIMEOUT" not in key}
        modules = [vars(sys.modules[base.__module__]) for base in made.__mro__]
        readers = [
            module_globals
            for module_globals in modules
            if module_globals.get("environ") is os.environ
        ]
    for module_globals in readers:
        module_globals["environ"] = given
    try:
        if by == GRPC:
            return made(channel_options=_CHANNEL, timeout=seconds)
        if any([key.startswith(_HTTP) and key.endswith(_PROVIDER) for key in given]):
            # The session is that of the provider of credentials.
            return made(timeout=seconds)
        from jaxmon.otel.session import session  # noqa: PLC0415 - one of two

        return made(session=session(), timeout=seconds)
    finally:
        for module_globals in readers:
            module_globals["environ"] = os.environ
