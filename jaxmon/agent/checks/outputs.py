"""
The small floating-point outputs of one function, from sample to sample.

Most programs return values that are not finite on purpose somewhere: masked logits,
markers of missing data, the initial value of a minimum. What was finite and has no
finite value left, sample after sample, is a failure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.clocks import wall_time
from jaxmon.facts import functions as facts


# Structures of outputs remembered for one function: those of its programs.
_STRUCTURES = 8

CONFIRMED = 2
"""
Consecutive samples without a finite value that make a failure: a single one may be a
step that dynamic loss scaling skips.
"""
# The same for outputs that have been NaN in every sample.
_NEVER_FINITE = 3


class Reading(NamedTuple):
    """
    One output, read.

    Attributes:
        size: number of values.
        finite: how many of them are finite.
        nan: whether there is a NaN.
        value: the value of a scalar, else `None`.
    """

    size: int
    finite: int
    nan: bool
    value: float | None


class Output:
    """
    One output of a function.

    Attributes:
        name: where it is in what the function returns, such as ``[1]['loss']``.
        scalar: whether it has one element.
        samples: how often it was read.
        last_finite: call and value of the last sample that had only finite values; the
            value is `None` unless it is a scalar.
        lost: call and Unix time of the first sample since then without a finite value.
        run: number of these samples, up to the latest.
        nan: whether the latest of these had a NaN.
        recovered: how often finite values came back.
    """

    __slots__ = (
        "last_finite",
        "lost",
        "name",
        "nan",
        "recovered",
        "run",
        "samples",
        "scalar",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.scalar = False
        self.samples = self.run = self.recovered = 0
        self.last_finite: tuple[int, float | None] | None = None
        self.lost: tuple[int, float] | None = None
        self.nan = False

    def add(self, reading: Reading, call: int) -> None:
        """Add the *reading* of an output of *call*, counted from 1."""
        self.samples += 1
        self.scalar = reading.size == 1
        if reading.finite:
            self.recovered += self.run > 0 and self.last_finite is not None
            self.run, self.lost = 0, None
            if reading.finite == reading.size:
                self.last_finite = call, reading.value
            return
        self.run += 1
        self.nan = reading.nan
        if self.lost is None:
            self.lost = call, wall_time()

    @property
    def state(self) -> str:
        """
        ``nonfinite`` if it was finite and is NaN now, ``infinite`` if it is infinite
        now, ``always_nan`` for a scalar that has never been anything else, ``""`` if
        there is nothing to report.
        """
        if self.last_finite is not None:
            found = "nonfinite" if self.nan else "infinite"
            return found if self.run >= CONFIRMED else ""
        never = self.scalar and self.nan and self.run >= _NEVER_FINITE
        return "always_nan" if never and self.run == self.samples else ""

    def explain(self) -> facts.Output:
        """Return what there is to report."""
        ends: dict[str, Any] = {}
        if self.lost is not None:
            ends["call"], ends["time"] = self.lost
        if self.last_finite is not None:
            ends["finite_call"], ends["finite_value"] = self.last_finite
        return facts.Output(
            name=self.name,
            state=self.state,
            samples=self.run,
            recovered=self.recovered,
            **ends,
        )


class Outputs:
    """
    The outputs of one function that are read. Written by one thread only.

    Attributes:
        checked: number of values read.
        nonfinite: how many were not finite.
        was_finite: whether all values of the latest sample were.
    """

    __slots__ = ("_known", "checked", "nonfinite", "was_finite")

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[Output, ...]] = {}
        self.checked = 0
        self.nonfinite = 0
        self.was_finite = True

    def of(self, names: tuple[str, ...]) -> tuple[Output, ...]:
        """Return the outputs called *names*, none if there are too many structures."""
        known = self._known.get(names)
        if known is None and len(self._known) < _STRUCTURES:
            known = self._known.setdefault(names, tuple(map(Output, names)))
        return known or ()

    def troubled(self) -> list[Output]:
        """Return the outputs with something to report, scalars first."""
        found = [one for known in list(self._known.values()) for one in known]
        return sorted((o for o in found if o.state), key=lambda one: not one.scalar)
