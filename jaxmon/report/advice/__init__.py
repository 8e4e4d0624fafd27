"""
From facts to advice: what is wrong, the evidence, and what to do.

Each rule detects one mistake, by values that a healthy program does not have.
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
    compiling.compile_dominated,
)
"""Failures come first, then what is slow, then what could be faster."""


def advise(snapshot: Snapshot) -> list[Advice]:
    """Return what to change, the most urgent first; empty if nothing stands out."""
    return [advice for rule in RULES for advice in rule(snapshot)]
