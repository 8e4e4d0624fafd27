"""What a program logs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """
    A value that the program logged.

    Attributes:
        step: of the program, or counted from 1.
        time: Unix time, if known.
        kind: ``nan`` or ``inf``; empty if finite.
        usual: the median before it.
    """

    step: int = 0
    value: float = 0.0
    time: float = 0.0
    kind: str = ""
    usual: float = 0.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """
    A quantity that the program logs, as in `jaxmon.indicators.trend`.

    Attributes:
        count: number of values.
        nonfinite: how many are not finite.
        run: how many of these are the latest.
        since: the first of these.
        latest: the latest finite value.
        spikes: values far above those before them.
        spike: the latest of these.
        first: median of the first values.
        best: lowest median of consecutive values.
        floor: what nine tenths of the latest 50 values exceed.
    """

    name: str = ""
    count: int = 0
    nonfinite: int = 0
    run: int = 0
    since: LoggedValue | None = None
    latest: LoggedValue | None = None
    spikes: int = 0
    spike: LoggedValue | None = None
    first: float | None = None
    best: float | None = None
    floor: float | None = None
