"""Starts jaxmon in programs run by ``opentelemetry-instrument``."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from jaxmon.autostart import when_jax_is_imported


class JaxmonInstrumentor(BaseInstrumentor):  # type: ignore[misc]  # Any without the extra
    """How OpenTelemetry starts and stops jaxmon: once the program imports JAX."""

    _cancel: Callable[[], None] | None = None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the releases of JAX that jaxmon observes."""
        return ("jax >= 0.4.35",)

    def _instrument(self, **_: Any) -> None:
        self._cancel = when_jax_is_imported()

    def _uninstrument(self, **_: Any) -> None:
        if self._cancel is not None:
            self._cancel()
        import jaxmon  # noqa: PLC0415 - as a program would

        jaxmon.uninstrument()
