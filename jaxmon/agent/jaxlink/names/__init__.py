"""
Every internal name of JAX that jaxmon uses, and what is missing without it.

Data only, for people and tools: ``docs/jax-internals.md``, `jaxmon doctor`, the lint
rule and the tests read it. The agent does not: the other modules of `jaxlink` use the
names directly.
"""

from __future__ import annotations

from jaxmon.agent.jaxlink.names import (
    activity,
    arguments,
    cache,
    calls,
    compiles,
    devices,
    errors,
    transfers,
)
from jaxmon.agent.jaxlink.names.model import RELEASES, Name


SECTIONS: tuple[tuple[str, tuple[Name, ...]], ...] = (
    ("Creation of jitted functions", calls.CALLS),
    ("Missed calls", calls.MISSES),
    ("Arguments of a compiled call", arguments.ARGUMENTS),
    ("The same for pmap", arguments.PMAP),
    ("Configuration", arguments.CONFIGURATION),
    ("Arrays, shardings, devices", arguments.ARRAYS),
    ("Compiles", compiles.COMPILES),
    ("Ahead of time", calls.AHEAD),
    ("Events", compiles.MONITORING),
    ("Programs", compiles.PROGRAMS),
    ("The persistent cache", cache.CACHE),
    ("Sampled calls", calls.SAMPLING),
    ("Transfers", transfers.TRANSFERS),
    ("What a thread is doing", activity.ACTIVITY),
    ("Errors", errors.ERRORS),
    ("Devices", devices.DEVICES),
    ("The profiler", devices.PROFILER),
)
"""The names by purpose, in the order of the page."""

NAMES = tuple(name for _, names in SECTIONS for name in names)

__all__ = ["NAMES", "RELEASES", "SECTIONS", "Name"]
