"""
A pipe to each receiver: a converter, and one of the SDK's own exporters.

The SDK is imported here, in some 0.15 s, when something is to be pushed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
)

from jaxmon.catalog.conventions import CONVENTIONS
from jaxmon.catalog.values import SEMANTIC
from jaxmon.exposition.families import Family
from jaxmon.otel import resource
from jaxmon.otel.environment import CONSOLE, Plan
from jaxmon.otel.exporters import exported, exporter
from jaxmon.otel.points import Converter
from jaxmon.version import version


class Pipe:
    """
    One exporter and its converter, for one thread.

    Args:
        exporter: of the SDK.
        converter: what it exports.
    """

    def __init__(self, exporter: MetricExporter, converter: Converter) -> None:
        self._exporter = exporter
        self._converter = converter

    def push(self, families: Iterable[Family], time: int) -> bool:
        """
        Export *families* as of *time*, in Unix nanoseconds; return whether they
        arrived. Blocks while the exporter tries again, by default at most ten seconds.
        """
        data = self._converter.convert(families, time)
        arrived = exported(self._exporter, data)
        if arrived:
            self._converter.delivered()
        return arrived

    def close(self) -> None:
        """Close the connection; from any thread, also during an export."""
        self._exporter.shutdown()


class Parts(NamedTuple):
    """
    What pipes are made of.

    Attributes:
        exporters: of the SDK, not connected yet.
        said: attributes that the standard variables give to the resource.
    """

    exporters: list[MetricExporter]
    said: dict[str, Any]


def parts(plan: Plan, environ: Mapping[str, str]) -> Parts:
    """
    Return what *plan* needs. Not while the interpreter shuts down: the SDK starts
    threads to find the resource.

    Raises:
        ImportError: an exporter is not installed.
        Exception: the SDK's, for an invalid variable.
    """
    exporters = [_exporter(route, environ) for route in plan.routes]
    return Parts(exporters, resource.of_variables(environ))


def pipes(  # noqa: PLR0913 - what the parts of a pipe need
    plan: Plan,
    made: Parts,
    environ: Mapping[str, str],
    *,
    started: int,
    own: bool,
    name: str | None,
    names: str,
    failed: Callable[[str], None],
) -> list[Pipe]:
    """
    Return a pipe for each exporter.

    Args:
        plan: how to push.
        made: the parts.
        environ: the environment.
        started: when counting began, in Unix nanoseconds.
        own: see `Converter`.
        name: default of ``service.name``; `None` to find one.
        names: one of `jaxmon.catalog.values.PUSHED_NAMES`.
        failed: called with the name of each family that is left out.
    """
    found = resource.resource(environ, made.said, name=name)
    return [
        Pipe(
            one,
            Converter(
                found,
                version=version(),
                started=started,
                temporality=plan.temporality,
                own=own,
                conventions=CONVENTIONS if names == SEMANTIC else {},
                failed=failed,
            ),
        )
        for one in made.exporters
    ]


def _exporter(route: str, environ: Mapping[str, str]) -> MetricExporter:
    if route == CONSOLE:
        return ConsoleMetricExporter()
    made: MetricExporter = exporter("METRICS", route, environ)
    return made
