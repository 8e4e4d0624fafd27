"""The timer of an agent: what it notifies picks calls to sample, or polls counters."""

from __future__ import annotations

from jaxmon.agent.context import Context
from jaxmon.agent.part import Part
from jaxmon.agent.worker import Worker


# The minimum interval, which limits the sampling rate.
_INTERVAL = 0.01

# So that samples do not synchronise with periodic work of the program.
_SPREAD = 0.2


class Timer(Part):
    """Notifies `Observers.timer` about as often as a function is sampled."""

    name = "timer"

    def __init__(self, context: Context) -> None:
        self._guard = context.guard
        self._observers = context.observers.timer
        rate = context.settings.sample_rate
        self._worker = Worker(
            self.name,
            context.scheduler,
            every=max(1 / rate, _INTERVAL) if rate else 0.0,
            routine=self._ring,
            is_short=True,
            spread=_SPREAD,
        )

    def start(self) -> None:
        """Start the timer."""
        self._worker.start()

    def stop(self) -> None:
        """Stop it."""
        self._worker.stop()

    def _ring(self) -> None:
        for notify in self._observers:
            try:
                notify()
            except Exception:  # noqa: BLE001 - contained: others are notified
                self._guard.failed("observers", stays_on=True)
