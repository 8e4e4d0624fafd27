"""The thread that pushes metrics by OTLP, from an agent or a sidecar."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.clocks import monotonic, wall_time
from jaxmon.errors import OtlpError
from jaxmon.exposition.families import Family, by_label
from jaxmon.host import disclosure
from jaxmon.otel.environment import Plan
from jaxmon.threads import Deadline, ExportThread


if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricExporter

    from jaxmon.otel.pipes import Pipe

log = logging.getLogger("jaxmon")

_NANOSECONDS = 1_000_000_000
_SIGNAL = "metrics"

# Exporters of a parent process. A forked child must not close their connections, not
# even by freeing them: gRPC would wait for threads that the child does not have.
_of_parent: list[object] = []


class Pusher(ExportThread):
    """
    Pushes the families of an endpoint, on a daemon thread. A receiver that is down,
    slow or full delays only that: nothing is queued, for the next export has it all.

    *collect* is called on that thread, *failed* while an exception is handled, with the
    place. Without a *timer* it pushes when asked; *run* runs the body of the thread.
    """

    def __init__(
        self,
        collect: Callable[[], Iterable[Family]],
        plan: Plan,
        *,
        failed: Callable[[str], None],
        timer: bool = True,
        run: Callable[[Callable[[], None]], None] = lambda body: body(),
    ) -> None:
        super().__init__("jaxmon-otlp", plan.interval if timer else None, run)
        self._collect = collect
        self._plan = plan
        self._failed = failed
        self._exporters: list[MetricExporter] | None = None
        self._pipes: list[Pipe] | None = None
        self._outcomes = dict.fromkeys(catalog.EXPORT_OUTCOMES, 0)
        self._failing = 0
        self._failing_since: float | None = None

    def prepare(self) -> None:
        """
        Import what pushing needs, here: a child forked while another thread imports
        could never import it. Raises `OtlpError`: missing, or an invalid variable.
        """
        try:
            from jaxmon.otel import pipes  # noqa: PLC0415 - few push

            self._exporters = pipes.exporters(self._plan, os.environ)
        except ImportError as error:
            msg = (
                f"pushing metrics by OTLP needs packages that are not installed "
                f"({error}); run `pip install 'jaxmon[otel]'`"
            )
            raise OtlpError(msg) from error
        except Exception as error:
            msg = f"cannot push metrics by OTLP: {disclosure.error(error)}"
            raise OtlpError(msg) from error
        for problem in self._plan.problems:
            log.warning("%s", problem)

    def stop(self, deadline: Deadline | None = None) -> None:
        """Export once more, within both deadlines, and stop. Idempotent."""
        deadline = deadline or Deadline(1.5 * self._plan.deadline)
        deadline.begin()
        if not self.end_by(deadline, most=self._plan.deadline):
            log.warning(
                "jaxmon could not push its last metrics by OTLP within %.2g s",
                self._plan.deadline,
            )

    def abandon(self) -> None:
        """Leave the connections to the parent; called in a forked child."""
        _of_parent.append((self._exporters, self._pipes))
        self._thread, self._exporters, self._pipes = None, None, None

    def families(self) -> list[Family]:
        """Return the pusher's own metric; thread-safe."""
        counts = self._outcomes.copy().items()
        found = {(_SIGNAL, outcome): count for outcome, count in counts}
        return [by_label(catalog.OTLP_EXPORTS, found)]

    def explain(self) -> dict[str, Any]:
        """Return how many exports failed in a row, and for how long they have."""
        since = self._failing_since
        return {
            "failed_in_a_row": self._failing,
            "failing_seconds": 0.0 if since is None else monotonic() - since,
        }

    def _export(self) -> None:
        try:
            families = list(self._collect())
            now = int(wall_time() * _NANOSECONDS)
            if self._pipes is None and self._exporters is not None:
                self._pipes = self._connected(self._exporters, families, now)
        except Exception:  # noqa: BLE001 - contained: our own thread goes on
            self._failed("otlp")
            self._count(arrived=False)
            return
        for pipe in self._pipes or ():
            arrived = False
            try:
                arrived = pipe.push(families, now)
            except Exception:  # noqa: BLE001 - as above
                self._failed("otlp")
            self._count(arrived=arrived)

    def _count(self, *, arrived: bool) -> None:
        self._outcomes["success" if arrived else "failure"] += 1
        if arrived:
            self._failing, self._failing_since = 0, None
            return
        self._failing += 1
        if self._failing_since is None:
            self._failing_since = monotonic()

    def _connected(
        self, made: list[MetricExporter], families: Iterable[Family], now: int
    ) -> list[Pipe]:
        """Return the pipes, made when the program has set up its OpenTelemetry."""
        from jaxmon.otel import pipes  # noqa: PLC0415 - prepared

        begun = catalog.PROCESS_START_TIME_SECONDS.name
        starts = [
            int(value * _NANOSECONDS)
            for family in families
            for series_, value in family.samples
            if series_ == begun
        ]
        return pipes.pipes(
            self._plan,
            made,
            os.environ,
            started=min([now, *starts]),
            failed=lambda metric: self._failed(f"otlp:{metric}"),
        )

    def _close(self) -> None:
        exporters, self._exporters = self._exporters, None
        for exporter in exporters or ():
            try:
                exporter.shutdown()
            except Exception:  # noqa: BLE001 - contained: the program ends as it did
                self._failed("otlp")
