"""
Quantities that a program logs, such as its loss.

Device arrays are kept until they are ready, then read by a thread of the agent; the
program never waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, SupportsFloat, SupportsInt

from jaxmon import catalog
from jaxmon.clocks import wall_time
from jaxmon.exposition.families import Family, series
from jaxmon.facts.marked import Quantity
from jaxmon.indicators.labels import Labels
from jaxmon.indicators.recorder import recorder
from jaxmon.indicators.trend import Trend


SITE = "values"


class Record(NamedTuple):
    """
    One call of `log_values`.

    Attributes:
        time: Unix time of it.
        step: the program's number of it, if it gave one; may be an array as well.
        values: names and values, which may be arrays on a device.
    """

    time: float
    step: Any
    values: tuple[tuple[str, Any], ...]


def log_values(
    values: Mapping[str, SupportsFloat], *, step: SupportsInt | None = None
) -> None:
    """
    Record the current loss and other quantities of a training loop.

    Exported as ``jaxmon_value``. Non-finite values are counted, and so are values far
    above the recent ones; ``jaxmon explain`` reports a loss that became NaN, jumps or
    diverges, with the step.

    Never waits for the device and never raises: arrays are read in the background when
    they are ready, and dropped if they are donated or deleted before. Costs about a
    microsecond, next to nothing without an agent. Reading takes 20 µs per value on
    another thread: of more than 50 calls per second, after the first 2,000, some are
    skipped, but never the latest.

    Args:
        values: by name; arrays of one element, on a device or not, or Python numbers.
            At most ``max_functions`` names are distinguished.
        step: number of the step; without it, calls are numbered from 1.

    Example:
        >>> import jaxmon
        >>> jaxmon.log_values({"loss": 0.25, "grad_norm": 1.5}, step=1)
    """
    figures = recorder()
    if figures is None:
        return
    try:
        given = tuple([(str(name), value) for name, value in values.items()])
        figures.logged.put(given, step)
    except Exception:  # noqa: BLE001 - theirs: counted, and the program goes on
        figures.guard.failed(SITE, stays_on=True, theirs=True)


class Values:
    """
    Logged quantities, at most *limit* of them.

    Attributes:
        reader: takes each record and reads it later; may reject it with an exception.
    """

    def __init__(self, limit: int) -> None:
        self.labels = Labels(limit)
        self.reader: Callable[[Record], None] | None = None
        self._trends: dict[str, Trend] = {}

    def put(self, values: tuple[tuple[str, Any], ...], step: Any) -> None:
        """Pass *values*, by name, to the reader. Thread-safe."""
        if self.reader is not None:
            self.reader(Record(wall_time(), step, values))

    def observe(self, name: str, value: float, step: int | None, time: float) -> None:
        """Add a *value* as in `Trend.add`. For one thread at a time."""
        trend = self._trends.get(name)
        if trend is None:
            name = self.labels.admit(name)
            trend = self._trends.setdefault(name, Trend())
        trend.add(value, step, time)

    def explain(self) -> tuple[Quantity, ...]:
        """Return the statistics of each quantity."""
        known = self._trends.copy().items()
        return tuple([trend.explain().replace(name=name) for name, trend in known])

    def collect(self) -> list[Family]:
        """Return the families of logged quantities."""
        latest, run = catalog.VALUE, catalog.VALUE_NONFINITE_RUN
        nonfinite, spikes = catalog.VALUE_NONFINITE, catalog.VALUE_SPIKES
        trends = list(self._trends.copy().items())
        return [
            Family(
                latest,
                [
                    (series(latest, name), trend.latest.value)
                    for name, trend in trends
                    if trend.latest is not None
                ],
            ),
            Family(nonfinite, [(series(nonfinite, n), t.nonfinite) for n, t in trends]),
            Family(
                run,
                # What was never finite may be a placeholder.
                [(series(run, n), t.run if t.latest else 0) for n, t in trends],
            ),
            Family(spikes, [(series(spikes, n), t.spikes) for n, t in trends]),
        ]
