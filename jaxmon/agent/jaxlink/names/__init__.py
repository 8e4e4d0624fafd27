"""
Every internal name of JAX that jaxmon uses, and what is missing without it.

Data only, for people and tools: ``docs/jax-internals.md``, `jaxmon doctor`, the lint
rule and the tests read it. The agent does not: the other modules of `jaxlink` use the
names directly.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxmon.agent.jaxlink.names import calls, compiles, runtime
from jaxmon.agent.jaxlink.names.name import RELEASES, Name


SECTIONS: tuple[tuple[str, Sequence[Name]], ...] = (
    ("Creation of jitted functions", calls.CALLS),
    ("Missed calls", calls.MISSES),
    ("Arguments of a compiled call", calls.ARGUMENTS),
    ("The same for pmap", calls.PMAP),
    ("Configuration", calls.CONFIGURATION),
    ("Arrays, shardings, devices", calls.ARRAYS),
    ("Compiles", compiles.COMPILES),
    ("Ahead of time", calls.AHEAD),
    ("Events", compiles.MONITORING),
    ("Programs", compiles.PROGRAMS),
    ("The persistent cache", compiles.CACHE),
    ("Sampled calls", calls.SAMPLING),
    ("Transfers", runtime.TRANSFERS),
    ("What a thread is doing", runtime.ACTIVITY),
    ("Errors", runtime.ERRORS),
    ("Devices", runtime.DEVICES),
    ("The profiler", runtime.PROFILER),
)
"""The names by purpose, in the order of the page."""

NAMES = tuple(name for _, names in SECTIONS for name in names)

__all__ = ["NAMES", "RELEASES", "SECTIONS", "Name"]
