"""Reads the device arrays that the program passes to `jaxmon.log_values`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import isfinite
from typing import Any

from jaxmon.agent.checks.arrays import array_of, reading
from jaxmon.agent.context import Context
from jaxmon.agent.jaxlink.arrays import is_pollable, is_ready_or_deleted
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Watcher
from jaxmon.exposition.families import Family
from jaxmon.facts.marked import Quantity
from jaxmon.indicators.values import SITE, Record, Values
from jaxmon.threads import RLock


# Calls of `log_values` whose arrays are not ready yet; more are dropped.
_WAITING = 1000

# Seconds between two rounds of reading, and how many without anything to read end it.
_INTERVAL = 0.5
_IDLE = 10

# Records read per round, and how many unused ones may accumulate. Of more than that
# some are skipped: 50 a second with two arrays each take 0.1 % of a core.
_ALLOWED = 25
_SAVINGS = 2000


class LoggedValues(Part):
    """Keeps arrays that the program logs, and reads them on our thread once ready."""

    name = SITE

    def __init__(self, context: Context, values: Values, watcher: Watcher) -> None:
        self._guard = context.guard
        self._jax = context.jax
        self._values = values
        self._watcher = watcher
        self._waiting: deque[Record] = deque()
        self._watched = False
        self._idle = 0
        self._allowed = _SAVINGS
        self._dropped = 0
        # Reentrant: see `Labels`.
        self._lock = RLock()

    def start(self) -> None:
        """Accept values from now on."""
        self._values.reader = self.take

    def stop(self) -> None:
        """Read what is ready, and drop the rest."""
        self._values.reader = None
        self._read()
        self._waiting.clear()

    def abandon(self) -> None:
        """Drop everything."""
        self._values.reader = None
        self._waiting.clear()

    def explain(self) -> Explanation:
        """Return the statistics of each quantity."""
        return Explanation({SITE: self.snapshot})

    def snapshot(self) -> tuple[Quantity, ...]:
        """Return the statistics of each quantity, with those that are ready now."""
        self._read()
        return self._values.explain()

    def collect(self) -> Iterable[Family]:
        """Read what is ready; the markers export it."""
        self._read()
        return ()

    def dropped(self) -> dict[str, int]:
        """Return the number of calls of `log_values` whose values were not read."""
        return {"value": self._dropped}

    def take(self, record: Record) -> None:
        """
        Keep *record* until it is read. On the thread of the program; never blocks.

        Raises:
            TypeError: a value is not a number, or is being traced.
            ValueError: an array has several elements, or none.
        """
        step, values = record.step, record.values
        kept = record._replace(
            step=None if step is None else self._kept("step", step),
            values=tuple([(name, self._kept(name, value)) for name, value in values]),
        )
        if len(self._waiting) >= _WAITING or not self._guard.on(SITE):
            self._dropped += 1
            return
        self._waiting.append(kept)
        if not self._watched:
            self._watched = self._watcher.submit(self)

    def look(self) -> float | None:
        """Read what is ready; return the seconds until the next round."""
        self._allowed = min(self._allowed + _ALLOWED, _SAVINGS)
        self._idle = 0 if self._read() else self._idle + 1
        if self._waiting or self._idle < _IDLE:
            return _INTERVAL
        self._watched = False
        # The program may have logged just before, and found that we were watching.
        if not self._waiting:
            return None
        self._watched = True
        return _INTERVAL

    def _read(self) -> int:
        """Read all records that are ready; return their number."""
        if not self._waiting or not self._lock.acquire(blocking=False):
            return 0  # or another thread is reading
        try:
            with reading(self._jax):
                return self._read_ready()
        finally:
            self._lock.release()

    def _read_ready(self) -> int:
        waiting, done = self._waiting, 0
        while waiting and _is_ready(waiting[0]):
            done += 1
            # The latest value is exported, so it is always read.
            if self._allowed > 0 or len(waiting) == 1:
                self._allowed -= 1
                self._observe(waiting[0])
            else:
                self._dropped += 1
            waiting.popleft()
        return done

    def _kept(self, name: str, value: Any) -> Any:
        """Return *value* as it is kept, an array or a float; errors as of `take`."""
        if not isinstance(value, self._jax.Array):
            return float(value)
        if not is_pollable(value):
            msg = (
                f"{name} is not a number, or is being traced: call log_values outside "
                "of jitted functions, with what they return"
            )
            raise TypeError(msg)
        if value.size != 1:
            msg = f"{name} has {value.size} elements; log arrays of one element"
            raise ValueError(msg)
        return value

    def _observe(self, record: Record) -> None:
        step = _number(record.step)
        at = int(step) if step is not None and isfinite(step) else None
        for name, value in record.values:
            if (number := _number(value)) is not None:
                self._values.observe(name, number, at, record.time)


def _is_ready(record: Record) -> bool:
    values = (record.step, *[value for _, value in record.values])
    return all([is_ready_or_deleted(value) for value in values if _is_array(value)])


def _is_array(kept: Any) -> bool:
    return kept is not None and type(kept) is not float


def _number(kept: Any) -> float | None:
    """Return the number in what was *kept*, `None` if it was deleted or failed."""
    if not _is_array(kept):
        return None if kept is None else float(kept)
    try:
        return float(array_of(kept).reshape(()))
    except Exception:  # noqa: BLE001 - as it is wherever the program reads it
        return None
