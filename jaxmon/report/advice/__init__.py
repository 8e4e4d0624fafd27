"""
From facts to advice: what is wrong, how one can tell, what to do.

Each rule looks for one mistake, in figures that a healthy program does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from jaxmon.report.advice import compiles as compiling
from jaxmon.report.advice import running
from jaxmon.report.model import Advice, Snapshot


Rule: TypeAlias = Callable[[Snapshot], Iterable[Advice]]

RULES: tuple[Rule, ...] = (
    running.out_of_memory,
    running.memory_high,
    running.leaks,
    compiling.stuck,
    compiling.recompiles,
    compiling.scattered,
    compiling.operations,
    running.transfers,
    running.errors,
    running.numerics,
    running.determinism,
    compiling.effects,
    compiling.cache,
    compiling.start_up,
)
"""What has failed comes before what is slow, and that before what might be faster."""


def advise(snapshot: Snapshot) -> list[Advice]:
    """Return what to change, the most urgent first; nothing when nothing stands out."""
    return [advice for rule in RULES for advice in rule(snapshot)]
