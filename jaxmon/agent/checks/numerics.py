"""
Detects non-finite outputs and unintended float64 computation.

If enabled, non-finite values are counted in small outputs of sampled calls: a thread
reads them with NumPy once they are ready. Nothing is compiled or computed on the
device. Float64 computation is detected in the HLO.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.counters import Tally
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import is_ready_or_deleted
from jaxmon.agent.observers import Sample
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.watcher import Watcher
from jaxmon.exposition.families import Family, series


# Maximum size, and number, of the outputs read from one call.
_BYTES = 65_536
_LEAVES = 8
# Maximum number of leaves searched for them.
_LOOKED_AT = 64

_FIRST_LOOK, _LAST_LOOK, _LOOKS = 0.002, 1.0, 3600


class _Checks:
    """Values found in the outputs of one function. Written by one thread only."""

    __slots__ = ("checked", "nonfinite", "was_finite")

    def __init__(self) -> None:
        self.checked = 0
        self.nonfinite = 0
        self.was_finite = True


class _PendingRead:
    """Outputs of one call, to be read when they are ready."""

    def __init__(
        self, numerics: Numerics, function: Function, leaves: Sequence[Any]
    ) -> None:
        self._numerics = numerics
        self._function = function
        self._leaves = leaves
        self._delay = _FIRST_LOOK
        self._looks = 0

    def look(self) -> float | None:
        if not all(map(is_ready_or_deleted, self._leaves)):
            self._looks += 1
            self._delay = min(self._delay * 1.5, _LAST_LOOK)
            return self._delay if self._looks < _LOOKS else None
        import numpy as np  # noqa: PLC0415 - this package loads without it

        total = bad = 0
        for leaf in self._leaves:
            try:
                values = self._numerics.fetched(leaf)
            except Exception:  # noqa: BLE001, S112 - deleted since, or it failed
                continue
            total += values.size
            bad += values.size - int(np.isfinite(values).sum())
        self._numerics.found(self._function, total, bad)
        return None


class Numerics(Part):
    """Counts non-finite values and promotions to float64."""

    name = "numerics"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._events = context.events
        self._on = context.settings.nonfinite
        self._watcher = Watcher("numerics", context.guard, limit=8)
        self._checks: dict[Function, _Checks] = {}
        self._promotions: dict[Function, Tally] = {}
        context.observers.promotion.append(self.promoted)
        if self._on:
            context.observers.sample.append(self.sampled)

    def sampled(self, sample: Sample) -> None:
        """Queue the small outputs of *sample* to be read once they are ready."""
        leaves = self._jax.tree_util.tree_leaves(sample.outputs)[:_LOOKED_AT]
        small = [leaf for leaf in leaves if self._is_small_float(leaf)][:_LEAVES]
        if small:
            self._watcher.submit(_PendingRead(self, sample.function, small))

    def fetched(self, leaf: Any) -> Any:
        """Return a ready output as a NumPy array; one shard if it has several."""
        import numpy as np  # noqa: PLC0415 - this package loads without it

        # A guard of the program is meant for its own lines.
        with self._jax.transfer_guard_device_to_host("allow"):
            # A new array object: the program's own would cache the copy.
            return np.asarray(leaf.addressable_data(0))

    def found(self, function: Function, total: int, bad: int) -> None:
        """Record that *bad* of *total* values were non-finite."""
        checks = self._checks.setdefault(function, _Checks())
        checks.checked += total
        checks.nonfinite += bad
        if bad and checks.was_finite:
            self._events.add(
                "numerics",
                function.name,
                f"{bad} of {total} values in a call's outputs are non-finite",
                nonfinite=bad,
                values=total,
            )
        checks.was_finite = not bad

    def promoted(self, function: Function) -> None:
        """
        Count a program of *function* that computes in float64 without float64
        arguments.
        """
        if function.internal:
            return
        self._promotions.setdefault(function, Tally()).add()
        self._events.add(
            "numerics",
            function.name,
            "a program computes in float64 although no argument is float64; look "
            "for NumPy values, Python floats converted to arrays, and missing "
            "dtypes",
        )

    def stop(self) -> None:
        """Stop the thread."""
        self._watcher.stop()

    def explain(self) -> Explanation:
        """Return the values found."""
        return Explanation(functions={"numerics": self.snapshot})

    def snapshot(self) -> dict[str, Any]:
        """Return the values found, by function."""
        found: dict[str, dict[str, int]] = {}
        for function, checks in list(self._checks.items()):
            found[function.name] = {
                "values": checks.checked,
                "nonfinite": checks.nonfinite,
            }
        for function, tally in list(self._promotions.items()):
            found.setdefault(function.name, {})["float64_programs"] = tally.value
        return found

    def collect(self) -> list[Family]:
        """Return the metrics of numerics."""
        nonfinite, promotions = catalog.NONFINITE, catalog.FLOAT64_PROMOTIONS
        return [
            Family(
                nonfinite,
                [
                    (series(nonfinite, function.name), checks.nonfinite)
                    for function, checks in list(self._checks.items())
                ],
            ),
            Family(
                promotions,
                [
                    (series(promotions, function.name), tally.value)
                    for function, tally in list(self._promotions.items())
                ],
            ),
        ]

    def _is_small_float(self, leaf: Any) -> bool:
        return (
            isinstance(leaf, self._jax.Array)
            and self._jax.numpy.issubdtype(leaf.dtype, self._jax.numpy.inexact)
            and leaf.nbytes <= _BYTES
            and not leaf.is_deleted()
        )
